//! Who else tunes this host: irqbalance, tuned, kubelet, the Scylla operator's NodeConfig, cri-o,
//! cloud agents, perftune's own leftovers.

use crate::snapshot::Snapshot;

/// Somebody who also writes a setting.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    /// `irqbalance`, `tuned`, `kubelet`, `NodeConfig`, `the kernel`, ...
    pub name: String,
    /// How that is known: `/run/irqbalance/irqbalance512.sock`.
    pub evidence: String,
    /// What it will do to the setting: `moves interrupts every 10 s unless they are banned`.
    pub effect: String,
}

/// The owners that a snapshot shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    pub list: Vec<Owned>,
}

/// An owner with the settings that are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    pub owner: Owner,
    /// Names of knobs that it also writes.
    pub knobs: Vec<&'static str>,
}

impl Owners {
    pub fn read(snapshot: &Snapshot) -> Self {
        let _ = snapshot;
        Self::default()
    }

    /// Who else writes what this knob writes.
    pub fn of(&self, knob: &str) -> Option<&Owner> {
        let mut owned = self.list.iter().filter(|owned| owned.knobs.contains(&knob));
        owned.next().map(|owned| &owned.owner)
    }
}
