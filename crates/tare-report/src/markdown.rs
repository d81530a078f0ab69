//! A record in GitHub-flavoured Markdown, for a pull request: the headline, the findings, a table
//! of costs and the A/A control for each workload, the doubts and the conditions.
//!
//! Words and rounding are those of the terminal ([`crate::terminal`]). Text from a record is
//! escaped, so that it becomes neither markup nor a mention of a user.

use tare_lab::ablation::Plan;
use tare_lab::analysis::claims::verdict;
use tare_lab::analysis::{Analysis, Cost, Finding};
use tare_lab::record::Record;
use tare_lab::stacks::StackSlice;
use tare_lab::study::WorkloadSpec;
use tare_stats::law::Verdict;

use crate::axes::axes;
use crate::doubts::DoubtGroups;
use crate::escape::markdown as escape;
use crate::explain::{self, ExplanationText};
use crate::figures::{CostFormat, cost, latency, left_out, micros, rate, shorten, with_interval};
use crate::findings;
use crate::headline::{Metric, headline, noise};
use crate::objective;
use crate::prove::{self, Proof};
use crate::relations;
use crate::run_conditions::{run_line, workload_line};
use crate::seconds;
use crate::tails;

/// Characters of a name in a table. The headline has the whole name.
const NAME: usize = 40;

/// Facts of the host that every figure depends on, and the word before each.
const HOST: [(&str, &str, &str); 2] = [("cpu", "model", ""), ("kernel", "release", "kernel ")];

const HEAD: [&str; 8] = [
    "environment",
    "server CPU, µs/op [95 %]",
    "CPU cost [95 %]",
    "throughput, op/s [95 %]",
    "throughput lost [95 %]",
    "p99 at the rate [95 %]",
    "over the baseline's [95 %]",
    "doubts",
];

/// The report. Lines end in LF.
pub fn render(record: &Record, analysis: &Analysis, stacks: &[StackSlice]) -> String {
    let marks = DoubtGroups::of(record, analysis);
    let title = format!("{}: {}", record.study.name, record.study.title);
    let mut blocks = vec![
        format!("### {}", escape(&title)),
        format!("**{}**", escape(&headline(record, analysis))),
    ];
    let statements = findings::statements(record, analysis, stacks);
    if let Some(items) = findings::markdown(&statements, record.study.workloads.len() > 1) {
        blocks.extend(["Findings:".to_string(), items]);
    }
    for workload in &record.study.workloads {
        let findings: Vec<&Finding> =
            analysis.findings.iter().filter(|f| f.workload == workload.name).collect();
        if !findings.is_empty() {
            blocks.push(escape(&workload_line(record, workload)) + ".");
            blocks.push(table(analysis, &findings, &marks));
            blocks.push(control_line(analysis, workload, &findings));
            if let Some((caption, rows)) = objective::table(record, analysis, &workload.name) {
                blocks.push(caption);
                blocks.push(plain_table(&objective::HEAD, &rows));
            }
            for table in seconds::tables(record, &workload.name) {
                blocks.push(table.caption.to_string());
                blocks.push(plain_table(table.head, &table.rows));
            }
            blocks.extend(instances(record, analysis, &workload.name));
        }
    }
    for axis in axes(&record.study) {
        if let Some(table) = crate::rates::table(&axis, record, analysis) {
            blocks.push(escape(&table.caption));
            blocks.push(plain_table(&crate::rates::HEAD, &table.rows));
        }
    }
    blocks.extend(explanation(record));
    if let Some(proof) = Proof::of(record, analysis) {
        blocks.extend(host_tuning(&proof));
    }
    let relations = relations::rows(record);
    if !relations.is_empty() {
        let summary = relations::summary(&relations);
        blocks.push(format!("Published relations and ours: {summary}."));
        let rows: Vec<Vec<String>> = relations.iter().map(relations::Row::cells).collect();
        blocks.push(plain_table(&relations::HEAD, &rows));
    }
    let left_out = left_out(record).into_iter();
    let left_out =
        left_out.map(|(name, reason)| format!("- {}: {}", escape(&name), escape(&reason)));
    list(&mut blocks, "Left out:", left_out.collect());
    let doubts = marks.0.iter().map(|mark| {
        let text = escape(&format!("{}. ", mark.brief().join("; ")));
        // The advice is Tare's own, with code spans in it.
        format!("{}. {text}{}", mark.number, mark.short_advice)
    });
    list(&mut blocks, "Doubts:", doubts.collect());
    blocks.push(format!("Conditions: {}.", conditions_line(record, analysis)));
    blocks.join("\n\n") + "\n"
}

