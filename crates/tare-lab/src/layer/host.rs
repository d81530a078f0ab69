//! The host layer: whether the host is tuned while the environment runs.

use std::fmt;
use std::str::FromStr;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};

/// A value of the host layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// The host as found.
    #[default]
    AsIs,
    /// The host with all changes of the tuning plan that affect a running system.
    Tuned,
    /// The host with the changes of some groups of knobs or single knobs. The tuner defines the
    /// names.
    TunedGroups(Vec<String>),
}

impl Host {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        ("as-is", "the host as found"),
        ("tuned", "every change of the tuning plan that affects a running system"),
        (
            "tuned=*",
            "the changes of some groups of knobs or knobs only, such as tuned=disk+network or tuned=rps+rfs",
        ),
    ];

    /// Returns whether the host is left as found.
    pub fn is_as_is(&self) -> bool {
        *self == Self::AsIs
    }

    /// Returns the groups of knobs, and single knobs, to which the tuning is limited. Empty: no
    /// limit, or no tuning.
    pub fn groups(&self) -> &[String] {
        match self {
            Self::AsIs | Self::Tuned => &[],
            Self::TunedGroups(groups) => groups,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AsIs => f.pad("as-is"),
            Self::Tuned => f.pad("tuned"),
            Self::TunedGroups(groups) => f.pad(&format!("tuned={}", groups.join("+"))),
        }
    }
}

impl FromStr for Host {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        match text {
            "as-is" => Ok(Self::AsIs),
            "tuned" => Ok(Self::Tuned),
            _ => {
                let unknown = || BadLayerValue::unknown(Layer::Host, text);
                let groups = text.strip_prefix("tuned=").ok_or_else(unknown)?;
                let groups: Vec<String> = groups.split('+').map(String::from).collect();
                if groups.iter().any(String::is_empty) {
                    let wanted = "separate groups of knobs by +, such as tuned=disk+network";
                    return Err(BadLayerValue::new(Layer::Host, text, wanted));
                }
                Ok(Self::TunedGroups(groups))
            }
        }
    }
}

serde_as_text!(Host);
