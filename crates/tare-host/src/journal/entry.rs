//! An entry of a journal: a named kind and its data.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::undo::UndoError;

/// Something that a run makes on the host and that has to be removed again. The crate that owns the
/// kind makes such entries and undoes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    kind: String,
    #[serde(flatten)]
    data: Map<String, Value>,
}

impl Entry {
    /// An entry of a value that serde writes as an object with its name in `kind`
    /// (`#[serde(tag = "kind")]`). What has no such form, such as a path that is not UTF-8, gets a
    /// kind that no crate owns, so that no journal takes it.
    pub fn new(value: &impl Serialize) -> Self {
        let written = serde_json::to_value(value).and_then(serde_json::from_value);
        written
            .unwrap_or_else(|error| Self { kind: format!("unwritable: {error}"), data: Map::new() })
    }

    /// The kind's name.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The value that the entry was made of.
    ///
    /// # Errors
    /// `Malformed`, when the data are not those of `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, UndoError> {
        let value = serde_json::to_value(self).and_then(serde_json::from_value);
        value.map_err(|source| UndoError::Malformed { kind: self.kind.clone(), source })
    }
}
