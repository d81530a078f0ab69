//! The input of a knob, and the items that it returns.

use crate::machine::{Disk, Machine, Nic};
use crate::plan::{
    Action, Change, CpuSets, Identity, Item, Key, Options, Requirement, ValueFormat,
};
use crate::snapshot::Snapshot;

use super::Knob;

/// The input of a knob.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    pub snapshot: &'a Snapshot,
    pub options: &'a Options,
    pub machine: &'a Machine,
    pub cpus: &'a CpuSets,
}

impl Context<'_> {
    pub fn nics(&self) -> &[Nic] {
        &self.machine.nics
    }

    pub fn disks(&self) -> &[Disk] {
        &self.machine.disks
    }

    /// Returns an item of a knob: a change if the value differs from `wanted`, otherwise
    /// `AlreadySet`. `None` when the host does not have the setting.
    ///
    /// `what` is the setting in words, `key` its location. Owner, group and whether it survives a
    /// reboot come from the knob; the caller changes them in the result where they differ.
    pub fn item(
        &self,
        knob: &dyn Knob,
        subject: &str,
        what: &str,
        key: Key,
        form: ValueFormat,
        wanted: &str,
    ) -> Option<Item> {
        let now = key.read_from(self.snapshot)?;
        let action = match form.same(&now, wanted) {
            true => Action::AlreadySet { now: form.normalize(&now) },
            false => Action::Change(Change {
                now: form.normalize(&now),
                wanted: wanted.to_string(),
                key,
                form,
                requirement: Requirement::Wanted,
                identity: Identity::default(),
                stage: 1,
            }),
        };
        Some(self.line(knob, subject, what, action))
    }

    /// Returns an item with the given action.
    pub fn line(&self, knob: &dyn Knob, subject: &str, what: &str, action: Action) -> Item {
        Item {
            knob: knob.name().into(),
            group: knob.group(),
            subject: subject.into(),
            what: what.into(),
            action,
            why: knob.why().into(),
            risk: knob.risk().into(),
            owner: self.machine.owners.of_setting(knob.name(), what).cloned(),
            survives_reboot: false,
        }
    }
}
