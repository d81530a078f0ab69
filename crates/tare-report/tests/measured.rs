//! Measures a record with known costs in the lab's fake world, reads it back from its file, and
//! writes every format. Unlike the unit tests, which use invented records, these test the records
//! that the campaign writes.

#![expect(clippy::unwrap_used, reason = "a test")]

mod fake_world;

use std::time::Duration;

use tare_lab::analysis::{Analysis, analyse, analyse_costs};
use tare_lab::fake::spec;
use tare_lab::record::Record;
use tare_report::terminal::Style;

fn measured(rounds: u32) -> (Record, Analysis) {
    let environments = vec![
        spec("native", "fake"),
        spec("box", "fake:cpu=1.3,throughput=0.7"),
        spec("thin box", "fake:cpu=1.05,throughput=0.96"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("measured.tare");
    fake_world::measure(&path, environments, rounds, Duration::from_millis(100));
    let record = Record::read(&path).unwrap();
    let analysis = analyse(&record);
    (record, analysis)
}

#[test]
fn known_costs_are_reported_in_every_format() {
    let (record, analysis) = measured(12);
    let headline = tare_report::headline(&record, &analysis);
    assert!(headline.starts_with("\"box\" costs the most: +"), "{headline}");
    let text = tare_report::terminal::render(&record, &analysis, &[], Style::new(false, 160));
    assert!(text.contains(&headline[..60]) && text.contains("native again (A/A)"), "{text}");
    let page = tare_report::html::page(&record, &analysis, &[]);
    for chart in [
        "id=\"cpu-0-t\"",
        "id=\"lost-0-t\"",
        "id=\"rate-0-t\"",
        "id=\"grouped-0-t\"",
        "id=\"hdr-0-t\"",
        "id=\"order-t\"",
    ] {
        assert!(page.contains(chart), "{chart} was not drawn");
    }
    if let Some(path) = std::env::var_os("TARE_MEASURED_PAGE") {
        std::fs::write(path, &page).unwrap();
    }
    let json: serde_json::Value =
        serde_json::from_str(&tare_report::json::render(&record, &analysis, &[])).unwrap();
    assert_eq!(json["slices"].as_array().unwrap().len(), record.slices.len());
    let csv = tare_report::csv::render(&record);
    assert_eq!(csv.lines().count(), record.slices.len() + 1);
    let so_far = tare_report::terminal::costs_so_far(&analyse_costs(&record), Style::default());
    assert_eq!(so_far.len(), 3, "{so_far:?}");
}

#[test]
fn one_measured_round_claims_nothing() {
    let (record, analysis) = measured(1);
    let headline = tare_report::headline(&record, &analysis);
    assert!(headline.starts_with("Costs against native are not known yet"), "{headline}");
    let text = tare_report::terminal::render(&record, &analysis, &[], Style::new(false, 160));
    for bad in ["inf", "NaN", "-100.0", "\u{2212}100.0"] {
        assert!(!text.contains(bad), "{bad} in\n{text}");
    }
}
