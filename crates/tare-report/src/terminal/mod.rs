//! A record as terminal text: the table of costs and latencies, a chart of the intervals, the
//! findings, the arithmetic and the doubts.
//!
//! Layout: one table if it fits the width; else costs and latencies in two tables; then in fewer
//! words, without the intervals of the absolute figures, and without the client's CPU. Text from a
//! record loses its control characters. Escape sequences appear only with colour.

mod bars;
mod tails;

use comfy_table::{Cell, CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};
use tare_lab::ablation::Plan;
use tare_lab::analysis::claims::verdict;
use tare_lab::analysis::{Analysis, Finding, Interval};
use tare_lab::record::Record;
use tare_lab::stacks::StackSlice;
use tare_stats::law::Verdict;

use crate::axes::axes;
use crate::bandwidth;
use crate::doubts::DoubtGroups;
use crate::figures::{
    CostFormat, cost, latency, left_out, micros, rate, share, shorten, with_interval,
};
use crate::findings;
use crate::headline::{Metric, headline};
use crate::layout::{Paint, columns, numbered, pad, shorten_to};
use crate::network_path;
use crate::own_view;
use crate::polling;
use crate::prove::Proof;
use crate::relations;
use crate::run_conditions::{run_line, workload_line};
use crate::seconds;
use bars::Bars;

pub use crate::layout::{RowsApart, Style, grid, paragraph, rows_apart};

/// The final report. Findings about code need the `stacks` of the record; they may be empty.
pub fn render(record: &Record, analysis: &Analysis, stacks: &[StackSlice], style: Style) -> String {
    let paint = Paint(style);
    let marks = DoubtGroups::of(record, analysis);
    let mut out = Vec::new();
    opening(&mut out, record, analysis, paint);
    for workload in &record.study.workloads {
        let findings: Vec<&Finding> =
            analysis.findings.iter().filter(|f| f.workload == workload.name).collect();
        if findings.is_empty() {
            continue;
        }
        out.push(String::new());
        for line in paragraph(&paint.plain(&workload_line(record, workload)), "", paint.0.width) {
            out.push(paint.bold(&line));
        }
        tables(&mut out, analysis, &findings, &marks, paint);
        if let Some(line) = bandwidth::line(record, &findings) {
            out.extend(paragraph(&paint.plain(&line), "", paint.0.width));
        }
        if let Some(line) = own_view::line(record, &workload.name) {
            out.extend(paragraph(&paint.plain(&line), "", paint.0.width));
        }
        out.extend(tails::lines(analysis, &findings, paint));
        if let Some((caption, rows)) = crate::objective::table(record, analysis, &workload.name) {
            out.push(String::new());
            out.extend(paragraph(&paint.plain(&caption), "", paint.0.width));
            out.extend(grid(&crate::objective::HEAD, &rows, paint.0).lines().map(String::from));
        }
        for table in seconds::tables(record, &workload.name) {
            out.push(String::new());
            out.extend(paragraph(&paint.plain(table.caption), "", paint.0.width));
            out.extend(grid(table.head, &table.rows, paint.0).lines().map(String::from));
        }
        instances(&mut out, record, analysis, &workload.name, paint);
        for metric in Metric::ALL {
            if let Some(bars) = Bars::new(analysis, &findings, metric, paint) {
                out.push(String::new());
                out.extend(bars.draw());
            }
        }
    }
    rates(&mut out, record, analysis, paint);
    if let Some(proof) = Proof::of(record, analysis) {
        out.push(String::new());
        out.push(paint.bold("Host tuning"));
        out.extend(crate::prove::lines(&proof, style));
    }
    if let Some(plan) = Plan::of_record(record) {
        out.push(String::new());
        out.extend(crate::explain::section(record, &plan, paint));
    }
    let statements = findings::statements(record, analysis, stacks);
    out.extend(findings::terminal(&statements, record.study.workloads.len() > 1, paint));
    published(&mut out, record, paint);
    let left_out = left_out(record).into_iter();
    let left_out = left_out.map(|(name, reason)| (String::new(), format!("{name}: {reason}")));
    section(&mut out, paint, "Left out", left_out);
    section(
        &mut out,
        paint,
        "Arithmetic",
        analysis.arithmetic.iter().map(|line| (String::new(), line.clone())),
    );
    let loaders = crate::loaders::lines(record).into_iter();
    let loaders = loaders.map(|(host, line)| (String::new(), format!("{host}: {line}")));
    section(&mut out, paint, "Loaders", loaders);
    doubts(&mut out, &marks, paint);
    if !analysis.findings.is_empty() {
        section(&mut out, paint, "How to read this", reading(record, analysis).into_iter());
    }
    let mut text = out.join("\n");
    text.push('\n');
    text
}

