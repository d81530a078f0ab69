//! The cgroup layer: whether the system runs in its own cgroup.

use std::fmt;
use std::str::FromStr;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};

/// A value of the cgroup layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroup {
    Own,
    None,
}

impl Cgroup {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        ("own", "a cgroup of its own in every hierarchy, /tare-RUN/eN/own, as every container has"),
        ("none", "the cgroups of a process started from a shell, but for the scheduler's"),
    ];
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Own => "own",
            Self::None => "none",
        })
    }
}

impl FromStr for Cgroup {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        match text {
            "own" => Ok(Self::Own),
            "none" => Ok(Self::None),
            _ => Err(BadLayerValue::unknown(Layer::Cgroup, text)),
        }
    }
}

serde_as_text!(Cgroup);
