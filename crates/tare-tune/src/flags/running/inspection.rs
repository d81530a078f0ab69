//! What an engine says about a container: the JSON of `docker inspect`.

use serde_json::Value;

/// A container of the user as its engine describes it.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// `docker` or `podman`.
    pub engine: &'static str,
    /// The name by which the user asked for it.
    pub name: String,
    /// The container, in the form of Docker's API.
    pub container: Value,
    /// Its image, in the same form.
    pub image: Value,
    /// The engine: its default runtime and log driver, the version of cgroups.
    pub info: Value,
    /// The limits of its first process, the text of `/proc/PID/limits`; `None` if it does not run.
    pub limits: Option<String>,
}

/// Access to a JSON object by paths such as `HostConfig/Memory`. What is missing is empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Object<'a>(pub(super) &'a Value);

impl<'a> Object<'a> {
    pub(super) fn at(self, path: &str) -> &'a Value {
        self.0.pointer(&format!("/{path}")).unwrap_or(&Value::Null)
    }

    pub(super) fn text(self, path: &str) -> &'a str {
        self.at(path).as_str().unwrap_or_default()
    }

    pub(super) fn number(self, path: &str) -> i64 {
        self.at(path).as_i64().unwrap_or_default()
    }

    pub(super) fn is_true(self, path: &str) -> bool {
        self.at(path).as_bool().unwrap_or_default()
    }

    pub(super) fn items(self, path: &str) -> &'a [Value] {
        self.at(path).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    pub(super) fn texts(self, path: &str) -> Vec<&'a str> {
        self.items(path).iter().filter_map(Value::as_str).collect()
    }

    /// Returns the entries of a map, sorted by key.
    pub(super) fn entries(self, path: &str) -> Vec<(&'a str, &'a Value)> {
        let map = self.at(path).as_object();
        let mut entries: Vec<_> =
            map.into_iter().flatten().map(|(key, value)| (key.as_str(), value)).collect();
        entries.sort_by_key(|(key, _)| *key);
        entries
    }

    /// Returns the pairs of a map of texts, sorted by key.
    pub(super) fn pairs(self, path: &str) -> Vec<(&'a str, &'a str)> {
        let entries = self.entries(path).into_iter();
        entries.filter_map(|(key, value)| Some((key, value.as_str()?))).collect()
    }
}

/// Whether a value says nothing: null, zero, false, or empty.
pub(super) fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(is) => !is,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.iter().all(is_empty),
        Value::Object(map) => map.values().all(is_empty),
    }
}
