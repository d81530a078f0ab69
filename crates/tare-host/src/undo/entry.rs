//! An entry of a journal: a named kind and its data.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::UndoError;

/// An object that a run creates on the host and must remove again. The crate that owns the kind
/// creates such entries and undoes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    kind: String,
    #[serde(flatten)]
    data: Map<String, Value>,
}

impl Entry {
    /// Creates an entry from a value that serde writes as an object with its name in `kind`
    /// (`#[serde(tag = "kind")]`). A value without such a form, such as a path that is not UTF-8,
    /// gets a kind that no crate owns, so that every journal refuses it.
    pub fn new(value: &impl Serialize) -> Self {
        let written = serde_json::to_value(value).and_then(serde_json::from_value);
        written
            .unwrap_or_else(|error| Self { kind: format!("unwritable: {error}"), data: Map::new() })
    }

    /// Returns the name of the kind.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Returns the value from which the entry was created.
    ///
    /// # Errors
    /// `Malformed` when the data do not fit `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, UndoError> {
        let value = serde_json::to_value(self).and_then(serde_json::from_value);
        value.map_err(|source| UndoError::Malformed { kind: self.kind.clone(), source })
    }
}
