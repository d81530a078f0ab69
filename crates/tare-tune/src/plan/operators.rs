//! Leaves settings to the operators of a cluster that decide about them on this host.
//!
//! Why: an operator (the Scylla operator's NodeConfig, the Node Tuning Operator) sets its settings
//! again, at the next pod or the next change of its objects, so a value that Tare writes does not
//! last, and neither of both knows what it measures. A knob that is named with `--only` is planned
//! all the same.

use super::{Action, Item, Options};
use crate::machine::Owners;
use crate::machine::owners::OwnedSettings;

/// Turns changes and advice about settings of operators into settings that stay, and returns a
/// note for each operator.
pub fn leave_to_operators(items: &mut [Item], owners: &Owners, options: &Options) -> Vec<String> {
    let mut left: Vec<(&str, String)> = Vec::new();
    for item in items.iter_mut() {
        let Some(owned) = owners.deciding(&item.knob, &item.what) else { continue };
        if options.only.contains(&item.knob) || options.request.contains(&item.knob) {
            continue;
        }
        let now = match &item.action {
            Action::Change(change) => change.now.clone(),
            // Other advice is about what no operator sets, such as an area of swap.
            Action::Advise { now, .. } if item.knob == "irqbalance" => now.clone(),
            Action::Advise { .. } | Action::Leave { .. } | Action::AlreadySet { .. } => continue,
        };
        let place = owned.decided_in.unwrap_or_default();
        let reason = format!("{} sets it: change it in {place}", owned.owner.name);
        item.action = Action::Leave { now, reason };
        item.owner = Some(owned.owner.clone());
        left.push((&owned.owner.name, item.knob.clone()));
    }
    let note = |owned: &OwnedSettings| {
        let owner = &owned.owner;
        let mut knobs: Vec<&str> = left
            .iter()
            .filter(|(name, _)| *name == owner.name)
            .map(|(_, knob)| knob.as_str())
            .collect();
        knobs.dedup();
        let place = owned.decided_in.unwrap_or_default();
        let tail = match knobs.is_empty() {
            true => "this plan would change nothing of that".to_string(),
            false => format!(
                "so Tare leaves {} alone: change it in {place}, or plan a knob all the same with \
                 --only KNOB",
                knobs.join(", ")
            ),
        };
        format!(
            "{} ({}) {}; it sets {}, {tail}",
            owner.name,
            owner.evidence,
            owner.effect,
            owned.described()
        )
    };
    owners.operators().map(note).collect()
}
