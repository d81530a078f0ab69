//! The security layer: which system calls a seccomp filter lets through.

use std::fmt;
use std::str::FromStr;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};

/// A value of the security layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Moby's default profile.
    Default,
    /// The default profile, which also allows io_uring.
    DefaultWithIoUring,
    None,
}

impl Security {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        ("default", "Moby's default seccomp profile: io_uring is refused with EPERM"),
        ("default+io_uring", "the same profile, which also allows the three io_uring calls"),
        ("none", "no seccomp filter; the capabilities stay the default ones"),
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
