use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use tare_std::cpus::CpuSet;
use tare_std::rng::Rng;

use super::*;
use crate::environment::{CpuPlan, EnvironmentSpec};
use crate::fake;
use crate::record::{DoubtRecord, Header, Slice};
use crate::seconds::Seconds;
use crate::study::{
    Claim, CpuSpec, DataStart, Expected, KeyDistribution, PublishedRelation, ScheduleKind,
    ScheduleSpec, Study, SystemSpec, WorkloadSpec,
};
use crate::system::BusyTime;

const WORKLOAD: &str = "write";
const OPERATIONS: u64 = 100_000;
const WINDOW_NS: u64 = 1_000_000_000;

fn spec(name: &str) -> EnvironmentSpec {
    fake::spec(name, "process")
}

fn environment(name: &str, control: bool) -> EnvironmentRecord {
    EnvironmentRecord {
        spec: spec(name),
        control,
        left_out: None,
        layers: vec![],
        settings: vec![],
        config: None,
        ready_ns: None,
        teardown_ns: None,
    }
}

/// Returns a study of `native`, its control `native-again`, `bridge` and `proxy`, without slices.
pub(super) fn record() -> Record {
    let names = ["native", "bridge", "proxy"];
    let mut environments: Vec<_> = names.iter().map(|name| environment(name, false)).collect();
    environments.push(environment("native-again", true));
    Record {
        header: Header {
            tare_version: "0".into(),
            started_unix_ms: 0,
            ended_unix_ms: None,
            seed: 1,
            command: vec![],
            ending: None,
            rates: vec![],
        },
        study: Study {
            name: "test".into(),
            title: String::new(),
            baseline: "native".into(),
            system: SystemSpec { name: "tare-db".into(), options: vec![] },
            driver: "tare-load".into(),
            schedule: ScheduleSpec {
                kind: ScheduleKind::Slices,
                data: DataStart::Loaded,
                without_data_cache: false,
                window: Duration::from_secs(1),
                lead_in: Duration::ZERO,
                rounds: 10,
                rounds_min: 3,
                budget: Duration::from_secs(300),
                stop_width_percent: 0.0,
                seed: Some(1),
                auto_window: None,
                restarts: 0,
                warm_up: Duration::ZERO,
            },
            cpus: CpuSpec::default(),
            environments: names.iter().map(|name| spec(name)).collect(),
            workloads: vec![WorkloadSpec {
                name: WORKLOAD.into(),
                workload: None,
                workload_text: None,
                write_share: 1.0,
                rows: 1000,
                columns: 5,
                column_bytes: 64,
                keys: KeyDistribution::Uniform,
                connections: 4,
                in_flight: 64,
                load: crate::study::LoadSize::default(),
                latency_share: 0.5,
                rate_only: false,
                slo: None,
                reads_from_disk: None,
                replicas: crate::study::Replicas::default(),
                connection: crate::study::ClientConnection::default(),
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
        },
        study_text: String::new(),
        cpu_plan: CpuPlan {
            all: CpuSet::from_iter([0, 1]),
            system: CpuSet::from_iter([1]),
            client: CpuSet::from_iter([0]),
            ..CpuPlan::default()
        },
        host: vec![],
        environments,
        slices: vec![],
        loaders: Vec::new(),
        paths: Vec::new(),
        doubts: vec![],
    }
}

/// Adds a capacity slice with `system_us` of server CPU and 4 µs of client CPU per operation.
pub(super) fn slice<'r>(
    record: &'r mut Record,
    round: u32,
    environment: &str,
    system_us: f64,
) -> &'r mut Slice {
    let id = i64::try_from(record.slices.len()).unwrap();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small and positive"
    )]
    let system_cpu_ns = (system_us * 1000.0 * OPERATIONS as f64) as u64;
    record.slices.push(Slice {
        id,
        round,
        position: 0,
        environment: environment.into(),
        workload: WORKLOAD.into(),
        phase: Phase::Capacity,
        started_unix_ms: 0,
        window_ns: WINDOW_NS,
        operations: OPERATIONS,
        errors: vec![],
        unsent: 0,
        rate_per_s: None,
        system_cpu_ns,
        layer_cpu_ns: vec![],
        busy_time: None,
        client_cpu_ns: 4000 * OPERATIONS,
        throttled_ns: None,
        response: vec![],
        service: vec![],
        counters: vec![],
        void: None,
        start: 0,
        account_ns: None,
        server: Vec::new(),
        loaders: Vec::new(),
        seconds: Seconds::default(),
    });
    record.slices.last_mut().unwrap()
}