/// The gains of host tuning: the caption, the table, and the remaining costs.
fn host_tuning(proof: &Proof) -> Vec<String> {
    let mut blocks = vec!["Host tuning:".to_string(), escape(&prove::caption(proof))];
    if !proof.gains.is_empty() {
        let (head, rows) = prove::table(proof);
        blocks.push(plain_table(&head, &rows));
    }
    blocks.extend(prove::sentences(proof).iter().map(|sentence| escape(sentence)));
    blocks
}

/// The tables of instances under one workload.
fn instances(record: &Record, analysis: &Analysis, workload: &str) -> Vec<String> {
    let mut tables = crate::instances::tables(record, analysis);
    tables.retain(|one| one.workload == workload);
    let mut blocks = Vec::new();
    for one in &tables {
        if !one.instances.is_empty() {
            blocks.push(crate::instances::CAPTION.to_string());
            blocks.push(plain_table(&crate::instances::HEAD, &one.instance_rows()));
        }
        for rows in one.scaling_rows() {
            blocks.push(crate::instances::SCALING_CAPTION.to_string());
            blocks.push(plain_table(&crate::instances::SCALING_HEAD, &rows));
        }
        if !one.same_numbers.is_empty() {
            blocks.push(crate::instances::SAME_CAPTION.to_string());
            blocks.push(plain_table(&crate::instances::SAME_HEAD, &one.same_rows(analysis)));
        }
    }
    blocks
}

/// The cost by layer, for records of `tare explain`: shares, their sum, interactions.
fn explanation(record: &Record) -> Vec<String> {
    let Some(plan) = Plan::of_record(record) else { return Vec::new() };
    let mut blocks = vec![format!("**{}**", escape(&explain::question(&plan)))];
    blocks.push(escape(&explain::method(record, &plan)));
    for workload in &record.study.workloads {
        let Some(found) = tare_lab::ablation::explain(record, &plan, &workload.name) else {
            blocks.push(escape(&explain::nothing_yet(&workload.name)));
            continue;
        };
        let text = ExplanationText::new(record, &plan, &found);
        blocks.push(format!("{}. {}", escape(&text.title), escape(&text.headline)));
        let head: Vec<&str> = text.head.iter().map(String::as_str).collect();
        blocks.push(plain_table(&head, &text.rows));
        blocks.extend(text.sums.iter().chain(&text.notes).map(|text| escape(text)));
    }
    blocks
}

/// A table of text, aligned to the left.
fn plain_table(head: &[&str], rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| row.iter().map(|text| escape(text)).collect();
    let head: Vec<String> = head.iter().map(|text| escape(text)).collect();
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    table_of(&head, &rows.iter().map(cells).collect::<Vec<_>>())
}

/// A table of escaped cells, aligned to the left.
pub(crate) fn table_of(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut lines = vec![format!("| {} |", head.join(" | "))];
    lines.push(line(&vec![":--".to_string(); head.len()]));
    lines.extend(rows.iter().map(|row| line(row)));
    lines.join("\n")
}

fn list(blocks: &mut Vec<String>, title: &str, items: Vec<String>) {
    if !items.is_empty() {
        blocks.push(title.to_string());
        blocks.push(items.join("\n"));
    }
}

fn table(analysis: &Analysis, findings: &[&Finding], marks: &DoubtGroups) -> String {
    let mut lines = vec![line(&HEAD.map(str::to_string))];
    let rules = HEAD.map(|head| match head {
        "environment" | "doubts" => ":--".to_string(),
        _ => "--:".to_string(),
    });
    lines.push(line(&rules));
    lines.extend(findings.iter().map(|finding| line(&row(analysis, finding, marks))));
    lines.join("\n")
}

fn line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn row(analysis: &Analysis, finding: &Finding, marks: &DoubtGroups) -> [String; 8] {
    let none = || "-".to_string();
    let own_cost = |metric: Metric| match metric.cost(finding) {
        Some(figure) => {
            let verdict = verdict(analysis, finding, metric);
            let text = cost(figure, verdict, CostFormat::Short);
            if verdict.is_some_and(Verdict::is_claim) { format!("**{text}**") } else { text }
        }
        None if finding.baseline => "baseline".to_string(),
        None => none(),
    };
    let name = escape(&shorten(&finding.environment, NAME));
    let numbers = marks.numbers(&finding.environment, &finding.workload);
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    [
        if finding.control { format!("{name} (A/A)") } else { name },
        finding.server_cpu_us.as_ref().map_or_else(none, |us| with_interval(us, micros)),
        own_cost(Metric::ServerCpu),
        finding.throughput_per_s.as_ref().map_or_else(none, |per_s| with_interval(per_s, rate)),
        own_cost(Metric::Throughput),
        p99(finding),
        p99_over_baseline(analysis, finding),
        numbers.join(", "),
    ]
}

fn p99(finding: &Finding) -> String {
    let Some(response) = &finding.response else { return "-".to_string() };
    response.percentile(99.0).map_or_else(|| latency(response.p99_ns), tails::percentile_text)
}

