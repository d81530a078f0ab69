//! The host layer: whether the host is tuned while the environment runs.

use std::fmt;
use std::str::FromStr;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};

/// A value of the host layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Host {
    /// As it was found.
    #[default]
    AsIs,
    /// With every change of the plan that a running system notices.
    Tuned,
    /// With those of some groups of knobs. The tuner knows their names.
    TunedGroups(Vec<String>),
}

impl Host {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        ("as-is", "as it was found"),
        ("tuned", "with every change of the plan that a running system notices"),
        ("tuned=*", "with those of some groups of knobs only, such as tuned=disk+network"),
    ];

    /// Whether the host is as it was found.
    pub fn is_as_is(&self) -> bool {
        *self == Self::AsIs
    }

    /// Names of the groups that it is limited to.
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
                    let wanted =
                        "groups of knobs have a + between them, such as tuned=disk+network";
                    return Err(BadLayerValue::new(Layer::Host, text, wanted));
                }
                Ok(Self::TunedGroups(groups))
            }
        }
    }
}

serde_as_text!(Host);