/// Returns rounds on a host whose speed varies by a factor of two, with 1 % noise in each slice.
fn campaign(rounds: u32, ratios: &[(&str, f64)]) -> Record {
    let mut record = record();
    let mut rng = Rng::new(9);
    let mut walk = 0.0f64;
    for round in 0..rounds {
        walk += 0.2 * rng.normal();
        for (environment, ratio) in ratios {
            let us = 10.0 * walk.exp() * ratio * (0.01 * rng.normal()).exp();
            let throughput = 1.0 / ratio;
            let slice = slice(&mut record, round, environment, us * throughput);
            // The same CPU time for fewer operations.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
            let operations = (OPERATIONS as f64 * throughput) as u64;
            slice.operations = operations;
        }
    }
    record
}

const RATIOS: [(&str, f64); 4] =
    [("native", 1.0), ("bridge", 1.09), ("proxy", 1.6), ("native-again", 1.0)];

fn named<'a>(analysis: &'a Analysis, environment: &str) -> &'a Finding {
    analysis.findings.iter().find(|f| f.environment == environment).unwrap()
}

#[test]
fn costs_survive_host_drift() {
    for rounds in [5, 31] {
        let analysis = analyse(&campaign(rounds, &RATIOS));
        assert_eq!(analysis.rounds, rounds);
        for (environment, percent) in [("bridge", 9.0), ("proxy", 60.0)] {
            let cost = named(&analysis, environment).server_cpu_cost.clone().unwrap();
            assert!(cost.found, "{cost:?}");
            assert!(cost.percent.low <= percent && percent <= cost.percent.high, "{cost:?}");
            assert!(cost.percent.high - cost.percent.low < 12.0, "{cost:?}");
            assert_eq!(cost.percent.rounds, rounds);
        }
        let throughput = named(&analysis, "proxy").throughput_cost.clone().unwrap();
        assert!((throughput.percent.value - 37.5).abs() < 0.1, "{throughput:?}");
        assert!(throughput.percent.low <= throughput.percent.high && throughput.found);
        let total = named(&analysis, "proxy").total_cpu_cost.clone().unwrap();
        assert!(total.percent.value > 20.0 && total.found, "{total:?}");
        assert_eq!(named(&analysis, "native").server_cpu_cost, None);
    }
}

#[test]
fn pairs_any_two_environments() {
    let record = campaign(31, &RATIOS);
    let pair = pair_costs(&record, WORKLOAD, "proxy", "bridge").unwrap();
    let holds = |cost: &Cost, percent: f64| {
        assert!(cost.percent.low <= percent && percent <= cost.percent.high, "{cost:?}");
    };
    let (cpu, throughput) = (pair.cpu.unwrap(), pair.throughput.unwrap());
    assert!(cpu.found && cpu.percent.rounds == 31, "{cpu:?}");
    holds(&cpu, 100.0 * (1.6 / 1.09 - 1.0));
    assert!((throughput.percent.value - 100.0 * (1.0 - 1.09 / 1.6)).abs() < 0.1, "{throughput:?}");

    // Against the baseline it equals the analysis; in the other direction it is the inverse.
    let analysis = analyse(&record);
    let base = pair_costs(&record, WORKLOAD, "proxy", "native").unwrap();
    assert_eq!(base.cpu, named(&analysis, "proxy").server_cpu_cost);
    assert_eq!(base.throughput, named(&analysis, "proxy").throughput_cost);
    let back = pair_costs(&record, WORKLOAD, "bridge", "proxy").unwrap().cpu.unwrap();
    assert!(back.found && back.percent.value < 0.0, "{back:?}");
    let same = pair_costs(&record, WORKLOAD, "native-again", "native").unwrap().cpu.unwrap();
    assert!(same.within_percent < 2.0, "{same:?}");

    assert_eq!(pair_costs(&record, WORKLOAD, "proxy", "proxy"), None);
    assert_eq!(pair_costs(&record, WORKLOAD, "proxy", "nobody"), None);
    assert_eq!(pair_costs(&record, "read", "proxy", "bridge"), None);
}

