//! Configuration files of a kubelet, merged as the kubelet merges them.
//!
//! Source: kubernetes.io, "Set Kubelet Parameters Via A Configuration File" (files of the drop-in
//! folder are those that end in `.conf`, sorted by their names; flags come last) and "Kubelet
//! Configuration Directory Merging" (maps are merged, lists and plain values replaced).

use serde_json::{Map, Value};

/// Parses a configuration file, YAML or JSON. `path` names it in an error, which is one line.
pub(super) fn parse(path: &str, text: &str) -> Result<Value, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| {
        let reason = error.without_snippet().to_string();
        let reason = reason.lines().next().unwrap_or_default();
        format!("cannot read {path} as YAML: {reason}")
    })?;
    let kind = value.get("kind").and_then(Value::as_str);
    match (kind, value.is_object()) {
        (Some("KubeletConfiguration"), _) => Ok(value),
        (Some(other), _) => {
            Err(format!("{path} is of kind {other:?}, not a KubeletConfiguration: it is not read"))
        }
        (None, true) => Err(format!("{path} has no kind, so it is not a KubeletConfiguration")),
        (None, false) => Err(format!("{path} is not a map of settings")),
    }
}

/// Merges a drop-in file into a configuration: a JSON merge patch (RFC 7386).
pub(super) fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    let Value::Object(target) = into else { return };
    for (key, value) in patch {
        match value {
            Value::Null => {
                target.remove(&key);
            }
            value => merge(target.entry(key).or_insert(Value::Null), value),
        }
    }
}
