//! The error and the serialization of layer values that are written as one word.

use super::Layer;

/// A layer has no such value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{layer} has no value {value:?}: {wanted}")]
pub struct BadLayerValue {
    pub layer: Layer,
    pub value: String,
    /// The valid values.
    pub wanted: String,
}

impl BadLayerValue {
    /// Returns the error for an unknown word.
    pub(super) fn unknown(layer: Layer, value: &str) -> Self {
        let words: Vec<&str> = layer.values().iter().map(|(word, _)| *word).collect();
        Self::new(layer, value, &format!("use one of {}", words.join(", ")))
    }

    pub(super) fn new(layer: Layer, value: &str, wanted: &str) -> Self {
        Self { layer, value: value.to_string(), wanted: wanted.to_string() }
    }
}

/// Serializes a type by its `Display` and deserializes it by its `FromStr`.
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