#[test]
fn control_follows_baseline_and_finds_nothing() {
    let analysis = analyse(&campaign(31, &RATIOS));
    let order: Vec<&str> = analysis.findings.iter().map(|f| f.environment.as_str()).collect();
    assert_eq!(order, ["native", "native-again", "bridge", "proxy"]);
    let control = named(&analysis, "native-again");
    assert!(control.control && !control.baseline);
    let cost = control.server_cpu_cost.clone().unwrap();
    assert!(!cost.found && cost.within_percent < 1.5, "{cost:?}");
    assert_eq!(analysis.doubts, []);
}

#[test]
fn differing_control_doubts_record_and_claims() {
    let ratios = [("native", 1.0), ("bridge", 1.03), ("proxy", 1.6), ("native-again", 1.05)];
    let analysis = analyse(&campaign(12, &ratios));
    let [Doubt::ControlBeyondClaim { control_percent, smallest_percent }] =
        analysis.doubts.as_slice()
    else {
        panic!("{:?}", analysis.doubts)
    };
    assert!((control_percent - 5.0).abs() < 1.0 && (smallest_percent - 3.0).abs() < 1.0);
    let doubted = |name: &str| named(&analysis, name).doubts.len();
    assert_eq!((doubted("bridge"), doubted("proxy")), (1, 0));
}

#[test]
fn subtracts_idle_polling_in_both_or_neither() {
    let mut record = record();
    for round in 0..6 {
        for (environment, us) in [("native", 10.0), ("bridge", 10.0)] {
            let idle_us: u64 = if environment == "native" { 5 } else { 2 };
            let slice = slice(&mut record, round, environment, us);
            let idle_poll_ns = idle_us * 1000 * OPERATIONS;
            slice.busy_time = Some(BusyTime { busy_ns: 0, idle_poll_ns });
        }
    }
    let analysis = analyse(&record);
    let bridge = named(&analysis, "bridge");
    assert!(bridge.server_cpu_is_busy_time);
    assert!((bridge.server_cpu_us.unwrap().value - 8.0).abs() < 1e-9);
    assert!((bridge.server_cpu_cost.clone().unwrap().percent.value - 60.0).abs() < 1e-6);

    // One slice without a busy time: the whole CPU times are compared.
    record.slices[5].busy_time = None;
    let analysis = analyse(&record);
    let bridge = named(&analysis, "bridge");
    assert!(!bridge.server_cpu_is_busy_time);
    assert!(bridge.server_cpu_cost.clone().unwrap().percent.value.abs() < 1e-6);

    // Idle time beyond the CPU time does not make the busy time negative.
    record.slices[5].busy_time = Some(BusyTime { busy_ns: 0, idle_poll_ns: u64::MAX / 2 });
    assert!(analyse(&record).findings.iter().all(|f| f.server_cpu_us.is_none_or(|i| i.low >= 0.0)));
}

#[test]
fn scales_polling_account_to_cpu_time() {
    let mut record = record();
    for round in 0..6 {
        for environment in ["native", "bridge"] {
            // 8 µs busy and 12 µs idle by the clock, of which the bridge got half as CPU time.
            let us = if environment == "native" { 20.0 } else { 10.0 };
            let (busy_ns, idle_poll_ns) = (8000 * OPERATIONS, 12_000 * OPERATIONS);
            slice(&mut record, round, environment, us).busy_time =
                Some(BusyTime { busy_ns, idle_poll_ns });
        }
    }
    let analysis = analyse(&record);
    assert!((named(&analysis, "native").server_cpu_us.unwrap().value - 8.0).abs() < 1e-9);
    assert!((named(&analysis, "bridge").server_cpu_us.unwrap().value - 4.0).abs() < 1e-9);
}

#[test]
fn counts_layer_cpu() {
    let mut record = record();
    for round in 0..6 {
        slice(&mut record, round, "native", 10.0);
        let proxy = slice(&mut record, round, "proxy", 11.0);
        proxy.layer_cpu_ns = vec![("userland proxy".into(), 9000 * OPERATIONS)];
    }
    let analysis = analyse(&record);
    assert!((named(&analysis, "proxy").server_cpu_us.unwrap().value - 20.0).abs() < 1e-9);
    let line = "proxy: 11.00 µs of the system + 9.000 µs userland proxy = 20.00 µs (means)";
    assert!(analysis.arithmetic.iter().any(|l| l == line), "{:#?}", analysis.arithmetic);
}

