//! The network layer: the path between the client and the system.

use std::fmt;
use std::str::FromStr;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};

/// A value of the network layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    Host,
    Bridge { proxy: bool },
}

impl Network {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        ("host", "the host's network namespace, with one veth pair to the client"),
        ("bridge", "a namespace behind a bridge; clients reach the published port through DNAT"),
        ("bridge+proxy", "as bridge, with a userland proxy instead of DNAT"),
    ];

    /// Returns whether clients reach the system through a userland proxy.
    pub fn has_proxy(self) -> bool {
        self == Self::Bridge { proxy: true }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Host => "host",
            Self::Bridge { proxy: false } => "bridge",
            Self::Bridge { proxy: true } => "bridge+proxy",
        })
    }
}

impl FromStr for Network {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        match text {
            "host" => Ok(Self::Host),
            "bridge" => Ok(Self::Bridge { proxy: false }),
            "bridge+proxy" => Ok(Self::Bridge { proxy: true }),
            _ => Err(BadLayerValue::unknown(Layer::Network, text)),
        }
    }
}

serde_as_text!(Network);
