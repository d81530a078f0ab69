//! Histories of the invented quick record, each day with other costs and noise.

use std::sync::OnceLock;

use tare_lab::analysis::Analysis;
use tare_lab::record::Record;
use tare_std::rng::Rng;

use super::*;
use crate::fixture;
use crate::layout::Style;

const DAY_MS: u64 = 86_400_000;

/// A record of a day. From `upgrade` on the kernel is newer and "docker-default" costs 6 % more.
fn day(day: u64, upgrade: u64) -> Entry {
    // Making the record takes most of the time of these tests.
    static BASE: OnceLock<(Record, Analysis)> = OnceLock::new();
    let (mut record, mut analysis) = BASE.get_or_init(fixture::quick).clone();
    record.slices.clear();
    record.header.started_unix_ms += day * DAY_MS;
    record.header.seed = day;
    let kernel = if day < upgrade { "6.1.0" } else { "6.6.0" };
    record.host.retain(|fact| fact.key != "release");
    record.host.push(tare_lab::record::HostFact {
        section: "kernel".into(),
        key: "release".into(),
        value: kernel.into(),
    });
    let mut rng = Rng::new(day);
    for finding in &mut analysis.findings {
        let luck = 1.0 + 0.005 * rng.normal();
        let risen = finding.environment == "docker-default" && day >= upgrade;
        let factor = if risen { 1.06 * luck } else { luck };
        if let Some(cost) = &mut finding.server_cpu_cost {
            let scaled = |percent: f64| (factor * (1.0 + percent / 100.0) - 1.0) * 100.0;
            let percent = &mut cost.percent;
            percent.value = scaled(percent.value);
            (percent.low, percent.high) = (scaled(percent.low), scaled(percent.high));
        }
    }
    Entry::new(&format!("day-{day:03}.tare"), &record, &analysis)
}

fn days(count: u64, upgrade: u64) -> History {
    History::new((0..count).rev().map(|at| day(at, upgrade)).collect(), Vec::new())
}

#[test]
fn tuning_names_its_groups() {
    let (mut record, analysis) = fixture::quick();
    let tuning = |record: &Record| Entry::new("a.tare", record, &analysis).tuning;
    assert_eq!(tuning(&record), "as found");
    record.environments[1].spec.host = "tuned".parse().unwrap();
    assert_eq!(tuning(&record), "1 environment tuned");
    record.host.push(tare_lab::record::HostFact {
        section: crate::prove::FACTS.into(),
        key: "changes of interrupts".into(),
        value: "irqbalance of host: on -> off".into(),
    });
    assert_eq!(tuning(&record), "1 environment tuned: interrupts");
}

#[test]
fn change_stands_at_its_step_with_its_facts() {
    let history = days(12, 8);
    let [group] = &history.groups[..] else { panic!("{history:?}") };
    let claimed = group.claimed();
    let [(series, change)] = claimed[..] else { panic!("{claimed:?}") };
    assert_eq!((series.environment.as_str(), change.at, change.after), ("docker-default", 8, 4));
    assert!(change.percent.low < 6.0 && change.percent.high > 6.0, "{change:?}");
    let steps: Vec<usize> = (0..12).filter(|at| !group.steps[*at].is_empty()).collect();
    assert_eq!(steps, [8]);
    let sentence = &group.sentences()[0];
    assert!(sentence.contains("kernel release 6.1.0 \u{2192} 6.6.0"), "{sentence}");
    assert!(history.has_claimed_change(true));
}

#[test]
fn response_times_have_series_and_changes() {
    let slower = |day_number: u64| {
        let mut entry = day(day_number, 99);
        for cost in entry.costs.iter_mut().filter(|cost| cost.metric == Figure::P99) {
            let percent = &mut cost.cost.percent;
            let risen = cost.environment == "docker-default" && day_number >= 8;
            let luck = 1.0 + 0.01 * Rng::new(day_number + 100).normal();
            let factor = luck * if risen { 3.0 } else { 1.0 };
            let scaled = |percent: f64| (factor * (1.0 + percent / 100.0) - 1.0) * 100.0;
            percent.value = scaled(percent.value);
            (percent.low, percent.high) = (scaled(percent.low), scaled(percent.high));
            cost.noise = Some(20.0);
        }
        entry
    };
    let history = History::new((0..12).map(slower).collect(), Vec::new());
    let [group] = &history.groups[..] else { panic!("{history:?}") };
    let claimed = group.claimed();
    let [(series, change)] = claimed[..] else { panic!("{claimed:?}") };
    assert_eq!((series.metric, change.at, change.after), (Figure::P99, 8, 4));
    assert!(change.percent.low < 200.0 && change.percent.high > 200.0, "{change:?}");
    let sentence = &group.sentences()[0];
    assert!(sentence.contains("cost in p99 response time changed by +"), "{sentence}");
    // The other percentiles are exported, without changes.
    assert!(group.percentiles.iter().all(|series| series.changes.is_empty()));
    let figures: Vec<Figure> = group.percentiles.iter().map(|series| series.metric).collect();
    assert!([Figure::P50, Figure::P95, Figure::P999].iter().all(|one| figures.contains(one)));
    assert!(csv(&history).contains("write/docker-default/p99.9_ratio"));
    assert!(prometheus(&history).contains("of=\"p50\""));
    let text = terminal(&history, 10, Style::new(false, 100));
    assert!(text.contains("write: % longer p99 response time at the fixed rate, against native"));
    assert!(!text.contains("p99.9"), "{text}");
}