#[test]
fn ignores_void_slices_and_unpaired_rounds() {
    let mut record = campaign(8, &RATIOS);
    for slice in &mut record.slices {
        match (slice.round, slice.environment.as_str()) {
            (1, "native") | (2, "bridge") => slice.void = Some("layer not in force".into()),
            (3, "bridge") => slice.operations = 0,
            _ => {}
        }
    }
    record.slices.retain(|slice| (slice.round, slice.environment.as_str()) != (4, "bridge"));
    let analysis = analyse(&record);
    let bridge = named(&analysis, "bridge");
    assert_eq!((bridge.slices, bridge.slices_void), (5, 2));
    assert_eq!(bridge.server_cpu_cost.clone().unwrap().percent.rounds, 4);
    assert_eq!(bridge.server_cpu_us.unwrap().rounds, 5);
    assert_eq!(analysis.rounds, 7);
    // The others have enough rounds; this one has a doubt.
    assert_eq!(bridge.doubts, [(Doubt::FewRounds { rounds: 4 }, 5)]);
}

#[test]
fn early_records_have_few_figures_and_doubts() {
    let empty = analyse(&record());
    assert_eq!((empty.rounds, empty.findings.len()), (0, 4));
    assert_eq!((empty.doubts.len(), empty.arithmetic.len()), (0, 0));

    let analysis = analyse(&campaign(1, &RATIOS));
    assert_eq!(analysis.doubts, [Doubt::FewRounds { rounds: 1 }]);
    let cost = named(&analysis, "proxy").server_cpu_cost.clone().unwrap();
    assert!(!cost.found && !cost.percent.is_bounded(), "{cost:?}");
    assert!(analysis.arithmetic.iter().any(|line| line.contains("no interval")));
    // JSON has no infinity, but the value round-trips.
    let json = serde_json::to_string(&cost).unwrap();
    assert_eq!(serde_json::from_str::<Cost>(&json).unwrap(), cost, "{json}");

    // Two rounds: Student's t with one degree of freedom, 12.7 standard errors to each side.
    let two = named(&analyse(&campaign(2, &RATIOS)), "bridge").server_cpu_cost.clone().unwrap();
    let many = named(&analyse(&campaign(31, &RATIOS)), "bridge").server_cpu_cost.clone().unwrap();
    let width = |cost: &Cost| cost.percent.high - cost.percent.low;
    assert!(two.percent.is_bounded() && width(&two) > 3.0 * width(&many), "{two:?} {many:?}");
}

fn packed(values: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let mut histogram = Histogram::<u64>::new(3).unwrap();
    for value in values {
        histogram.record(value).unwrap();
    }
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(&histogram, &mut bytes).unwrap();
    bytes
}

#[test]
fn merges_latency_histograms() {
    let mut record = record();
    for round in 0..2 {
        // 99 fast operations in one slice, 99 slow ones in the other: the mean of two p50s would be
        // a latency that no operation had.
        let slow = 1000 * u64::from(1 + 99 * round);
        let fine = slice(&mut record, round, "native", 10.0);
        fine.phase = Phase::Latency;
        fine.response = packed((0..99).map(|_| slow));
        fine.service = packed([500]);
    }
    let void = slice(&mut record, 2, "native", 10.0);
    void.phase = Phase::Latency;
    void.response = packed([1_000_000_000]);
    void.void = Some("interrupted".into());
    let analysis = analyse(&record);
    let native = named(&analysis, "native");
    let response = native.response.clone().unwrap();
    assert_eq!(response.count, 198);
    assert!(response.p50_ns <= 1001 && response.p95_ns >= 99_000 && response.max_ns < 101_000);
    assert!((response.mean_ns / 50_500.0 - 1.0).abs() < 0.01, "{response:?}");
    assert_eq!(native.service.clone().unwrap().count, 2);
    assert_eq!(analyse_costs(&record).findings[0].response, None);

    record.slices[0].response = b"no histogram".to_vec();
    let analysis = analyse(&record);
    let native = named(&analysis, "native");
    assert_eq!(native.response.clone().unwrap().count, 99);
    assert!(
        native.doubts.iter().any(|(d, n)| matches!(d, Doubt::ProbeFailed { .. }) && *n == 1),
        "{:?}",
        native.doubts
    );
}

