//! Selects the changes of a plan that a study can weigh. Pure.

use tare_lab::study::{ScheduleKind, Study};
use tare_std::cpus::CpuSet;
use tare_tune::knobs;
use tare_tune::plan::{Action, Group, Item, Options, PlanError};
use tare_tune::planner::plan;
use tare_tune::snapshot::Snapshot;

use super::card_path::CardPath;

/// The changes of a plan that a study weighs, and the others.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    /// Changes that are weighed, in the order in which they are applied.
    pub(crate) items: Vec<Item>,
    /// Planned or advised changes that are not weighed: (change, reason).
    pub(crate) not_weighed: Vec<(String, String)>,
    /// The CPUs that the plan keeps for interrupts, if it keeps some.
    pub(crate) interrupt_cpus: Option<CpuSet>,
}

impl Choice {
    /// Returns the groups of the weighed changes, in the order of the knobs.
    pub(crate) fn groups(&self) -> Vec<Group> {
        let has = |group: &Group| self.items.iter().any(|item| knobs::selects(group.name(), item));
        Group::ALL.iter().copied().filter(has).collect()
    }

    /// Returns the names that are weighed alone: of the knobs of the weighed changes, or of their
    /// groups and the knobs that are planned only by name.
    pub(crate) fn names(&self, each_knob: bool) -> Vec<String> {
        let groups = self.groups().into_iter().filter(|_| !each_knob);
        let mut names: Vec<String> = groups.map(|group| group.name().to_string()).collect();
        for item in &self.items {
            let alone = each_knob || knobs::is_on_request(&item.knob);
            if alone && !names.contains(&item.knob) {
                names.push(item.knob.clone());
            }
        }
        names
    }

    /// Returns the knobs of changes that are not weighed, with the reason of each.
    pub(crate) fn left_out_by_knob(&self) -> Vec<(String, String)> {
        let knob = |what: &str| what.split(':').next().unwrap_or_default().to_string();
        self.not_weighed.iter().map(|(what, reason)| (knob(what), reason.clone())).collect()
    }

    /// Drops the changes that the host refused in the rehearsal.
    pub(crate) fn drop_refused(&mut self, refused: Vec<(Item, String)>) {
        for (item, reason) in refused {
            self.items.retain(|kept| *kept != item);
            let reason = format!("the host refused it: {reason}");
            self.not_weighed.push((description(&item), reason));
        }
    }
}

/// Plans the changes that can be weighed on this host.
///
/// Channels of network devices keep their number: changing it takes the device down. The rest is
/// planned for the existing queues. Knobs of network cards are weighed only if a packet of the
/// study crosses one, and those of the cards that it crosses. Knobs that are planned only by name
/// are planned if an environment names them.
pub(crate) fn choose(
    snapshot: &Snapshot,
    options: &Options,
    study: &Study,
    path: &CardPath,
) -> Result<Choice, PlanError> {
    let schedule = study.schedule.kind;
    let mut not_weighed = Vec::new();
    let mut options = options.clone();
    if options.nics.is_empty() {
        options.nics.clone_from(&path.cards);
    }
    let named = study.environments.iter().flat_map(|spec| spec.host.groups());
    options.request.extend(named.filter(|name| knobs::is_on_request(name)).cloned());
    let mut plan_of_all = plan(snapshot, &options)?;
    for (item, change) in plan_of_all.changes() {
        if change.stage == 0 {
            let reason = match path.crosses {
                true => "changing it takes the device down for a moment; apply it with tare tune \
                         apply, then prove the rest"
                    .to_string(),
                false => path.no_card(),
            };
            not_weighed.push((description(item), reason));
            options.except.push(item.knob.clone());
        }
    }
    if !not_weighed.is_empty() {
        plan_of_all = plan(snapshot, &options)?;
    }
    let knob = |item: &Item| knobs::ALL.iter().find(|knob| knob.name() == item.knob);
    let at_start = |item: &Item| knob(item).is_some_and(|knob| knob.takes_effect_at_start());
    let of_cards = |item: &Item| knob(item).is_some_and(|knob| knob.is_of_network_cards());
    let mut items = Vec::new();
    for item in &plan_of_all.items {
        match &item.action {
            Action::Change(_) | Action::Advise { .. } if !path.crosses && of_cards(item) => {
                not_weighed.push((description(item), path.no_card()));
            }
            Action::Change(_) if of_cards(item) && path.leaves_out(&item.subject).is_some() => {
                not_weighed
                    .extend(path.leaves_out(&item.subject).map(|why| (description(item), why)));
            }
            Action::Change(_) if schedule == ScheduleKind::Slices && at_start(item) => {
                let reason = "it affects only databases that start after the change";
                not_weighed.push((description(item), reason.to_string()));
            }
            Action::Change(_) => items.push(item.clone()),
            Action::Advise { how, .. } => not_weighed.push((description(item), how.clone())),
            Action::AlreadySet { .. } | Action::Leave { .. } => {}
        }
    }
    let interrupt_cpus = plan_of_all.cpus.interrupts_alone();
    Ok(Choice { items, not_weighed, interrupt_cpus })
}