#[test]
fn quiet_history_says_what_it_would_find() {
    let history = days(12, 99);
    assert!(!history.has_claimed_change(false));
    let sentence = &history.groups[0].sentences()[0];
    assert!(sentence.starts_with("no change found in ") && sentence.contains(" % in the newest"));
    let few = days(4, 99);
    let sentence = &few.groups[0].sentences()[0];
    assert!(sentence.starts_with("4 of the 6 records that a change needs"), "{sentence}");
}

#[test]
fn copies_count_once_and_hosts_are_apart() {
    let mut other = day(3, 99);
    other.host = Some("another".into());
    let history = History::new(vec![day(1, 99), day(1, 99), day(2, 99), other], Vec::new());
    assert_eq!((history.groups.len(), history.records(), history.copies.len()), (2, 3, 1));
    // Series without a capacity phase or a control do not panic, nor does an empty history.
    let empty = History::new(Vec::new(), Vec::new());
    assert!(terminal(&empty, 30, Style::new(false, 100)).starts_with("no record"));
    assert!(crate::html::history(&empty).contains("0 records over time"));
}

#[test]
fn terminal_fits_its_width() {
    let history = days(40, 30);
    for (width, ascii) in [(100, false), (100, true), (80, false)] {
        let text = terminal(&history, 10, Style { colour: false, width, ascii });
        let wide = text.lines().find(|line| crate::layout::columns(line) > usize::from(width));
        assert_eq!(wide, None, "{text}");
        assert!(!ascii || text.is_ascii(), "{text}");
        assert!(text.contains("30 older records") && text.contains("* +7"), "{text}");
    }
}

#[test]
fn csv_is_that_of_otava() {
    let text = csv(&days(2, 1));
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    let head = reader.headers().unwrap().clone();
    assert_eq!(head.iter().take(2).collect::<Vec<_>>(), ["time", "record"]);
    let column = head.iter().position(|one| one == "write/docker-default/server_cpu_ratio");
    let rows: Vec<::csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 2);
    let ratio: f64 = rows[0][column.unwrap()].parse().unwrap();
    assert!((1.5..1.8).contains(&ratio), "{ratio}");
    assert_eq!(rows[0][0].len(), "2026.11.21 02:49:58 +0000".len());
}

#[test]
fn hostile_names_are_escaped() {
    let (record, analysis) = fixture::hostile();
    let unreadable = vec![Unreadable {
        name: "<b>".into(),
        reason: "</script><script>alert(1)</script>".into(),
    }];
    let entry = Entry::new("<img src=x onerror=alert(1)>", &record, &analysis);
    let page = crate::html::history(&History::new(vec![entry], unreadable));
    for nasty in ["<script>alert", "<img src=x", "<svg onload"] {
        assert!(!page.contains(nasty), "{nasty}");
    }
}

#[test]
fn page_of_thousand_records_is_below_five_megabytes() {
    let base = day(0, 500);
    let entries = (0..1000).map(|at| {
        let mut entry = base.clone();
        entry.started_unix_ms += at * DAY_MS;
        entry.seed = at;
        entry
    });
    let page = crate::html::history(&History::new(entries.collect(), Vec::new()));
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
}

#[test]
fn markdown_has_the_newest_costs_with_links_and_doubts() {
    let text = markdown(&days(4, 9), |name| name.replace(".tare", ".md"));
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| [")).collect();
    let series = &days(4, 9).groups[0].series;
    let environments = series.iter().filter(|one| one.metric == Figure::ServerCpu).count();
    assert_eq!(rows.len(), environments, "{text}");
    assert!(rows.iter().all(|row| row.starts_with("| [quick](day-003.md) | tare-db | ")), "{text}");
    let of = |name: &str| rows.iter().find(|row| row.contains(name)).unwrap().to_string();
    assert!(of("docker-default").contains("| **+"), "claimed: {text}");
    assert!(of("(A/A)").contains("none found"), "{text}");
    assert!(rows.iter().all(|row| row.split(" | ").count() == 9), "{text}");
    assert!(!text.contains("about the whole"), "{text}");
    let (record, mut analysis) = fixture::quick();
    analysis.doubts.push(tare_lab::doubt::Doubt::BaselineNotClean { found: "docker0".into() });
    let doubted = History::new(vec![Entry::new("q.tare", &record, &analysis)], Vec::new());
    let text = markdown(&doubted, str::to_string);
    assert!(text.ends_with("Doubts about the whole of quick: baseline_not_clean.\n"), "{text}");
}
