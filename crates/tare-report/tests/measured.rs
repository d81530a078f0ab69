//! A record that was measured, in the lab's fake world with known costs, kept in a file and read
//! back, in every format. The formats' own tests use records made up by hand; this one meets what
//! the campaign and the analysis really write.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tare_lab::analysis::{Analysis, analyse, analyse_costs};
use tare_lab::campaign::{self, NoObserver, Parts};
use tare_lab::environment::{CpuPlan, EnvironmentSpec};
use tare_lab::fake::{self, World, spec};
use tare_lab::record::{Opening, Record, RecordWriter};
use tare_lab::study::*;
use tare_report::terminal::Style;
use tare_std::cpus::CpuSet;

fn measured(rounds: u32) -> (Record, Analysis) {
    let study = Study {
        name: "measured".into(),
        title: "What do known costs look like?".into(),
        baseline: "native".into(),
        system: SystemSpec { name: fake::NAME.into(), options: vec![] },
        driver: fake::NAME.into(),
        schedule: ScheduleSpec {
            kind: ScheduleKind::Slices,
            window: Duration::from_millis(100),
            lead_in: Duration::from_millis(20),
            rounds,
            rounds_min: rounds,
            budget: Duration::from_secs(600),
            stop_width_percent: 0.0,
            seed: None,
        },
        cpus: CpuSpec::default(),
        environments: vec![
            spec("native", "fake"),
            spec("box", "fake:cpu=1.3,throughput=0.7"),
            spec("thin box", "fake:cpu=1.05,throughput=0.96"),
        ],
        workloads: vec![WorkloadSpec {
            name: "write".into(),
            write_share: 1.0,
            rows: 1000,
            columns: 5,
            column_bytes: 64,
            keys: KeyDistribution::Uniform,
            connections: 1,
            in_flight: 16,
            latency_share: 0.5,
            rate_per_s: None,
        }],
        published: vec![],
    };
    let list = |text: &str| CpuSet::parse_list(text).unwrap();
    let plan = CpuPlan { all: list("0-1"), system: list("1"), client: list("0") };
    let opening = Opening {
        tare_version: "0".into(),
        started_unix_ms: 1,
        seed: 7,
        command: vec!["tare".into(), "weigh".into()],
        study: study.clone(),
        study_text: String::new(),
        cpu_plan: plan.clone(),
        host: vec![],
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("measured.tare");
    let writer = RecordWriter::create(&path, &opening).unwrap();
    let world = World::new(1);
    let (system, mut driver) = (world.system(), world.driver());
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts = Parts {
        make: &mut make,
        system: &system,
        driver: &mut driver,
        probes: vec![Box::new(world.probe())],
        clock: &world,
        plan,
        memory: None,
        doubts: vec![],
    };
    let never = AtomicBool::new(false);
    campaign::run(parts, &study, writer, &mut NoObserver, &never).unwrap();
    let record = Record::read(&path).unwrap();
    let analysis = analyse(&record);
    (record, analysis)
}

#[test]
fn known_costs_are_reported_in_every_format() {
    let (record, analysis) = measured(12);
    let headline = tare_report::headline(&record, &analysis);
    assert!(headline.starts_with("\"box\" costs the most: +"), "{headline}");
    let text = tare_report::terminal::render(&record, &analysis, Style::new(false, 160));
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
        serde_json::from_str(&tare_report::json::render(&record, &analysis)).unwrap();
    assert_eq!(json["slices"].as_array().unwrap().len(), record.slices.len());
    let csv = tare_report::csv::render(&record);
    assert_eq!(csv.lines().count(), record.slices.len() + 1);
    let so_far = tare_report::terminal::costs_so_far(&analyse_costs(&record), Style::default());
    assert_eq!(so_far.len(), 3, "{so_far:?}");
}

#[test]
fn one_measured_block_claims_nothing() {
    let (record, analysis) = measured(1);
    let headline = tare_report::headline(&record, &analysis);
    assert!(headline.starts_with("No cost against native can be told yet"), "{headline}");
    let text = tare_report::terminal::render(&record, &analysis, Style::new(false, 160));
    for bad in ["inf", "NaN", "-100.0", "\u{2212}100.0"] {
        assert!(!text.contains(bad), "{bad} in\n{text}");
    }
}
