//! The fleet as terminal text: for each workload a table by throughput and one by CPU, the
//! arithmetic of the largest cost, and the doubts.

use tare_lab::analysis::{Analysis, Interval};
use tare_lab::record::Record;
use tare_stats::law::Verdict;

use super::{Fleet, NodesNeeded, Period, Price, nodes_needed};
use crate::doubts::DoubtGroups;
use crate::figures::{CostFormat, clean, cost, noise, rate, rounds, shorten};
use crate::headline::{Metric, headline};
use crate::layout::{Paint, Style, grid, paragraph};
use crate::run_conditions::run_line;

/// Characters of a name.
const NAME: usize = 28;

/// The report of a fleet.
pub fn render(fleet: &Fleet, record: &Record, analysis: &Analysis, style: Style) -> String {
    let paint = Paint(style);
    let marks = DoubtGroups::of(record, analysis);
    let mut out = Vec::new();
    let push_paragraph = |out: &mut Vec<String>, text: &str, indent: &str| {
        out.extend(paragraph(&paint.plain(text), indent, style.width));
    };
    push_paragraph(&mut out, &format!("{}: {}", record.study.name, opening(fleet, record)), "");
    out.extend(
        paragraph(&paint.plain(&run_line(record, analysis)), "", style.width)
            .iter()
            .map(|line| paint.dim(line)),
    );
    out.push(String::new());
    let sentence = paragraph(&paint.plain(&headline(record, analysis)), "", style.width);
    out.extend(sentence.iter().map(|line| paint.bold(line)));
    let mut arithmetic = Vec::new();
    for workload in &record.study.workloads {
        for metric in [Metric::Throughput, Metric::ServerCpu] {
            let needs = nodes_needed(fleet, analysis, &workload.name, metric);
            if needs.is_empty() {
                continue;
            }
            out.push(String::new());
            let title = format!("Workload {}, {}", clean(&workload.name), by(metric));
            out.push(paint.bold(&paint.plain(&title)));
            out.extend(table(fleet, &needs, metric, &marks, style).lines().map(str::to_string));
            let largest = needs
                .iter()
                .filter(|need| {
                    need.verdict.is_some_and(Verdict::is_claim)
                        && need.exact.value > f64::from(fleet.nodes)
                })
                .max_by(|a, b| a.exact.value.total_cmp(&b.exact.value));
            arithmetic.extend(largest.map(|need| working(fleet, need, metric)));
        }
    }
    let doubts = marks.0.iter().map(|mark| {
        format!("[{}] {}. {}", mark.number, mark.brief().join("; "), mark.short_advice)
    });
    let reading = if arithmetic.is_empty() && analysis.findings.is_empty() {
        Vec::new()
    } else {
        reading(fleet)
    };
    for (title, items) in
        [("Arithmetic", arithmetic), ("Doubts", doubts.collect()), ("How to read this", reading)]
    {
        if !items.is_empty() {
            out.push(String::new());
            out.push(paint.bold(title));
            items.iter().for_each(|item| push_paragraph(&mut out, &format!("\u{b7} {item}"), "  "));
        }
    }
    out.join("\n") + "\n"
}

fn opening(fleet: &Fleet, record: &Record) -> String {
    let nodes =
        if fleet.nodes == 1 { "1 node".to_string() } else { format!("{} nodes", fleet.nodes) };
    let does = if fleet.nodes == 1 { "does" } else { "do" };
    let baseline = clean(&record.study.baseline);
    let priced = fleet.price.as_ref().map_or_else(String::new, |price| {
        format!(
            "; a node costs {}, {} a year, the fleet {} a year",
            price_text(price),
            money(price, price.per_year()),
            money(price, price.per_year() * f64::from(fleet.nodes)),
        )
    });
    format!("what the work that {nodes} {does} in {baseline} needs elsewhere{priced}.")
}

fn by(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "by throughput: nodes / (1 \u{2212} loss)",
        Metric::ServerCpu => "by server CPU per operation: nodes \u{d7} (1 + cost)",
    }
}