fn p99_over_baseline(analysis: &Analysis, finding: &Finding) -> String {
    match tails::percentile(finding, 99.0) {
        None => "-".to_string(),
        Some(_) if finding.baseline => "baseline".to_string(),
        Some(_) => {
            let text = tails::ratio(analysis, finding, 99.0);
            match tails::claimed(analysis, finding, 99.0) {
                Some(_) => format!("**{text}**"),
                None => text,
            }
        }
    }
}

/// The cost of the A/A control, and the claims that it allows.
fn control_line(analysis: &Analysis, workload: &WorkloadSpec, findings: &[&Finding]) -> String {
    let Some(control) = findings.iter().find(|finding| finding.control) else {
        return "No A/A control: the noise is unknown.".to_string();
    };
    let of = |metric: Metric, words: &str| {
        let figure: &Cost = metric.cost(control)?;
        Some(format!("{words} {}", cost(figure, None, CostFormat::Full)))
    };
    let costs: Vec<String> =
        [of(Metric::ServerCpu, "CPU cost"), of(Metric::Throughput, "throughput lost")]
            .into_iter()
            .flatten()
            .collect();
    let known = Metric::ALL.iter().any(|metric| noise(analysis, &workload.name, *metric).is_some());
    let claim =
        if known { "Costs in bold are beyond that." } else { "Too few rounds to show the noise." };
    let costs = if costs.is_empty() { "not known yet".to_string() } else { costs.join(", ") };
    format!("A/A control, a second copy of the baseline: {costs}. {claim}")
}

fn conditions_line(record: &Record, analysis: &Analysis) -> String {
    let host = HOST.iter().filter_map(|(section, key, word)| {
        let fact = record.host.iter().find(|f| f.section == *section && f.key == *key)?;
        Some(format!("; {word}{}", fact.value))
    });
    escape(&(run_line(record, analysis) + &host.collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use crate::headline::claimed;

    /// Counts the cells of a table line. GFM splits it at each pipe without a backslash before it.
    fn cells(line: &str) -> usize {
        let mut escaped = false;
        let pipes = line.chars().filter(|c| {
            let pipe = *c == '|' && !escaped;
            escaped = *c == '\\' && !escaped;
            pipe
        });
        pipes.count() - 1
    }

    #[test]
    fn rows_have_the_cells_of_the_head_for_any_name() {
        let (mut record, mut analysis) = fixture::hostile();
        for (index, nasty) in ["a|b\\|c", "`x` | `y", "\n| 1 | 2 |\n\n# h"].iter().enumerate() {
            let old =
                std::mem::replace(&mut analysis.findings[index].environment, nasty.to_string());
            for environment in &mut record.environments {
                if environment.spec.name == old {
                    environment.spec.name = nasty.to_string();
                }
            }
        }
        let text = render(&record, &analysis, &[]);
        let rows: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        let (costs, relations) = rows.split_at(analysis.findings.len() + 2);
        assert!(costs.iter().all(|row| cells(row) == HEAD.len()), "{text}");
        assert_eq!(relations.len(), record.study.published.len() + 2, "{text}");
        assert!(relations.iter().all(|row| cells(row) == relations::HEAD.len()), "{text}");
    }

    #[test]
    fn markup_in_names_is_escaped() {
        let (record, analysis) = fixture::hostile();
        let text = render(&record, &analysis, &[]);
        for part in ["<", "\u{202e}", "\u{1b}", "\n# "] {
            assert!(!text.contains(part), "{part:?} in {text}");
        }
    }

    #[test]
    fn only_claimed_costs_are_bold() {
        let (record, mut analysis) = fixture::quick();
        let bold = |analysis: &Analysis| {
            let text = render(&record, analysis, &[]);
            text.lines().filter(|l| l.starts_with('|')).map(|l| l.matches("**").count() / 2).sum()
        };
        let claims = |analysis: &Analysis| -> usize {
            let of = |f| Metric::ALL.iter().filter(|m| claimed(analysis, f, **m)).count();
            let tails = |f| usize::from(tails::claimed(analysis, f, 99.0).is_some());
            analysis.findings.iter().map(|f| of(f) + tails(f)).sum()
        };
        assert_eq!(claims(&analysis), bold(&analysis));
        for finding in analysis.findings.iter_mut().filter(|f| f.control) {
            for cost in [&mut finding.server_cpu_cost, &mut finding.throughput_cost] {
                cost.as_mut().unwrap().percent.low = -99.0;
            }
            finding.response = None;
        }
        let none: usize = bold(&analysis);
        assert_eq!(none, 0);
    }

    #[test]
    fn missing_control_is_reported() {
        let (record, mut analysis) = fixture::quick();
        analysis.findings.retain(|f| !f.control);
        assert!(render(&record, &analysis, &[]).contains("No A/A control: the noise is unknown."));
    }
}
