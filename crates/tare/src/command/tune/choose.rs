//! Which changes of a plan can be weighed by turns, and why the others cannot. Pure.

use tare_lab::study::ScheduleKind;
use tare_tune::knobs;
use tare_tune::plan::{Action, Group, Item, Options, PlanError};
use tare_tune::planner::plan;
use tare_tune::snapshot::Snapshot;

/// What a proof changes, and what it does not.
#[derive(Debug)]
pub(crate) struct Choice {
    /// Changes that are weighed, in the order in which they are applied.
    pub(crate) items: Vec<Item>,
    /// What was planned or advised and is not weighed, and why: (what, reason).
    pub(crate) not_weighed: Vec<(String, String)>,
}

impl Choice {
    /// Groups that change something, in the order in which knobs are listed.
    pub(crate) fn groups(&self) -> Vec<Group> {
        let has = |group: &Group| self.items.iter().any(|item| item.group == *group);
        Group::ALL.iter().copied().filter(has).collect()
    }

    /// Leaves out what the host did not take when it was tried.
    pub(crate) fn drop_refused(&mut self, refused: Vec<(Item, String)>) {
        for (item, reason) in refused {
            self.items.retain(|kept| *kept != item);
            let reason = format!("the host did not take it: {reason}");
            self.not_weighed.push((described(&item), reason));
        }
    }
}

/// Plans what can be weighed on a host as it is.
///
/// Channels are left as they are: their change takes the device down, and all else is planned on
/// the queues that there are.
pub(crate) fn choose(
    snapshot: &Snapshot,
    options: &Options,
    schedule: ScheduleKind,
) -> Result<Choice, PlanError> {
    let mut plan_of_all = plan(snapshot, options)?;
    let mut not_weighed = Vec::new();
    let mut options = options.clone();
    for (item, change) in plan_of_all.changes() {
        if change.stage == 0 {
            let reason = "its change takes the device down for a moment; \
                          apply it for good with tare tune apply, then prove the rest";
            not_weighed.push((described(item), reason.to_string()));
            options.except.push(item.knob.clone());
        }
    }
    if !not_weighed.is_empty() {
        plan_of_all = plan(snapshot, &options)?;
    }
    let at_start = |item: &Item| {
        let mut all = knobs::ALL.iter();
        all.any(|knob| knob.name() == item.knob && knob.takes_effect_at_start())
    };
    let mut items = Vec::new();
    for item in &plan_of_all.items {
        match &item.action {
            Action::Change(_) if schedule == ScheduleKind::Slices && at_start(item) => {
                let reason = "a running database does not notice it, only one that is started";
                not_weighed.push((described(item), reason.to_string()));
            }
            Action::Change(_) => items.push(item.clone()),
            Action::Advise { how, .. } => not_weighed.push((described(item), how.clone())),
            Action::AlreadySet { .. } | Action::Leave { .. } => {}
        }
    }
    Ok(Choice { items, not_weighed })
}

fn described(item: &Item) -> String {
    match item.subject.as_str() {
        "host" => format!("{}: {}", item.knob, item.what),
        subject => format!("{}: {} of {subject}", item.knob, item.what),
    }
}

/// Things with the same reason in one line: the first by name, the rest by number.
pub(crate) fn summed_up(list: &[(String, String)]) -> Vec<(String, String)> {
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
    use super::*;

    #[test]
    fn what_has_one_reason_has_one_line() {
        let pair = |what: &str, reason: &str| (what.to_string(), reason.to_string());
        let list = [
            pair("rps: rx-0", "a"),
            pair("rps: rx-1", "a"),
            pair("swap: x", "a"),
            pair("rps: rx-2", "b"),
        ];
        let expect =
            [pair("rps: rx-0 and 1 more", "a"), pair("swap: x", "a"), pair("rps: rx-2", "b")];
        assert_eq!(summed_up(&list), expect);
    }
}
