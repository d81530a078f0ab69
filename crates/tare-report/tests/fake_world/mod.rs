//! Measures a study in the lab's fake world, whose clock is its own, into a record.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tare_lab::campaign::{self, NoObserver, Parts};
use tare_lab::environment::{CpuPlan, EnvironmentSpec};
use tare_lab::fake::{self, FakeHost};
use tare_lab::record::{Opening, RecordWriter};
use tare_lab::study::*;
use tare_std::cpus::CpuSet;

/// Two phases of one workload in every environment and the A/A control; the first is the baseline.
pub(crate) fn measure(
    path: &Path,
    environments: Vec<EnvironmentSpec>,
    rounds: u32,
    window: Duration,
) {
    let study = Study {
        name: "measured".into(),
        title: "What do known costs look like?".into(),
        baseline: environments[0].name.clone(),
        environments,
        system: SystemSpec { name: fake::NAME.into(), options: vec![] },
        driver: fake::NAME.into(),
        schedule: ScheduleSpec {
            kind: ScheduleKind::Slices,
            data: DataStart::Loaded,
            without_data_cache: false,
            window,
            lead_in: Duration::from_millis(20),
            rounds,
            rounds_min: rounds,
            budget: Duration::from_secs(24 * 3600),
            stop_width_percent: 0.0,
            seed: None,
            auto_window: None,
            restarts: 0,
            warm_up: Duration::ZERO,
        },
        cpus: CpuSpec::default(),
        workloads: vec![WorkloadSpec {
            name: "write".into(),
            workload: None,
            workload_text: None,
            write_share: 1.0,
            rows: 1000,
            columns: 5,
            column_bytes: 64,
            keys: KeyDistribution::Uniform,
            connections: 1,
            in_flight: 16,
            load: tare_lab::study::LoadSize::default(),
            latency_share: 0.5,
            rate_only: false,
            slo: None,
            reads_from_disk: None,
            replicas: tare_lab::study::Replicas::default(),
            connection: tare_lab::study::ClientConnection::default(),
            attached_rows: None,
            rate_per_s: None,
            options: Vec::new(),
        }],
        published: vec![],
        quick: None,
        budget_part: None,
        runtime_controls: Vec::new(),
        loaders: Vec::new(),
        loader_selectors: Vec::new(),
        hosts: Vec::new(),
        access: None,
    };
    let list = |text: &str| CpuSet::parse_list(text).unwrap();
    let plan =
        CpuPlan { all: list("0-1"), system: list("1"), client: list("0"), ..CpuPlan::default() };
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
    let writer = RecordWriter::create(path, &opening).unwrap();
    let world = FakeHost::new(1);
    let (system, mut driver) = (world.system(), world.driver());
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts = Parts {
        factory: &mut make,
        system: &system,
        systems_with_options: Vec::new(),
        driver: &mut driver,
        probes: vec![Box::new(world.probe())],
        clock: &world,
        plan,
        memory: None,
        data_dir: None,
        data_cache: None,
        doubts: vec![],
        left_out: Vec::new(),
        refresh_accounts: Box::new(|| {}),
        drop_cached_pages: Box::new(|_| Ok(())),
        device_towards: None,
        accounts_are_exact: true,
        hosts: None,
        goal: None,
    };
    let never = AtomicBool::new(false);
    campaign::run(parts, &study, writer, &mut NoObserver, &never).unwrap();
}
