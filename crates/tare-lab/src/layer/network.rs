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
    Macvlan,
    Ipvlan,
    Vxlan,
    Pasta,
    None,
    Service,
    NodePort,
    HostPort,
}

impl Network {
    pub const ALL: [Self; 11] = [
        Self::Host,
        Self::Bridge { proxy: false },
        Self::Bridge { proxy: true },
        Self::Macvlan,
        Self::Ipvlan,
        Self::Vxlan,
        Self::Pasta,
        Self::None,
        Self::Service,
        Self::NodePort,
        Self::HostPort,
    ];

    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        ("host", "the host's network namespace, with one veth pair to the client"),
        ("bridge", "a namespace behind a bridge; clients reach the published port through DNAT"),
        ("bridge+proxy", "as bridge, with a userland proxy instead of DNAT"),
        (
            "macvlan",
            "a namespace with a macvlan device in bridge mode; the client has another one on the same \
             parent, so packets go from one to the other without bridge, veth pair, NAT or network card",
        ),
        (
            "ipvlan",
            "as macvlan, with ipvlan devices in L2 mode, which share the parent's MAC address",
        ),
        (
            "vxlan",
            "a namespace behind a bridge that a VXLAN tunnel (MTU 1450) extends to the client, as in \
             overlay networks of Swarm and Flannel; both ends encapsulate and unpack, over a veth pair",
        ),
        (
            "pasta",
            "a namespace with a tap device; the program pasta, as in rootless Podman, forwards the port \
             to it in user mode",
        ),
        (
            "none",
            "no link: the system shares the network namespace of the client, which dials its \
             loopback address",
        ),
        (
            "service",
            "a pod's own network; the client dials the cluster IP of a service, whose packets the cluster's proxy \
             sends to the pod",
        ),
        ("node-port", "as service, but the client dials a port of the node"),
        (
            "host-port",
            "a pod's own network; the client dials a port of the node, which the network plugin sends to the pod \
             (hostPort)",
        ),
    ];

    /// Returns whether clients reach the system through a userland proxy.
    pub fn has_proxy(self) -> bool {
        self == Self::Bridge { proxy: true }
    }

    /// Returns whether only pods have it: a port that the cluster, or its network plugin, sends on
    /// to the pod's own network.
    pub fn is_of_pods(self) -> bool {
        matches!(self, Self::Service | Self::NodePort | Self::HostPort)
    }

    /// Returns whether a link of the system's own, which can be limited, leads to it.
    pub fn has_own_link(self) -> bool {
        matches!(self, Self::Bridge { .. } | Self::Vxlan)
    }

    /// Returns whether loaders, or other instances, on other hosts can reach the system.
    pub fn reaches_other_hosts(self) -> bool {
        matches!(self, Self::Host | Self::Bridge { .. })
    }

    fn word(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Bridge { proxy: false } => "bridge",
            Self::Bridge { proxy: true } => "bridge+proxy",
            Self::Macvlan => "macvlan",
            Self::Ipvlan => "ipvlan",
            Self::Vxlan => "vxlan",
            Self::Pasta => "pasta",
            Self::None => "none",
            Self::Service => "service",
            Self::NodePort => "node-port",
            Self::HostPort => "host-port",
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl FromStr for Network {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        let found = Self::ALL.into_iter().find(|one| one.word() == text);
        found.ok_or_else(|| BadLayerValue::unknown(Layer::Network, text))
    }
}

serde_as_text!(Network);
