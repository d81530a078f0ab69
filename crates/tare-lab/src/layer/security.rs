//! The security layer: the system calls that a seccomp filter allows.

use std::fmt;
use std::str::FromStr;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};

/// A value of the security layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Moby's default profile.
    Default,
    /// The default profile, with io_uring allowed.
    DefaultWithIoUring,
    /// No filter.
    None,
}

impl Security {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        ("default", "Moby's default seccomp profile, which refuses io_uring with EPERM"),
        ("default+io_uring", "the default profile, with the three io_uring calls allowed"),
        ("none", "no seccomp filter; the capabilities remain the default ones"),
    ];
}

impl fmt::Display for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "default",
            Self::DefaultWithIoUring => "default+io_uring",
            Self::None => "none",
        })
    }
}

impl FromStr for Security {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        match text {
            "default" => Ok(Self::Default),
            "default+io_uring" => Ok(Self::DefaultWithIoUring),
            "none" => Ok(Self::None),
            _ => Err(BadLayerValue::unknown(Layer::Security, text)),
        }
    }
}

serde_as_text!(Security);
