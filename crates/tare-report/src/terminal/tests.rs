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