/// One compact line per environment, for a running study.
pub fn costs_so_far(analysis: &Analysis, style: Style) -> Vec<String> {
    let paint = Paint(style);
    let several = analysis.findings.iter().any(|f| f.workload != analysis.findings[0].workload);
    let name = |f: &Finding| {
        let name = shorten(&paint.plain(&f.environment), 28);
        if several { format!("{name} ({})", shorten(&paint.plain(&f.workload), 12)) } else { name }
    };
    let shown: Vec<&Finding> = analysis.findings.iter().filter(|f| !f.baseline).collect();
    let widest = shown.iter().map(|f| columns(&name(f))).max().unwrap_or(0);
    let mut lines = Vec::new();
    for finding in shown {
        let one = |label: &str, metric: Metric| {
            let (of, verdict) = (metric.cost(finding), verdict(analysis, finding, metric));
            let figure =
                of.map_or_else(|| "-".to_string(), |of| cost(of, verdict, CostFormat::Short));
            let padded = pad(&paint.plain(&figure), 26);
            let claimed = verdict.is_some_and(Verdict::is_claim);
            format!("{label} {}", paint.cost(&padded, of, claimed))
        };
        let cpu = one("CPU", Metric::ServerCpu);
        let throughput = one("throughput", Metric::Throughput);
        let tag = if finding.control { paint.dim("A/A") } else { String::new() };
        let line = format!("{}  {cpu}  {throughput}  {tag}", pad(&name(finding), widest));
        lines.push(line.trim_end().to_string());
    }
    lines
}

/// The response times of workloads with several rates.
fn rates(out: &mut Vec<String>, record: &Record, analysis: &Analysis, paint: Paint) {
    for axis in axes(&record.study) {
        let Some(table) = crate::rates::table(&axis, record, analysis) else { continue };
        out.push(String::new());
        out.extend(paragraph(&paint.plain(&table.caption), "", paint.0.width));
        out.extend(grid(&crate::rates::HEAD, &table.rows, paint.0).lines().map(String::from));
    }
}

/// The tables of instances under one workload.
fn instances(
    out: &mut Vec<String>,
    record: &Record,
    analysis: &Analysis,
    workload: &str,
    paint: Paint,
) {
    let tables = crate::instances::tables(record, analysis);
    let Some(tables) = tables.iter().find(|one| one.workload == workload) else { return };
    let mut table = |caption: &str, head: &[&str], rows: &[Vec<String>]| {
        out.push(String::new());
        out.extend(paragraph(&paint.plain(caption), "", paint.0.width));
        out.extend(grid(head, rows, paint.0).lines().map(String::from));
    };
    if !tables.instances.is_empty() {
        table(crate::instances::CAPTION, &crate::instances::HEAD, &tables.instance_rows());
    }
    for rows in tables.scaling_rows() {
        table(crate::instances::SCALING_CAPTION, &crate::instances::SCALING_HEAD, &rows);
    }
    if !tables.same_numbers.is_empty() {
        let rows = tables.same_rows(analysis);
        table(crate::instances::SAME_CAPTION, &crate::instances::SAME_HEAD, &rows);
    }
}

