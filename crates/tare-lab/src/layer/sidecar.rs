//! The layer of a second container in the pod of the system.

use std::fmt;
use std::str::FromStr;

use super::Layer;
use super::confinement::words;
use super::text::{BadLayerValue, serde_as_text};

words!(
    Sidecar,
    /// A value of the layer `sidecar`.
    Sidecar {
        None "none" "the system is the only container of its pod",
        Idle "idle" "a container of the pause program, which does nothing",
        Proxy "proxy" "a container of Tare's userland TCP proxy: clients dial it, and it dials the system",
    }
);

impl Sidecar {
    /// Returns whether there is no second container.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}
