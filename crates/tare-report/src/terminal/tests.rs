use tare_lab::environment::INSIDE;

use super::*;
use crate::fixture;

fn widest(text: &str) -> usize {
    text.lines().map(columns).max().unwrap_or(0)
}

#[test]
fn lines_fit_the_width() {
    let (record, analysis) = fixture::quick();
    for width in [80, 100, 120, 140, 160, 200, 240] {
        for ascii in [false, true] {
            let text = render(&record, &analysis, &[], Style { colour: false, width, ascii });
            assert!(widest(&text) <= usize::from(width), "{width}: {}\n{text}", widest(&text));
            assert!(!ascii || text.is_ascii(), "{text}");
        }
    }
}

#[test]
fn wide_terminals_get_one_table_and_narrow_ones_two() {
    let (record, analysis) = fixture::quick();
    let tables = |width| {
        let text = render(&record, &analysis, &[], Style::new(false, width));
        text.lines().filter(|line| line.trim_start().starts_with("environment")).count()
    };
    // The tables of percentiles: times if the width allows, and over the baseline's.
    assert_eq!(tables(240), 1 + 2);
    assert_eq!(tables(140), 2 + 2);
    assert_eq!(tables(100), 2 + 1);
}

#[test]
fn a_study_that_ran_inside_a_guest_says_so_everywhere() {
    let (mut record, analysis) = fixture::quick();
    let said = "Linux 6.1.0, on tcg: asked for";
    let texts = |record: &Record| {
        let terminal = render(record, &analysis, &[], Style::new(false, 240));
        let markdown = crate::markdown::render(record, &analysis, &[]);
        [terminal, markdown, crate::html::page(record, &analysis, &[])]
    };
    assert!(texts(&record).iter().all(|text| !text.contains("a guest")));
    for (key, value) in [("Linux", "6.1.0"), ("on", "tcg: asked for")] {
        let (section, key, value) = (INSIDE.into(), key.into(), value.into());
        record.host.push(tare_lab::record::HostFact { section, key, value });
    }
    for text in texts(&record) {
        assert!(text.contains(said) && text.contains("guest"), "{text}");
    }
}

#[test]
fn colour_only_when_asked() {
    let (record, analysis) = fixture::quick();
    assert!(!render(&record, &analysis, &[], Style::new(false, 120)).contains('\u{1b}'));
    assert!(render(&record, &analysis, &[], Style::new(true, 120)).contains("\u{1b}[31m"));
    assert!(costs_so_far(&analysis, Style::new(false, 120)).iter().all(|l| !l.contains('\u{1b}')));
}

#[test]
fn strangers_do_not_reach_the_terminal() {
    let (record, analysis) = fixture::hostile();
    let text = render(&record, &analysis, &[], Style::new(false, 120));
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    assert!(!text.contains('\u{202e}'));
}

#[test]
fn unfinished_and_tiny_records_render() {
    for (record, analysis) in [fixture::empty(), fixture::running(), fixture::single_round()] {
        for width in [0, 20, 80, 160] {
            let text = render(&record, &analysis, &[], Style::new(true, width));
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
        costs_so_far(&analysis, Style::new(true, 80));
    }
}

#[test]
fn a_missing_difference_is_said_and_not_zero() {
    let (record, analysis) = fixture::quick();
    for (width, words) in [(240, "no difference found (within "), (100, "none found (\u{b1}")] {
        let text = render(&record, &analysis, &[], Style::new(false, width));
        assert!(text.contains(words), "{text}");
    }
    let lines = costs_so_far(&analysis, Style::new(false, 120));
    assert_eq!(lines.len(), analysis.findings.len() - 1);
    assert!(lines.iter().any(|line| line.contains("none found (\u{b1}")), "{lines:#?}");
}

/// Long names, costs of four digits with wide intervals, and many doubts.
fn wide_figures() -> (Record, Analysis) {
    let (mut record, mut analysis) = fixture::quick();
    let names = [
        (
            "docker-default",
            "docker default with the userland proxy and a bridge, unpinned, seccomp",
        ),
        (
            "+ cpuset",
            "\u{96fb}\u{8166}\u{7684}\u{8cc7}\u{6599}\u{5eab}\u{6e2c}\u{8a66}\u{74b0}\u{5883}\u{8207}\u{8a18}\u{9304}",
        ),
        ("native again", "native-baseline-of-the-second-socket again"),
    ];
    for (from, to) in names {
        let rename = |name: &mut String| {
            if name == from {
                *name = to.to_string();
            }
        };
        record.environments.iter_mut().for_each(|e| rename(&mut e.spec.name));
        record.slices.iter_mut().for_each(|s| rename(&mut s.environment));
        analysis.findings.iter_mut().for_each(|f| rename(&mut f.environment));
    }
    for finding in &mut analysis.findings {
        let costs = [&mut finding.server_cpu_cost, &mut finding.throughput_cost];
        for cost in costs.into_iter().flatten().filter(|cost| cost.percent.value > 10.0) {
            let wide = Interval { value: 1234.5, low: 1100.2, high: 1398.7, rounds: 12 };
            (cost.percent, cost.within_percent, cost.found) = (wide, 1398.7, true);
        }
        if let Some(us) = &mut finding.server_cpu_us {
            *us = Interval { value: 123_456.0, low: 120_001.0, high: 129_999.0, rounds: 12 };
        }
    }
    (record, analysis)
}

#[test]
fn hundred_columns_keep_every_cost_with_its_interval() {
    let (record, analysis) = wide_figures();
    let mut without_latencies = analysis.clone();
    without_latencies.findings.iter_mut().for_each(|f| (f.response, f.service) = (None, None));
    for analysis in [&analysis, &without_latencies] {
        for width in [100, 110, 120, 150] {
            let style = Style::new(false, width);
            let text = render(&record, analysis, &[], style);
            assert!(widest(&text) <= usize::from(width), "{width}\n{text}");
            let table: Vec<&str> =
                text.lines().skip_while(|line| !line.starts_with('\u{2500}')).collect();
            for finding in analysis.findings.iter().filter(|f| !f.baseline) {
                let row = |cost: &str| table.iter().any(|line| line.contains(cost));
                for metric in Metric::ALL {
                    let verdict = verdict(analysis, finding, metric);
                    let known = metric.cost(finding).unwrap();
                    let texts = [CostFormat::Full, CostFormat::Short];
                    let whole = texts.iter().any(|form| row(&cost(known, verdict, *form)));
                    assert!(whole, "{width}: {}\n{text}", cost(known, verdict, CostFormat::Short));
                }
            }
            // Each environment has its own line in the first table: no name or figure wraps.
            let is_rule = |line: &&&str| line.starts_with('\u{2500}');
            let below_head = table[1..].iter().skip_while(|line| !is_rule(line)).skip(1);
            let rows = below_head.take_while(|line| !is_rule(line));
            assert_eq!(rows.count(), analysis.findings.len(), "{width}\n{text}");
        }
    }
}
