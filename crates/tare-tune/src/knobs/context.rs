//! What a knob plans from, and how it writes its lines.

use crate::machine::{Disk, Machine, Nic};
use crate::plan::{Action, Change, CpuSets, Form, Identity, Item, Key, Need, Options};
use crate::snapshot::Snapshot;

use super::Knob;

/// What a knob plans from.
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

    /// An item of a knob: a change if the file's value differs from the one that is wanted, else a
    /// line that says it is right. `None` when the host has no such file.
    ///
    /// `what` is the setting in words, `key` its location. Owner, group and whether it survives a
    /// reboot are filled in from the knob; change them in the result where they differ.
    pub fn item(
        &self,
        knob: &dyn Knob,
        subject: &str,
        what: &str,
        key: Key,
        form: Form,
        wanted: &str,
    ) -> Option<Item> {
        let now = key.read_from(self.snapshot)?;
        let action = match form.same(&now, wanted) {
            true => Action::Right { now: form.tidy(&now) },
            false => Action::Change(Change {
                now: form.tidy(&now),
                wanted: wanted.to_string(),
                key,
                form,
                need: Need::Should,
                identity: Identity::default(),
                stage: 1,
            }),
        };
        Some(self.line(knob, subject, what, action))
    }

    /// An item with any action.
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
