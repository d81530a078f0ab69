//! Texts about the kubelet of a host: advice in a plan, and whether it is in force.

use tare_report::terminal::{Style, paragraph, rows_apart};
use tare_tune::plan::{Finding, KubeletAdvice};

use super::remarks::{below, explained, noted};

/// Returns the section of a plan: findings with reasons, the fragment to merge, and the steps.
pub(super) fn advised(advice: &KubeletAdvice, style: Style) -> String {
    let mut text = String::from("\n");
    let head = ["Advice: kubelet", "now", "wanted"];
    let (right, wrong): (Vec<&Finding>, Vec<&Finding>) =
        advice.findings.iter().partition(|finding| finding.in_force);
    let rows: Vec<Vec<String>> = wrong
        .iter()
        .map(|finding| vec![finding.setting.clone(), finding.now.clone(), finding.wanted.clone()])
        .collect();
    let drawn = rows_apart(&head, &rows, style);
    text += &drawn.head;
    for (row, finding) in drawn.rows.iter().zip(&wrong) {
        text += row;
        text += &explained("why", &finding.why, style);
        if let Some(condition) = &finding.condition {
            text += &explained("only", condition, style);
            let lines: Vec<String> = finding.fragment.lines().map(str::to_string).collect();
            text += &below("set", &lines);
        }
        text += &explained("from", &finding.source, style);
    }
    if !right.is_empty() {
        let names: Vec<&str> = right.iter().map(|finding| finding.setting.as_str()).collect();
        text += &sentence(&format!("in force: {}", names.join(", ")), style);
    }
    if !advice.fragment.is_empty() {
        let step = |(index, step): (usize, &String)| {
            paragraph(&format!("{}. {step}", index + 1), "   ", style.width).join("\n") + "\n"
        };
        text += "\nFragment of the KubeletConfiguration:\n";
        text += &advice.fragment.lines().map(|line| format!("    {line}\n")).collect::<String>();
        text += "\nIn this order:\n";
        text += &advice.steps.iter().enumerate().map(step).collect::<String>();
    }
    for note in &advice.notes {
        text += &noted(note, style);
    }
    text += &sentence(
        &format!("{}: Tare reads its settings and never changes them", who(advice)),
        style,
    );
    text
}

/// Returns the line of `tare tune verify`: is the advice in force?
pub(super) fn in_force(advice: &KubeletAdvice, style: Style) -> String {
    let missing: Vec<String> = advice
        .missing()
        .map(|finding| format!("{} is {}, not {}", finding.setting, finding.now, finding.wanted))
        .collect();
    let all = advice.findings.iter().filter(|finding| finding.condition.is_none()).count();
    let mut text = match (missing.is_empty(), all) {
        (true, 0) => String::new(),
        (true, all) => sentence(&format!("{}: all {all} settings in force", who(advice)), style),
        (false, all) => sentence(
            &format!(
                "{}: {} of {all} settings in force: {}; tare tune plan says what to do",
                who(advice),
                all - missing.len(),
                missing.join(", ")
            ),
            style,
        ),
    };
    for note in &advice.notes {
        text += &noted(note, style);
    }
    text
}

fn who(advice: &KubeletAdvice) -> String {
    let mut of = vec![format!("process {}", advice.process)];
    of.extend(advice.files.iter().cloned());
    let version = advice.version.as_deref().map(|v| format!(" {v}")).unwrap_or_default();
    format!("kubelet{version} ({})", of.join(", "))
}

fn sentence(text: &str, style: Style) -> String {
    paragraph(text, "  ", style.width).join("\n") + "\n"
}
