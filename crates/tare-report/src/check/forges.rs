//! A gate as annotations: workflow commands of GitHub, and GitLab's code quality report.

use serde_json::json;
use sha2::{Digest, Sha256};
use tare_stats::law::BudgetVerdict;

use super::text::statement;
use super::{Check, CheckedCost};
use crate::figures::clean;

/// Workflow commands, one line each: an error for a cost beyond its budget, a warning for an
/// undecided one
/// (<https://docs.github.com/actions/reference/workflow-commands-for-github-actions>). Empty if all
/// are within.
pub fn github(check: &Check) -> String {
    let line = |cost: &CheckedCost| {
        let (command, title) = match cost.verdict {
            BudgetVerdict::Within => return None,
            BudgetVerdict::Beyond => ("error", "Cost beyond its budget"),
            _ => ("warning", "Cost undecided"),
        };
        let text = escape_data(&statement(cost));
        Some(format!("::{command} title={title}::{text}\n"))
    };
    check.costs.iter().filter_map(line).collect()
}

/// The message of a command must not end its line or start another escape.
fn escape_data(text: &str) -> String {
    clean(text).replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// A report of code quality (<https://docs.gitlab.com/ci/testing/code_quality/>): an entry per cost
/// that is beyond its budget (major) or undecided (minor), at the first line of `path`. The
/// fingerprint stays the same from run to run, so that GitLab tells new entries from old ones.
pub fn code_quality(check: &Check, path: &str) -> String {
    let entry = |cost: &CheckedCost| {
        let severity = match cost.verdict {
            BudgetVerdict::Within => return None,
            BudgetVerdict::Beyond => "major",
            _ => "minor",
        };
        let limit = cost.limit_text();
        let key = [&check.study, &cost.workload, &cost.environment, &limit].map(String::as_str);
        let digest = Sha256::digest(key.join("\u{0}"));
        let fingerprint: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Some(json!({
            "description": clean(&statement(cost)),
            "check_name": format!("tare-check-{}", cost.figure.name()),
            "fingerprint": fingerprint,
            "severity": severity,
            "location": { "path": path, "lines": { "begin": 1 } },
        }))
    };
    let entries: Vec<_> = check.costs.iter().filter_map(entry).collect();
    format!("{:#}\n", json!(entries))
}
