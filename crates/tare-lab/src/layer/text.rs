//! What the layers that are written as one word share: their errors and their form in a file.

use super::Layer;

/// A text that is no value of a layer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{layer} has no value {value:?}: {wanted}")]
pub struct BadLayerValue {
    pub layer: Layer,
    pub value: String,
    /// What it takes.
    pub wanted: String,
}

impl BadLayerValue {
    /// The error of a value that is none of the layer's words.
    pub(super) fn unknown(layer: Layer, value: &str) -> Self {
        let words: Vec<&str> = layer.values().iter().map(|(word, _)| *word).collect();
        Self::new(layer, value, &format!("use one of {}", words.join(", ")))
    }

    pub(super) fn new(layer: Layer, value: &str, wanted: &str) -> Self {
        Self { layer, value: value.to_string(), wanted: wanted.to_string() }
    }
}

/// Serializes a type as its `Display` and reads it by its `FromStr`.
macro_rules! serde_as_text {
    ($type:ty) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

pub(super) use serde_as_text;