#[test]
fn headline_uses_fixed_rate_without_capacity() {
    let mut record = campaign(6, &RATIOS);
    for slice in &mut record.slices {
        slice.phase = Phase::Latency;
    }
    let analysis = analyse(&record);
    let proxy = named(&analysis, "proxy");
    assert_eq!((&proxy.server_cpu_cost, &proxy.throughput_cost), (&None, &None));
    assert!(proxy.server_cpu_cost_at_rate.clone().unwrap().found);
    assert!(analysis.arithmetic[0].contains("at the fixed rate"), "{:#?}", analysis.arithmetic);
}

#[test]
fn rising_throughput_is_a_doubt() {
    let warming = |rise_per_round: f64, rounds: u32, warm_up_s: u64| {
        let mut record = campaign(rounds, &RATIOS);
        record.study.schedule.warm_up = Duration::from_secs(warm_up_s);
        for slice in record.slices.iter_mut().filter(|slice| slice.environment == "bridge") {
            let faster = 1.0 + rise_per_round * f64::from(slice.round);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
            let window_ns = (WINDOW_NS as f64 / faster) as u64;
            slice.window_ns = window_ns;
        }
        let analysis = analyse(&record);
        assert!(named(&analysis, "native").doubts.is_empty(), "its throughput stays");
        named(&analysis, "bridge").doubts.clone()
    };
    // From 1.02 to 1.18 in the middle of the thirds of 12 rounds of 2 %: 16 %.
    let doubt = |warm_up: u64| {
        let [(doubt, 12)] = &warming(0.02, 12, warm_up)[..] else { panic!() };
        doubt.clone()
    };
    let Doubt::StillWarming { percent, warm_up_s: None } = doubt(0) else { panic!() };
    assert!((percent - 15.5).abs() < 1.0, "{percent}");
    assert!(doubt(0).advice().ends_with("give the schedule a warm_up"));
    assert!(doubt(90).text().ends_with("to the last, after a warm_up of 90 s"));
    assert!(doubt(90).advice().ends_with("give the schedule a longer warm_up"));
    let warming = |rise, rounds| warming(rise, rounds, 0);
    assert!(warming(0.01, 12).is_empty(), "hosts drift by less");
    assert!(warming(0.1, 9).is_empty(), "too few rounds");
    assert!(warming(-0.02, 12).is_empty(), "a system that slows down is not warming");
}

#[test]
fn throughput_of_a_limited_client_tests_no_published_loss() {
    let mut record = campaign(12, &RATIOS);
    record.study.published = vec![PublishedRelation {
        environment: "proxy".into(),
        against: None,
        workload: None,
        claim: Claim::Throughput(Expected::Value(80.0)),
        within_percent: None,
        source: "a paper".into(),
        hardware: None,
    }];
    let verdict = |record: &Record| relations(record).pop().unwrap().verdict;
    assert_eq!(verdict(&record), super::Verdict::Contradicted);
    let ids = record.slices.iter().filter(|s| s.environment == "native").map(|s| s.id);
    let limited = |id: i64| DoubtRecord {
        slice: Some(id),
        environment: None,
        doubt: Doubt::ClientSaturated { share: 0.97, busiest_thread_share: None },
    };
    record.doubts = ids.take(2).map(limited).collect();
    assert_eq!(verdict(&record), super::Verdict::Contradicted, "two of twelve slices");
    let third = record.slices.iter().rfind(|s| s.environment == "native").unwrap().id;
    record.doubts.push(limited(third));
    let why = Untestable::ClientSaturated { environment: "native".into() };
    assert_eq!(verdict(&record), super::Verdict::NotTestable { why });
}

