//! The differences between the configurations of two environments, line by line.

use serde::Serialize;
use similar::{ChangeTag, TextDiff};

use crate::figures::clean;
use tare_lab::record::EnvironmentRecord;

/// A configuration against the one before it.
#[derive(Debug, Serialize)]
pub(super) struct ConfigDiff {
    from: Option<String>,
    to: String,
    lines: Vec<Line>,
    /// Lines left out at the end.
    more: usize,
}

#[derive(Debug, Serialize)]
struct Line {
    /// `add`, `remove`, `same` or `gap`.
    kind: &'static str,
    text: String,
}

/// Most lines of one diff. A seccomp profile alone has thousands.
const LINES_MAX: usize = 300;

/// Compares the configuration of each environment with that of the nearest one before it. The first
/// is in full.
pub(super) fn between(environments: &[&EnvironmentRecord]) -> Vec<ConfigDiff> {
    let mut diffs = Vec::new();
    let mut before: Option<(&str, String)> = None;
    for environment in environments {
        let Some(config) = environment.config.as_deref().map(normal) else { continue };
        let old = before.as_ref().map_or("", |(_, config)| config.as_str());
        let mut lines = lines(old, &config);
        let more = lines.len().saturating_sub(LINES_MAX);
        lines.truncate(LINES_MAX);
        diffs.push(ConfigDiff {
            from: before.as_ref().map(|(name, _)| clean(name)),
            to: clean(&environment.spec.name),
            lines,
            more,
        });
        before = Some((&environment.spec.name, config));
    }
    diffs
}

/// JSON with sorted keys and one value per line. Any other text is unchanged.
fn normal(config: &str) -> String {
    serde_json::from_str::<serde_json::Value>(config)
        .and_then(|value| serde_json::to_string_pretty(&value))
        .unwrap_or_else(|_| config.to_string())
        + "\n"
}

fn lines(old: &str, new: &str) -> Vec<Line> {
    let diff = TextDiff::from_lines(old, new);
    let mut lines = Vec::new();
    for (index, group) in diff.grouped_ops(2).iter().enumerate() {
        if index > 0 {
            lines.push(Line { kind: "gap", text: "\u{22ef}".to_string() });
        }
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let (kind, sign) = match change.tag() {
                ChangeTag::Equal => ("same", ' '),
                ChangeTag::Insert => ("add", '+'),
                ChangeTag::Delete => ("remove", '\u{2212}'),
            };
            let text = change.value().trim_end_matches('\n');
            lines.push(Line { kind, text: clean(&format!("{sign} {text}")) });
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_order_does_not_matter() {
        assert!(lines(&normal(r#"{"b":1,"a":2}"#), &normal(r#"{"a":2,"b":1}"#)).is_empty());
        let changed = lines(&normal(r#"{"a":2}"#), &normal(r#"{"a":3}"#));
        assert_eq!(changed.iter().filter(|line| line.kind == "add").count(), 1);
        assert_eq!(normal("no json"), "no json\n");
    }
}
