//! The layers of a process's rights and memory: capabilities, user namespace, AppArmor profile,
//! huge pages and NUMA node. Each is a layer of its own, so that each can be switched alone.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};

/// The values of these layers in one environment. The default is what every runtime does without
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Confinement {
    #[serde(skip_serializing_if = "is_default")]
    pub capabilities: Capabilities,
    #[serde(skip_serializing_if = "is_default")]
    pub user: User,
    #[serde(skip_serializing_if = "is_default")]
    pub apparmor: Apparmor,
    #[serde(skip_serializing_if = "is_default")]
    pub pages: Pages,
    /// The NUMA node of the memory; `None` leaves it to the cpu layer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

impl Confinement {
    /// Returns whether every layer has its default.
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the node as the layer's text.
    pub(crate) fn node_text(self) -> String {
        self.node.map_or("any".into(), |node| node.to_string())
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Defines a layer whose values are single words, the first of which is the default.
macro_rules! words {
    ($layer:ident, $(#[$doc:meta])* $type:ident { $first:ident $first_word:literal $first_help:literal, $($value:ident $word:literal $help:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $type {
            #[default]
            $first,
            $($value),+
        }

        impl $type {
            pub(super) const VALUES: &'static [(&'static str, &'static str)] =
                &[($first_word, $first_help), $(($word, $help)),+];
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self {
                    Self::$first => $first_word,
                    $(Self::$value => $word),+
                })
            }
        }

        impl FromStr for $type {
            type Err = BadLayerValue;

            fn from_str(text: &str) -> Result<Self, BadLayerValue> {
                match text {
                    $first_word => Ok(Self::$first),
                    $($word => Ok(Self::$value),)+
                    _ => Err(BadLayerValue::unknown(Layer::$layer, text)),
                }
            }
        }

        serde_as_text!($type);
    };
}

pub(super) use words;

words!(
    Capabilities,
    /// A value of the layer `security.capabilities`.
    Capabilities {
        Default "default" "the runtime's default set; a plain process keeps those of Tare",
        None "none" "no capability in any set, and an empty bounding set; the user stays root",
    }
);

words!(
    User,
    /// A value of the layer `user`.
    User {
        Host "host" "root of the system is root of the host",
        Namespace "namespace" "a user namespace: root of the system is an id of the host without any right (1000000)",
    }
);

words!(
    Apparmor,
    /// A value of the layer `apparmor`.
    Apparmor {
        None "none" "no AppArmor profile, not even an engine's own",
        Default "default" "a profile with the rules of Docker's docker-default, which Tare loads and unloads",
        Runtime "runtime" "pods only: the profile of the container runtime itself (RuntimeDefault)",
    }
);

words!(
    Pages,
    /// A value of the layer `memory.pages`.
    Pages {
        Host "host" "as the host has it (/sys/kernel/mm/transparent_hugepage/enabled)",
        Never "never" "no transparent huge page, whatever the system asks for",
        Madvise "madvise" "transparent huge pages only where the system asks for them",
        Always "always" "transparent huge pages wherever they fit",
    }
);

impl Confinement {
    /// The values of the layer `memory.node`.
    pub(super) const NODES: &'static [(&'static str, &'static str)] =
        &[("any", "the cpu layer decides"), ("*", "the number of a NUMA node that has memory")];
}
