//! The rootfs layer: what a container's root file system is made of.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Layer;
use super::text::BadLayerValue;

/// A value of the rootfs layer. A record keeps it as a list of (name, value), which is empty or has
/// one element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, String)>", into = "Vec<(String, String)>")]
pub enum Rootfs {
    /// Nothing: the host's program is shown in it.
    #[default]
    None,
    /// Packages of the distribution, with spaces between them.
    Packages(String),
    /// An image by its path, or by its name in an engine.
    Image(String),
    /// A directory of the host.
    Directory(String),
}

impl Rootfs {
    /// What it can be made of.
    pub const VALUES: &'static [(&'static str, &'static str)] = &[
        (
            "packages",
            "packages of Debian or Ubuntu (NAME or NAME=VERSION) with all that they depend on, by apt-get",
        ),
        (
            "image",
            "an image: a directory with an OCI image layout, an archive by docker save, or with an engine the name of an image that it has",
        ),
        ("directory", "a root file system that stands in a directory of the host"),
    ];

    /// The value of this name; `None` where there is no such name.
    pub fn new(name: &str, value: String) -> Option<Self> {
        match name {
            "packages" => Some(Self::Packages(value)),
            "image" => Some(Self::Image(value)),
            "directory" => Some(Self::Directory(value)),
            _ => None,
        }
    }

    /// Its name and what follows it in a study; `None` where it is made of nothing.
    pub fn option(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::None => None,
            Self::Packages(names) => Some(("packages", names)),
            Self::Image(image) => Some(("image", image)),
            Self::Directory(path) => Some(("directory", path)),
        }
    }

    /// Whether it is made of nothing.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl fmt::Display for Rootfs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.option() {
            None => f.pad("none"),
            Some((name, value)) => write!(f, "{name} = {value}"),
        }
    }
}

impl From<Rootfs> for Vec<(String, String)> {
    fn from(rootfs: Rootfs) -> Self {
        let option = rootfs.option();
        option.into_iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }
}

impl TryFrom<Vec<(String, String)>> for Rootfs {
    type Error = BadLayerValue;

    fn try_from(options: Vec<(String, String)>) -> Result<Self, BadLayerValue> {
        let mut options = options.into_iter();
        let (first, more) = (options.next(), options.next());
        let bad = |name: &str| BadLayerValue::unknown(Layer::Rootfs, name);
        match (first, more) {
            (None, _) => Ok(Self::None),
            (Some((name, value)), None) => Self::new(&name, value).ok_or_else(|| bad(&name)),
            (Some(_), Some((name, _))) => Err(bad(&name)),
        }
    }
}
