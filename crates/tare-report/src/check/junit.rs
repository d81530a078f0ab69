//! A gate as JUnit XML, which GitHub's actions, GitLab and Jenkins read: a test case per cost. One
//! beyond its budget is a failure, an undecided one is skipped.

use tare_stats::law::BudgetVerdict;

use super::text::{sentence, summary};
use super::{Check, CheckedCost};
use crate::html::svg::escape;

/// The gate as XML. Lines end in LF.
pub fn junit(check: &Check) -> String {
    let failures = check.count(|verdict| verdict == BudgetVerdict::Beyond);
    let skipped = check.count(BudgetVerdict::is_undecided);
    let counts = format!("tests=\"{}\" failures=\"{failures}\" errors=\"0\"", check.costs.len());
    let name = xml(&format!("tare check {}", check.study));
    let mut out = vec![
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>".to_string(),
        format!("<testsuites {counts}>"),
        format!("  <testsuite name=\"{name}\" {counts} skipped=\"{skipped}\">"),
    ];
    for cost in &check.costs {
        out.extend(case(check, cost));
    }
    out.push(format!("    <system-out>{}</system-out>", xml(&summary(check))));
    out.extend(["  </testsuite>".to_string(), "</testsuites>".to_string()]);
    out.join("\n") + "\n"
}

fn case(check: &Check, cost: &CheckedCost) -> Vec<String> {
    let class = xml(&format!("{}.{}", check.study, cost.workload));
    let name = xml(&format!("{}: {}", cost.environment, cost.limit_text()));
    let open = format!("    <testcase classname=\"{class}\" name=\"{name}\"");
    let message = xml(&sentence(cost));
    let inner = match cost.verdict {
        BudgetVerdict::Within => return vec![format!("{open}/>")],
        BudgetVerdict::Beyond => {
            format!("      <failure type=\"budget\" message=\"{message}\"/>")
        }
        _ => {
            let detail = xml(&cost.detail().unwrap_or_default());
            format!("      <skipped message=\"{message}: {detail}\"/>")
        }
    };
    vec![format!("{open}>"), inner, "    </testcase>".to_string()]
}

/// Text for an element or an attribute, without the characters that XML forbids.
fn xml(text: &str) -> String {
    escape(&text.replace(['\u{fffe}', '\u{ffff}'], "\u{fffd}"))
}
