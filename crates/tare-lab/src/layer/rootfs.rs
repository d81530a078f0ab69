//! The rootfs layer: the source of a container's root file system.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::Layer;
use super::text::BadLayerValue;

/// A value of the rootfs layer. A record stores it as a list of (name, value) with at most one
/// element.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(String, String)>", into = "Vec<(String, String)>")]
pub enum Rootfs {
    /// An empty root file system in which the host's program is mounted.
    #[default]
    None,
    /// Packages of the distribution, separated by spaces.
    Packages(String),
    /// Path of an image, or its name in an engine.
    Image(String),
    /// A directory of the host.
    Directory(String),
}

impl Rootfs {
    /// The sources, with one line of help each.
    pub const VALUES: &'static [(&'static str, &'static str)] = &[
        (
            "packages",
            "packages of Debian or Ubuntu (NAME or NAME=VERSION) with their dependencies, from apt-get",
        ),
        (
            "image",
            "an image: a directory with an OCI image layout, an archive made by docker save, or the name of an image of the engine",
        ),
        ("directory", "a directory of the host that contains a root file system"),
    ];

    /// Returns the source of this name, or `None` if there is no such source.
    pub fn new(name: &str, value: String) -> Option<Self> {
        match name {
            "packages" => Some(Self::Packages(value)),
            "image" => Some(Self::Image(value)),
            "directory" => Some(Self::Directory(value)),
            _ => None,
        }
    }

    /// Returns the name and the value in a study, or `None` without a source.
    pub fn option(&self) -> Option<(&'static str, &str)> {
        match self {
            Self::None => None,
            Self::Packages(names) => Some(("packages", names)),
            Self::Image(image) => Some(("image", image)),
            Self::Directory(path) => Some(("directory", path)),
        }
    }

    /// Returns whether there is no source.
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