fn table(
    fleet: &Fleet,
    needs: &[NodesNeeded<'_>],
    metric: Metric,
    marks: &DoubtGroups,
    style: Style,
) -> String {
    let lost = match metric {
        Metric::Throughput => "throughput lost [95 %]",
        Metric::ServerCpu => "CPU cost [95 %]",
    };
    let last = if fleet.price.is_some() { "more a year [95 %]" } else { "more nodes [95 %]" };
    let head = ["environment", lost, "exact [95 %]", "nodes [95 %]", last];
    let rows: Vec<Vec<String>> = needs.iter().map(|need| row(fleet, need, marks)).collect();
    grid(&head, &rows, style)
}

fn row(fleet: &Fleet, need: &NodesNeeded<'_>, marks: &DoubtGroups) -> Vec<String> {
    let finding = need.finding;
    let mut name = shorten(&finding.environment, NAME);
    if finding.control {
        name.push_str(" (A/A)");
    }
    let numbers = marks.numbers(&finding.environment, &finding.workload);
    if !numbers.is_empty() {
        let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
        name.push_str(&format!(" [{}]", numbers.join(",")));
    }
    let own = cost(need.cost, need.verdict, CostFormat::Short);
    let more = need.extra(fleet);
    let nodes = shifted(&more, f64::from(fleet.nodes));
    let last = match &fleet.price {
        Some(price) => difference(need, &scaled(&more, price.per_year()), rate),
        None => difference(need, &more, count),
    };
    vec![name, own, cell(need, &need.exact, exact), cell(need, &nodes, count), last]
}

/// The extra nodes or their price, or that no difference was found.
fn difference(need: &NodesNeeded<'_>, interval: &Interval, form: fn(f64) -> String) -> String {
    let plus = if interval.value > 0.0 { "+" } else { "" };
    let value = || format!("{plus}{}", signed(interval.value, form));
    if let Some(noise) = noise(need.verdict, value) {
        return noise;
    }
    let text = cell(need, interval, |value| signed(value, form));
    match (need.cost.found, interval.is_bounded()) {
        (true, true) if interval.value > 0.0 => format!("+{text}"),
        (false, true) => format!("none found ({text})"),
        _ => text,
    }
}

/// A figure with its interval, or, if no difference was found, the range that is not excluded.
fn cell(need: &NodesNeeded<'_>, interval: &Interval, form: impl Fn(f64) -> String) -> String {
    let [value, low, high] = [interval.value, interval.low, interval.high].map(form);
    if let Some(noise) = noise(need.verdict, || value.clone()) {
        return noise;
    }
    match (need.cost.found, interval.is_bounded()) {
        (true, true) => format!("{value} [{low}, {high}]"),
        (false, true) => format!("{low} to {high}"),
        (_, false) => "not known yet".to_string(),
    }
}

fn scaled(interval: &Interval, by: f64) -> Interval {
    Interval {
        value: interval.value * by,
        low: interval.low * by,
        high: interval.high * by,
        ..*interval
    }
}

fn shifted(interval: &Interval, by: f64) -> Interval {
    Interval {
        value: interval.value + by,
        low: interval.low + by,
        high: interval.high + by,
        ..*interval
    }
}

/// Nodes with one decimal, or two for few nodes.
fn exact(nodes: f64) -> String {
    if nodes < 10.0 { format!("{nodes:.2}") } else { format!("{nodes:.1}") }
}

fn count(nodes: f64) -> String {
    format!("{nodes:.0}")
}

fn signed(value: f64, form: fn(f64) -> String) -> String {
    if value < 0.0 { format!("\u{2212}{}", form(-value)) } else { form(value) }
}

fn price_text(price: &Price) -> String {
    let per = match price.per {
        Period::Hour => "an hour",
        Period::Month => "a month",
        Period::Year => "a year",
    };
    let amount = price.amount;
    if price.currency.is_empty() {
        format!("{amount} {per}")
    } else {
        format!("{amount} {} {per}", price.currency)
    }
}

fn money(price: &Price, amount: f64) -> String {
    format!("{} {}", rate(amount), price.currency).trim_end().to_string()
}

/// The arithmetic of an environment's nodes, step by step.
fn working(fleet: &Fleet, need: &NodesNeeded<'_>, metric: Metric) -> String {
    let share = need.cost.percent.value / 100.0;
    let nodes = fleet.nodes;
    let division = match metric {
        Metric::Throughput => format!("{nodes} / (1 \u{2212} {share:.3})"),
        Metric::ServerCpu => format!("{nodes} \u{d7} (1 + {share:.3})"),
    };
    let more = need.extra(fleet).value;
    let whole = f64::from(nodes) + more;
    let priced = fleet.price.as_ref().map_or_else(String::new, |price| {
        let year = price.per_year();
        let factor = match price.per {
            Period::Hour => format!(" \u{d7} {} \u{d7} 8,760 h", price.amount),
            Period::Month => format!(" \u{d7} {} \u{d7} 12 months", price.amount),
            Period::Year => format!(" \u{d7} {}", price.amount),
        };
        format!("; {}{factor} = {} a year", count(more), money(price, more * year))
    });
    format!(
        "{}, {}: {division} = {}, so {} nodes, {} more than {nodes}{priced} (paired over {})",
        clean(&need.finding.environment),
        clean(&need.finding.workload),
        exact(need.exact.value),
        count(whole),
        count(more),
        rounds(need.cost.percent.rounds),
    )
}

fn reading(fleet: &Fleet) -> Vec<String> {
    let mut notes = vec![
        "Each bound of a cost gives a bound of the nodes. Nodes are rounded up to whole ones.".to_string(),
        "A range in place of a figure (60 to 62): no difference found, and this is what the interval does not exclude. It is not a cost of 0.".to_string(),
        "(noise): found, but no larger than what the A/A control shows; claim nothing from it.".to_string(),
        "It holds if the fleet is limited by what was measured (throughput as here, or the servers' CPUs) and each node loses what this host lost.".to_string(),
    ];
    if fleet.price.is_some() {
        notes.push("Money is for whole nodes; a year has 365 days, 8,760 hours.".to_string());
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn text(fleet: &str, made: (Record, Analysis)) -> String {
        render(&fleet.parse().unwrap(), &made.0, &made.1, Style::new(false, 160))
    }

    #[test]
    fn a_cost_that_was_not_found_is_a_range() {
        let text = text("nodes=60,price=4.99/h", fixture::quick());
        let line = text.lines().find(|l| l.trim_start().starts_with("+ no cgroup")).unwrap();
        assert_eq!(line.matches("none found (").count(), 2, "{line}");
        assert!(!line.contains('[') && line.matches(" to ").count() == 3, "{line}");
    }

    #[test]
    fn money_is_whole_nodes_times_a_year() {
        let (record, mut analysis) = fixture::quick();
        for finding in analysis.findings.iter_mut().filter(|f| f.environment == "docker-default") {
            let percent = &mut finding.throughput_cost.as_mut().unwrap().percent;
            (percent.value, percent.low, percent.high) = (50.0, 40.0, 60.0);
        }
        let text = text("nodes=60,price=1000USD/month", (record, analysis));
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for part in [
            "+50.0 % [40.0, 60.0]",
            "120.0 [100.0, 150.0]",
            "120 [100, 150]",
            "+720k [480k, 1.08M]",
            "60 / (1 \u{2212} 0.500) = 120.0, so 120 nodes, 60 more than 60; 60 \u{d7} 1000 \u{d7} 12 months = 720k USD a year",
        ] {
            assert!(text.contains(part), "{part:?} is not in:\n{text}");
        }
    }

    #[test]
    fn one_round_and_none_are_marked() {
        let one = text("nodes=6", fixture::single_round());
        assert!(one.contains("not known yet") && !one.contains("NaN"), "{one}");
        assert!(text("nodes=6", fixture::empty()).contains("Nothing has been measured yet."));
    }

    #[test]
    fn strangers_do_not_steer_the_terminal() {
        let text = text("nodes=6,price=1/year", fixture::hostile());
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
    }
}