#[test]
fn groups_doubts_by_kind_at_their_worst() {
    let mut record = campaign(8, &RATIOS);
    let bridge: Vec<i64> =
        record.slices.iter().filter(|s| s.environment == "bridge").map(|s| s.id).collect();
    let mut doubt = |slice: Option<i64>, environment: Option<&str>, doubt: Doubt| {
        let environment = environment.map(str::to_string);
        record.doubts.push(DoubtRecord { slice, environment, doubt });
    };
    doubt(Some(bridge[0]), None, Doubt::Steal { share: 0.1 });
    doubt(Some(bridge[1]), None, Doubt::Steal { share: 0.3 });
    doubt(Some(bridge[1]), None, Doubt::Steal { share: 0.2 });
    doubt(None, Some("proxy"), Doubt::ClientSharesCpus { cpus: "0".into() });
    doubt(None, None, Doubt::BaselineNotClean { found: "docker0".into() });
    doubt(None, Some("gone"), Doubt::Throttled { share: 0.5 });
    record.environments.push(EnvironmentRecord {
        left_out: Some("runsc is not installed".into()),
        ..environment("gone", false)
    });
    let analysis = analyse(&record);
    assert_eq!(named(&analysis, "bridge").doubts, [(Doubt::Steal { share: 0.3 }, 2)]);
    assert_eq!(
        named(&analysis, "proxy").doubts,
        [(Doubt::ClientSharesCpus { cpus: "0".into() }, 8)]
    );
    assert_eq!(named(&analysis, "native").doubts, []);
    assert_eq!(
        analysis.doubts,
        [
            Doubt::BaselineNotClean { found: "docker0".into() },
            Doubt::Throttled { share: 0.5 },
            Doubt::EnvironmentLeftOut {
                environment: "gone".into(),
                reason: "runsc is not installed".into()
            },
        ]
    );
    assert!(analysis.findings.iter().all(|finding| finding.environment != "gone"));
}

#[test]
fn missing_control_of_a_runtime_is_a_doubt() {
    let with_control = |left_out: Option<&str>| {
        let mut record = campaign(8, &RATIOS);
        let runtime = crate::layer::Runtime::from("oci:runc");
        record.environments[1].spec.runtime = runtime.clone();
        record.environments[1].spec.network = crate::layer::Network::Bridge { proxy: false };
        let mut control = environment("native in oci:runc", false);
        control.spec.runtime = runtime;
        control.left_out = left_out.map(str::to_string);
        record.environments.push(control);
        analyse(&record)
    };
    let analysis = with_control(Some("no memory"));
    let reason = "\"native in oci:runc\" was left out: no memory".to_string();
    let doubt = Doubt::NoRuntimeControl { runtime: "oci:runc".into(), reason };
    assert_eq!(named(&analysis, "bridge").doubts, [(doubt, 8)]);
    assert_eq!(named(&analysis, "proxy").doubts, []);
    assert_eq!(named(&analysis, "bridge").runtime_control, None);
    let analysis = with_control(None);
    assert_eq!(named(&analysis, "bridge").doubts, []);
    let control = named(&analysis, "bridge").runtime_control.as_deref();
    assert_eq!(control, Some("native in oci:runc"));
}

#[test]
fn arithmetic_can_be_recomputed() {
    let analysis = analyse(&campaign(31, &RATIOS));
    let lines = &analysis.arithmetic;
    assert_eq!(lines[0], "proxy against native, write: server CPU time per operation at capacity");
    // `a µs / b µs = ratio per operation (...)`: the printed ratio is that of the printed figures.
    let (quotient, rest) = lines[1].split_once(" = ").unwrap();
    let figures: Vec<f64> = quotient
        .split(" / ")
        .map(|figure| figure.trim_end_matches(" µs").parse().unwrap())
        .collect();
    let ratio: f64 = rest.split(' ').next().unwrap().parse().unwrap();
    assert!((figures[0] / figures[1] / ratio - 1.0).abs() < 2e-3, "{}", lines[1]);
    assert!(lines[1].contains("(paired over 31 rounds: 1."), "{}", lines[1]);
    assert!(lines[2].starts_with("cost: ") && lines[2].contains("95 % ["), "{}", lines[2]);
    assert!(lines.iter().any(|l| l.starts_with("throughput: ")), "{lines:#?}");
    assert!(lines.iter().any(|l| l.starts_with("A/A, native-again: ")), "{lines:#?}");
}

#[test]
fn client_share_counts_client_cpus() {
    let analysis = analyse(&campaign(6, &[("native", 1.0), ("bridge", 1.0)]));
    // 4 µs x 100,000 operations in a second on one CPU.
    let share = named(&analysis, "native").client_cpu_share.unwrap();
    assert!((share - 0.4).abs() < 1e-9, "{share}");
    assert!((named(&analysis, "native").client_cpu_us.unwrap().value - 4.0).abs() < 0.01);
}