fn opening(out: &mut Vec<String>, record: &Record, analysis: &Analysis, paint: Paint) {
    let title = format!("{}: {}", record.study.name, record.study.title);
    out.extend(paragraph(&paint.plain(&title), "", paint.0.width));
    for line in paragraph(&paint.plain(&run_line(record, analysis)), "", paint.0.width) {
        out.push(paint.dim(&line));
    }
    for path in network_path::lines(record) {
        for line in paragraph(&paint.plain(&path), "", paint.0.width) {
            out.push(paint.dim(&line));
        }
    }
    out.push(String::new());
    for line in paragraph(&paint.plain(&headline(record, analysis)), "", paint.0.width) {
        out.push(paint.bold(&line));
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Column {
    Environment,
    ServerCpu,
    ServerCpuCost,
    Throughput,
    ThroughputCost,
    Mean,
    P50,
    P95,
    P99,
    P999,
    Client,
    Doubts,
}

use Column::{Client, Doubts, Environment, Mean, P50, P95, P99, P999};
const COSTS: [Column; 7] = [
    Environment,
    Column::ServerCpu,
    Column::ServerCpuCost,
    Column::Throughput,
    Column::ThroughputCost,
    Client,
    Doubts,
];
const COSTS_ALONE: [Column; 5] = [
    Environment,
    Column::ServerCpu,
    Column::ServerCpuCost,
    Column::Throughput,
    Column::ThroughputCost,
];
const CLIENT_AND_DOUBTS: [Column; 3] = [Environment, Client, Doubts];
const LATENCIES: [Column; 6] = [Environment, Mean, P50, P95, P99, P999];
const LATENCIES_AND_DOUBTS: [Column; 7] = [Environment, Mean, P50, P95, P99, P999, Doubts];
const ALL: [Column; 12] = [
    Environment,
    Column::ServerCpu,
    Column::ServerCpuCost,
    Column::Throughput,
    Column::ThroughputCost,
    Mean,
    P50,
    P95,
    P99,
    P999,
    Client,
    Doubts,
];

/// The form of a table's cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Detail {
    /// Form of a cost that was not found.
    words: CostFormat,
    /// Whether absolute figures have their intervals, and columns a wider gap.
    intervals: bool,
}

const LONG: Detail = Detail { words: CostFormat::Full, intervals: true };
const MIDDLE: Detail = Detail { words: CostFormat::Short, intervals: true };
const SHORT: Detail = Detail { words: CostFormat::Short, intervals: false };

fn tables(
    out: &mut Vec<String>,
    analysis: &Analysis,
    findings: &[&Finding],
    marks: &DoubtGroups,
    paint: Paint,
) {
    let any_latency = findings.iter().any(|f| f.response.is_some());
    let (latencies, and_doubts): (&[Column], &[Column]) =
        if any_latency { (&LATENCIES, &LATENCIES_AND_DOUBTS) } else { (&[], &CLIENT_AND_DOUBTS) };
    let at_rate: [(&[&[Column]], Detail); 3] =
        [(&[and_doubts], LONG), (&[and_doubts], MIDDLE), (&[and_doubts], SHORT)];
    let with_costs: [(&[&[Column]], Detail); 6] = [
        (&[&ALL], LONG),
        (&[&ALL], MIDDLE),
        (&[&COSTS, latencies], LONG),
        (&[&COSTS, latencies], MIDDLE),
        (&[&COSTS, latencies], SHORT),
        (&[&COSTS_ALONE, and_doubts], SHORT),
    ];
    let candidates = if is_at_rate_alone(findings) { &at_rate[..] } else { &with_costs };
    let fits = |(tables, detail): &(&[&[Column]], Detail)| {
        let width = |columns: &&[Column]| {
            natural_width(&table(columns, analysis, findings, marks, *detail, paint))
        };
        tables.iter().all(|columns| width(columns) <= usize::from(paint.0.width))
    };
    let last = candidates[candidates.len() - 1];
    let (chosen, detail) = candidates.iter().copied().find(fits).unwrap_or(last);
    for columns in chosen.iter().filter(|columns| !columns.is_empty()) {
        if columns.contains(&P50) && !columns.contains(&Column::ServerCpu) {
            out.push(String::new());
            out.push("Response time at the fixed rate, from the intended start:".to_string());
        }
        let mut lines = table(columns, analysis, findings, marks, detail, paint);
        if natural_width(&lines) > usize::from(paint.0.width) {
            lines.set_content_arrangement(ContentArrangement::Dynamic).set_width(paint.0.width);
        }
        for line in lines.lines() {
            out.push(coloured(line.trim_end(), analysis, findings, detail, paint));
        }
    }
}

/// Whether there is no figure of a closed loop, but one of a fixed rate.
fn is_at_rate_alone(findings: &[&Finding]) -> bool {
    let at_capacity =
        |one: &&Finding| one.throughput_per_s.is_some() || one.server_cpu_us.is_some();
    !findings.iter().any(at_capacity) && findings.iter().any(|one| one.response.is_some())
}

fn natural_width(table: &Table) -> usize {
    let padding = table.column_iter().map(|column| usize::from(column.padding_width()));
    let content = table.column_max_content_widths();
    let gaps = content.len().saturating_sub(1);
    content.iter().map(|width| usize::from(*width)).sum::<usize>() + padding.sum::<usize>() + gaps
}

fn table(
    columns: &[Column],
    analysis: &Analysis,
    findings: &[&Finding],
    marks: &DoubtGroups,
    detail: Detail,
    paint: Paint,
) -> Table {
    let rule = LineStyle::none().fill(paint.glyph('─')).junction(paint.glyph('─'));
    let heads: Vec<[&str; 2]> = columns.iter().map(|column| head(*column, detail)).collect();
    let tall = heads.iter().any(|[above, _]| !above.is_empty());
    let mut table = Table::new();
    table
        .load_style(TableStyle::new().top_border(rule).header_separator(rule).bottom_border(rule))
        .set_header(columns.iter().zip(heads).map(|(column, [above, below])| {
            let (above, below) = (paint.plain(above), paint.plain(below));
            let text = if tall { format!("{above}\n{below}") } else { below };
            Cell::new(text).set_alignment(alignment(*column))
        }));
    for finding in findings {
        table.add_row(columns.iter().map(|column| {
            Cell::new(paint.plain(&cell(*column, analysis, finding, marks, detail)))
                .set_alignment(alignment(*column))
        }));
    }
    if !detail.intervals {
        table.column_iter_mut().for_each(|column| {
            column.set_padding((1, 0));
        });
    }
    table
}

fn alignment(column: Column) -> CellAlignment {
    match column {
        Environment | Doubts => CellAlignment::Left,
        _ => CellAlignment::Right,
    }
}

/// The two lines of a column's heading.
fn head(column: Column, detail: Detail) -> [&'static str; 2] {
    match (column, detail.intervals) {
        (Environment, _) => ["", "environment"],
        (Column::ServerCpu, true) => ["server CPU", "µs/op [95 %]"],
        (Column::ServerCpu, false) => ["server", "µs/op"],
        (Column::ServerCpuCost, _) => ["CPU cost", "[95 %]"],
        (Column::Throughput, true) => ["throughput", "op/s [95 %]"],
        (Column::Throughput, false) => ["", "op/s"],
        (Column::ThroughputCost, _) => ["throughput lost", "[95 %]"],
        (Mean, _) => ["", "mean"],
        (P50, _) => ["", "p50"],
        (P95, _) => ["", "p95"],
        (P99, _) => ["", "p99"],
        (P999, _) => ["", "p99.9"],
        (Client, true) => ["client CPU", "µs/op, used"],
        (Client, false) => ["client", "used"],
        (Doubts, _) => ["", "doubts"],
    }
}

fn cell(
    column: Column,
    analysis: &Analysis,
    finding: &Finding,
    marks: &DoubtGroups,
    detail: Detail,
) -> String {
    let none = || "-".to_string();
    let own_cost = |metric: Metric| match metric.cost(finding) {
        Some(of) => cost(of, verdict(analysis, finding, metric), detail.words),
        None if finding.baseline => "baseline".to_string(),
        None => none(),
    };
    let figure = |of: Option<&Interval>, form: fn(f64) -> String| match of {
        Some(of) if detail.intervals => with_interval(of, form),
        Some(of) => form(of.value),
        None => none(),
    };
    let response = |of: fn(&tare_lab::analysis::Latency) -> u64| {
        finding.response.as_ref().map_or_else(none, |response| latency(of(response)))
    };
    match column {
        Environment => {
            let name = shorten_to(&finding.environment, if detail.intervals { 28 } else { 20 });
            if finding.control { format!("{name} (A/A)") } else { name }
        }
        Column::ServerCpu => figure(finding.server_cpu_us.as_ref(), micros),
        Column::ServerCpuCost => own_cost(Metric::ServerCpu),
        Column::Throughput => figure(finding.throughput_per_s.as_ref(), rate),
        Column::ThroughputCost => own_cost(Metric::Throughput),
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a mean of ns")]
        Mean => finding.response.as_ref().map_or_else(none, |r| latency(r.mean_ns as u64)),
        P50 => response(|r| r.p50_ns),
        P95 => response(|r| r.p95_ns),
        P99 => response(|r| r.p99_ns),
        P999 => response(|r| r.p999_ns),
        Client => {
            let used = finding.client_cpu_share.map_or_else(none, share);
            match finding.client_cpu_us.as_ref().filter(|_| detail.intervals) {
                Some(us) => format!("{}, {used}", micros(us.value)),
                None => used,
            }
        }
        Doubts => {
            let numbers = marks.numbers(&finding.environment, &finding.workload);
            let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
            if numbers.is_empty() { String::new() } else { format!("[{}]", numbers.join(",")) }
        }
    }
}

/// Colours a line of a table: each cost by its verdict, the control as a whole.
fn coloured(
    line: &str,
    analysis: &Analysis,
    findings: &[&Finding],
    detail: Detail,
    paint: Paint,
) -> String {
    if !paint.0.colour {
        return line.to_string();
    }
    let name = |finding: &Finding| {
        paint.plain(&cell(Environment, analysis, finding, &DoubtGroups::default(), detail))
    };
    let Some(finding) = findings.iter().find(|f| line.trim_start().starts_with(&name(f))) else {
        return line.to_string();
    };
    if finding.control {
        return paint.dim(line);
    }
    let mut line = line.to_string();
    for metric in Metric::ALL {
        let Some(of) = metric.cost(finding) else { continue };
        let verdict = verdict(analysis, finding, metric);
        let figure = paint.plain(&cost(of, verdict, detail.words));
        let painted = paint.cost(&figure, Some(of), verdict.is_some_and(Verdict::is_claim));
        line = line.replacen(&figure, &painted, 1);
    }
    line
}

fn section(
    out: &mut Vec<String>,
    paint: Paint,
    title: &str,
    items: impl Iterator<Item = (String, String)>,
) {
    for (index, (mark, item)) in items.enumerate() {
        if index == 0 {
            out.push(String::new());
            out.push(paint.bold(title));
        }
        out.extend(numbered(&mark, &paint.plain(&item), paint.0.width));
    }
}

/// The published relations: the count of each verdict, then one line per relation.
fn published(out: &mut Vec<String>, record: &Record, paint: Paint) {
    let rows = relations::rows(record);
    if rows.is_empty() {
        return;
    }
    let several = record.study.workloads.len() > 1;
    let title = format!("Published relations and ours: {}", relations::summary(&rows));
    let lines = rows.iter().map(|row| {
        let under = if several { format!(", {}", row.workload) } else { String::new() };
        let why = row.why.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        let line = format!(
            "{}{under}: published {}, here {}: {}{why}",
            row.relation, row.published, row.here, row.verdict
        );
        (String::new(), line)
    });
    section(out, paint, &title, lines);
}

fn doubts(out: &mut Vec<String>, marks: &DoubtGroups, paint: Paint) {
    for (index, mark) in marks.0.iter().enumerate() {
        if index == 0 {
            out.push(String::new());
            out.push(paint.bold("Doubts"));
        }
        let text = format!("{}. {}", mark.brief().join("; "), mark.short_advice);
        out.extend(numbered(&format!("[{}]", mark.number), &paint.plain(&text), paint.0.width));
    }
}

fn reading(record: &Record, analysis: &Analysis) -> Vec<(String, String)> {
    let mut notes = vec![
        "cost: the loss against the baseline, from ratios paired within each round, with its 95 % interval; above 0 is a loss.",
        "server CPU: CPU time of the system and of what the layer adds, per operation, at capacity.",
    ];
    if analysis.findings.iter().any(|f| f.control) {
        notes.push("A/A: a second copy of the baseline. Its cost is noise; no smaller cost is claimed (\"within noise\").");
    }
    if analysis.findings.iter().any(|f| f.client_cpu_share.is_some()) {
        notes.push("client: its CPU time per operation (if the width allows) and the used share of its CPUs, at capacity.");
    }
    notes.extend(polling::sentences(record, &analysis.findings.iter().collect::<Vec<_>>()));
    notes.into_iter().map(|note| (String::new(), note.to_string())).collect()
}

#[cfg(test)]
mod tests;