fn description(item: &Item) -> String {
    match item.subject.as_str() {
        "host" => format!("{}: {}", item.knob, item.what),
        subject => format!("{}: {} of {subject}", item.knob, item.what),
    }
}

/// Merges changes of one knob with the same reason into one line, which names the first and counts
/// the rest.
pub(crate) fn merge_reasons(list: &[(String, String)]) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String, usize)> = Vec::new();
    for (what, reason) in list {
        let knob = |what: &str| what.split(':').next().map(str::to_string);
        let same =
            |line: &&mut (String, String, usize)| line.1 == *reason && knob(&line.0) == knob(what);
        match lines.iter_mut().find(same) {
            Some(line) => line.2 += 1,
            None => lines.push((what.clone(), reason.clone(), 0)),
        }
    }
    let line = |(what, reason, more): (String, String, usize)| match more {
        0 => (what, reason),
        more => (format!("{what} and {more} more"), reason),
    };
    lines.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn changes_with_the_same_reason_are_merged() {
        let pair = |what: &str, reason: &str| (what.to_string(), reason.to_string());
        let list = [
            pair("rps: rx-0", "a"),
            pair("rps: rx-1", "a"),
            pair("swap: x", "a"),
            pair("rps: rx-2", "b"),
        ];
        let expect =
            [pair("rps: rx-0 and 1 more", "a"), pair("swap: x", "a"), pair("rps: rx-2", "b")];
        assert_eq!(merge_reasons(&list), expect);
    }

    #[test]
    fn cards_are_weighed_only_if_packets_cross_them() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts");
        let snapshot = Snapshot::load(&root.join("recorded/i3.8xlarge")).unwrap();
        let chosen = |change: &dyn Fn(&mut Study)| {
            let mut study = super::super::study::read("quick", false).unwrap().0;
            change(&mut study);
            let path = CardPath::find(&study, &snapshot, None).unwrap();
            choose(&snapshot, &Options::default(), &study, &path).unwrap()
        };
        let knobs = |choice: &Choice| -> Vec<String> {
            choice.items.iter().map(|item| item.knob.clone()).collect()
        };
        let veth = chosen(&|_| ());
        assert!(!knobs(&veth).iter().any(|knob| knob == "rps"), "{:?}", knobs(&veth));
        assert!(!veth.items.is_empty(), "the rest is weighed");
        let reasons = merge_reasons(&veth.not_weighed);
        let of_cards = reasons
            .iter()
            .filter(|(_, why)| why.starts_with("the load crosses no network card"))
            .count();
        assert!(of_cards > 1, "{reasons:?}");
        let remote = chosen(&|study: &mut Study| {
            let storage = &mut study.environments[1].storage;
            storage.kind = "nvme-of".into();
            storage.options = vec![("nqn".into(), "nqn.2014-08.org.example:disk".into())];
        });
        assert!(knobs(&remote).iter().any(|knob| knob == "rps"), "{:?}", knobs(&remote));
        assert!(
            remote
                .not_weighed
                .iter()
                .all(|(_, why)| !why.starts_with("the load crosses no network card"))
        );
    }
}
