//! A history as JSON. Schema: `docs/reference/record-json.md`.

use serde_json::json;

use super::{History, METHOD};

/// `schema_version` of the JSON of a history.
const SCHEMA_VERSION: u32 = 1;

/// The history as JSON.
pub fn json(history: &History) -> String {
    let found: Vec<_> = history
        .groups
        .iter()
        .map(
            |group| json!({ "study": group.study, "host": group.host, "found": group.sentences() }),
        )
        .collect();
    let document = json!({
        "schema": "tare-history",
        "schema_version": SCHEMA_VERSION,
        "found": found,
        "groups": history.groups,
        "unreadable": history.unreadable,
        "copies": history.copies,
        "method": METHOD,
    });
    format!("{document:#}")
}
