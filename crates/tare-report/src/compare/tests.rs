use serde_json::Value;
use tare_lab::analysis::{Cost, Interval};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::{Cgroup, Layer};
use tare_stats::law::{Noise, Verdict};

use super::costs::between;
use super::*;
use crate::fixture::{self, Machine};
use crate::headline::Metric;
use crate::layout::Style;

const QUIET: [Noise; 2] = [Noise::NoControl, Noise::NoControl];

fn cost_of(value: f64, low: f64, high: f64) -> Cost {
    let percent = Interval { value, low, high, rounds: 12 };
    Cost { percent, found: low > 0.0 || high < 0.0, within_percent: low.abs().max(high.abs()) }
}

fn on(seed: u64, speed: f64, burden: f64) -> Named {
    let (record, analysis) = fixture::on(Machine { seed, speed, burden, latencies: false }, 12);
    (format!("machine-{seed}.tare"), record, analysis)
}

fn holds(interval: &Interval, truth: f64) -> bool {
    interval.low <= truth && truth <= interval.high
}

#[test]
fn equal_costs_differ_by_nothing() {
    let a = cost_of(20.0, 18.0, 22.0);
    for metric in Metric::ALL {
        let none = between(&a, &a, metric, QUIET).unwrap().cost;
        assert!(!none.found && none.percent.value.abs() < 1e-9, "{none:?}");
    }
}

#[test]
fn the_difference_is_the_ratio_of_the_ratios() {
    let (a, b) = (cost_of(10.0, 9.0, 11.0), cost_of(32.0, 31.0, 33.0));
    let more = between(&a, &b, Metric::ServerCpu, QUIET).unwrap().cost;
    assert!((more.percent.value - 20.0).abs() < 1e-9 && more.found, "{more:?}");
    // 0.9 of the baseline against 0.45 of it: half of what the first keeps is lost.
    let (a, b) = (cost_of(10.0, 9.0, 11.0), cost_of(55.0, 54.0, 56.0));
    let lost = between(&a, &b, Metric::Throughput, QUIET).unwrap().cost;
    assert!((lost.percent.value - 50.0).abs() < 1e-9 && lost.percent.low < 50.0, "{lost:?}");
}

#[test]
fn wide_and_missing_intervals_claim_no_difference() {
    let (a, b) = (cost_of(10.0, 0.0, 20.0), cost_of(15.0, 5.0, 25.0));
    assert!(!between(&a, &b, Metric::ServerCpu, QUIET).unwrap().cost.found);
    let mut unknown = cost_of(10.0, f64::NEG_INFINITY, f64::INFINITY);
    unknown.percent.rounds = 1;
    let none = between(&a, &unknown, Metric::ServerCpu, QUIET).unwrap();
    assert!(!none.cost.found && !none.cost.percent.is_bounded(), "{none:?}");
    let all = cost_of(100.0, 100.0, 100.0);
    assert!(between(&a, &all, Metric::Throughput, QUIET).is_none());
}

#[test]
fn nothing_below_the_noise_of_both_controls_is_claimed() {
    let (a, b) = (cost_of(10.0, 9.9, 10.1), cost_of(13.0, 12.9, 13.1));
    let claimed = |noises| between(&a, &b, Metric::ServerCpu, noises).unwrap().claimed();
    assert!(claimed([Noise::Within(0.5), Noise::Within(1.0)]));
    assert!(!claimed([Noise::Within(2.0), Noise::Within(2.5)]), "3.2 % together");
    assert!(!claimed([Noise::Within(0.5), Noise::Unknown]));
}

/// Records of machines with known ratios: at least 93 of 100 intervals hold the truth.
#[test]
fn known_ratios_are_recovered() {
    let (speed, burden) = (1.4, 1.05);
    let mut held = [0; 3];
    let runs = 60;
    for run in 0..runs {
        let records = [on(2 * run + 1, 1.0, 1.0), on(2 * run + 2, speed, burden)];
        let prices = ["A=2/h".parse().unwrap(), "B=4/h".parse().unwrap()];
        let comparison = Comparison::new(&records, &prices).unwrap();
        let cost = comparison.costs.iter().find(|row| row.environment == "docker-default").unwrap();
        let difference = cost.differences_to_first[1].as_ref().unwrap();
        held[0] += u32::from(holds(&difference.cost.percent, 100.0 * (burden - 1.0)));
        let row = comparison.figures.iter().find(|row| row.environment == "+ cpuset").unwrap();
        let figures = row.records[1].as_ref().unwrap();
        held[1] += u32::from(holds(&figures.throughput_vs_first.unwrap().interval, speed));
        let money = figures.operations_per_money_vs_first.unwrap().interval;
        held[2] += u32::from(holds(&money, speed / 2.0));
    }
    // 60 runs at 95 %: fewer than 52 happen by chance once in 2,000.
    assert!(held.iter().all(|held| *held >= 52), "{held:?} of {runs}");
}

#[test]
fn swapping_records_inverts_every_ratio() {
    for seed in 0..8 {
        let (a, b) = (on(10 + seed, 1.0, 1.0), on(90 + seed, 0.8, 1.2));
        let there = [a.clone(), b.clone()];
        let back = [b, a];
        let prices = ["1=2/h".parse().unwrap(), "2=3/h".parse().unwrap()];
        let swapped = ["2=2/h".parse().unwrap(), "1=3/h".parse().unwrap()];
        let (there, back) =
            (Comparison::new(&there, &prices).unwrap(), Comparison::new(&back, &swapped).unwrap());
        for (row, other) in there.figures.iter().zip(&back.figures) {
            let pair = [row, other].map(|row| {
                let figures = row.records[1].as_ref().unwrap();
                [
                    figures.throughput_vs_first,
                    figures.throughput_per_cpu_vs_first,
                    figures.server_cpu_vs_first,
                    figures.operations_per_money_vs_first,
                ]
                .map(|ratio| ratio.unwrap())
            });
            for (x, y) in pair[0].iter().zip(&pair[1]) {
                let products = [
                    x.interval.value * y.interval.value,
                    x.interval.low * y.interval.high,
                    x.interval.high * y.interval.low,
                ];
                assert!(products.iter().all(|one| (one - 1.0).abs() < 1e-9), "{x:?} {y:?}");
                assert_eq!(x.found, y.found);
            }
        }
        for (row, other) in there.costs.iter().zip(&back.costs) {
            let keeps = |row: &CostRow<'_>| {
                let percent = row.differences_to_first[1].as_ref().unwrap().cost.percent;
                match row.metric {
                    Metric::ServerCpu => 1.0 + percent.value / 100.0,
                    Metric::Throughput => 1.0 - percent.value / 100.0,
                }
            };
            assert!((keeps(row) * keeps(other) - 1.0).abs() < 1e-9);
        }
    }
}

#[test]
fn prices_find_their_records() {
    let records = [on(1, 1.0, 1.0), on(2, 1.0, 1.0)];
    let priced = |texts: &[&str]| -> Result<Vec<Option<f64>>, PriceError> {
        let tags: Vec<PriceTag> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let comparison = Comparison::new(&records, &tags)?;
        Ok(comparison.prices.iter().map(|p| p.as_ref().map(|p| p.amount)).collect())
    };
    for (texts, expected) in [
        (&["A=4.99/h", "B=3.2/h"][..], [Some(4.99), Some(3.2)]),
        (&["2=3.2USD/h"], [None, Some(3.2)]),
        (&["machine-1=1/h", "machine-2.tare=2/h"], [Some(1.0), Some(2.0)]),
    ] {
        assert_eq!(priced(texts), Ok(expected.to_vec()), "{texts:?}");
    }
    let unknown = priced(&["C=1/h"]).unwrap_err().to_string();
    assert!(unknown.contains("A (machine-1.tare), B (machine-2.tare)"), "{unknown}");
    assert!(priced(&["A=1/h", "1=2/h"]).unwrap_err().to_string().contains("two prices"));
    for (text, part) in
        [("4.99/h", "names no record"), ("=1/h", "names no record"), ("A=1", "no price")]
    {
        let error = text.parse::<PriceTag>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn misleading_comparisons_have_warnings() {
    use WarningKind as Kind;
    type Change = fn(&mut Named);
    let changes: [(Kind, Change); 10] = [
        (Kind::Workload, |one| one.1.study.workloads[0].rows = 7),
        (Kind::Workload, |one| one.1.study.workloads[0].in_flight = 7),
        (Kind::System, |one| one.1.study.system.options.clear()),
        (Kind::Database, |one| one.1.header.tare_version = "0.2.0".into()),
        (Kind::Environment, |one| one.1.environments[1].spec.network = "host".parse().unwrap()),
        (Kind::CpuFigure, |one| one.2.findings[2].server_cpu_is_busy_time ^= true),
        (Kind::Rate, |one| one.1.header.rates[0].1 *= 2.0),
        (Kind::Cpus, |one| one.1.cpu_plan.system = "2-9".parse().unwrap()),
        (Kind::Control, |one| one.2.findings.retain(|finding| !finding.control)),
        (Kind::NotFinished, |one| one.1.header.ended_unix_ms = None),
    ];
    let kinds = |records: &[Named]| -> Vec<Kind> {
        let comparison = Comparison::new(records, &[]).unwrap();
        comparison.warnings.iter().map(|warning| warning.kind).collect()
    };
    let plain = kinds(&[on(1, 1.0, 1.0), on(2, 1.0, 1.0)]);
    for (kind, change) in changes {
        let mut records = [on(1, 1.0, 1.0), on(2, 1.0, 1.0)];
        change(&mut records[1]);
        assert!(kinds(&records).contains(&kind), "{kind:?}");
        // One control in twenty differs by chance.
        assert!(kind == Kind::Control || !plain.contains(&kind), "{kind:?} in {plain:?}");
    }
    assert!(kinds(&[on(1, 1.0, 1.0), on(1, 1.0, 1.0)]).contains(&Kind::SameRun));
    let mut other = on(2, 1.0, 1.0);
    other.2.findings.iter_mut().for_each(|f| f.environment.push('!'));
    assert!(kinds(&[on(1, 1.0, 1.0), other]).contains(&Kind::NothingInCommon));
}

#[test]
fn latencies_at_other_rates_and_money_in_other_currencies_are_not_compared() {
    let mut records = [on(1, 1.0, 1.0), on(2, 1.0, 1.0)];
    records[1].1.header.rates[0].1 *= 2.0;
    let prices = ["A=2USD/h".parse().unwrap(), "B=2EUR/h".parse().unwrap()];
    let comparison = Comparison::new(&records, &prices).unwrap();
    let figures = comparison.figures[0].records[1].as_ref().unwrap();
    assert!(!figures.same_rate_as_first);
    assert!(
        figures.operations_per_money.is_some() && figures.operations_per_money_vs_first.is_none()
    );
}

#[test]
fn records_of_any_kind_can_be_compared() {
    let all = [fixture::quick(), fixture::empty(), fixture::hostile(), fixture::single_round()];
    let named: Vec<Named> =
        all.into_iter().map(|(record, analysis)| ("x".to_string(), record, analysis)).collect();
    for records in [&named[..], &named[..1], &named[1..2], &named[..0]] {
        let comparison = Comparison::new(records, &[]).unwrap();
        let text = terminal(&comparison, Style::new(false, 140));
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()));
        assert!(serde_json::from_str::<Value>(&json(&comparison)).is_ok());
        for text in [markdown(&comparison), csv(&comparison)] {
            assert!(!text.contains("NaN"), "{text}");
        }
        assert!(!markdown(&comparison).contains("<script"));
        let page = crate::html::comparison(&comparison);
        for markup in ["<script>alert", "<img", "<td>NaN", "inf%"] {
            assert!(!page.contains(markup), "{markup:?} got through");
        }
    }
}

/// Two records whose environments of one name differ in one layer.
fn differing_in(layer: Layer) -> [Named; 2] {
    let mut records = [on(1, 1.0, 1.0), on(2, 1.0, 1.0)];
    for record in &mut records {
        let spec = &mut record.1.environments[1].spec;
        *spec = tare_lab::fake::spec(&spec.name, "process");
    }
    let spec = &mut records[1].1.environments[1].spec;
    *spec = tare_lab::fake::changed(layer, spec);
    records
}

#[test]
fn differing_layers_have_a_warning_and_a_fact() {
    for layer in Layer::ALL {
        let records = differing_in(layer);
        let [(_, one, _), (_, other, _)] = &records;
        let specs = [&one.environments[1].spec, &other.environments[1].spec];
        let comparison = Comparison::new(&records, &[]).unwrap();
        let warned: Vec<&str> = comparison
            .warnings
            .iter()
            .filter(|warning| warning.text.contains(" differs in "))
            .map(|warning| warning.text.as_str())
            .collect();
        let expect = format!(
            "environment {} differs in {layer} (A {}, B {}): equal names, different environments",
            specs[0].name,
            layer.text(specs[0]),
            layer.text(specs[1]),
        );
        assert_eq!(warned, [expect], "{layer}");
        let section = format!("environment {}", specs[0].name);
        let listed: Vec<&str> = comparison
            .differing
            .iter()
            .filter(|fact| fact.section == section)
            .map(|fact| fact.key.as_str())
            .collect();
        assert_eq!(listed, [layer.name()]);
    }
}

#[test]
fn differing_file_systems_have_a_warning() {
    let mut records = differing_in(Layer::Storage);
    for (record, kind) in records.iter_mut().zip(["ext4", "xfs"]) {
        record.1.environments[1].spec.storage.kind = kind.into();
        record.1.environments[1].spec.storage.options.clear();
    }
    let comparison = Comparison::new(&records, &[]).unwrap();
    let warned = |text: &str| comparison.warnings.iter().any(|one| one.text.contains(text));
    assert!(warned("differs in storage (A ext4, B xfs)"), "{:?}", comparison.warnings);
}

/// Two records of a storage load in a VM of 2 GiB, on machines of 4 CPUs and 16 GiB.
fn guests() -> [Named; 2] {
    [1, 2].map(|seed| {
        let (name, mut record, analysis) = on(seed, 1.0, 1.0);
        for workload in &mut record.study.workloads {
            workload.options.push(("bs".into(), "4k".into()));
        }
        record.host.push(tare_lab::record::HostFact {
            section: "memory".into(),
            key: "total".into(),
            value: "16777216 kB".into(),
        });
        for environment in &mut record.environments {
            if environment.spec.name == "+ no seccomp" {
                environment.layers.push(tare_lab::environment::LayerState {
                    layer: "vm.memory".into(),
                    wanted: (2u64 << 30).to_string(),
                    found: format!("MemTotal inside: {} bytes", (2u64 << 30) - (64 << 20)),
                    in_force: true,
                });
            }
        }
        (name, record, analysis)
    })
}

#[test]
fn a_price_is_divided_by_cpus_and_by_memory() {
    let records = guests();
    let prices = ["A=1.6EUR/h".parse().unwrap()];
    let comparison = Comparison::new(&records, &prices).unwrap();
    let [first, second] = comparison.machines.as_slice() else { panic!("two records") };
    assert_eq!((first.cpus, first.memory_bytes), (4, Some(16 << 30)));
    assert!((first.price_per_cpu_hour.unwrap() - 0.4).abs() < 1e-9);
    assert!((first.price_per_gib_hour.unwrap() - 0.1).abs() < 1e-9);
    assert_eq!((second.price_per_cpu_hour, second.price_per_gib_hour), (None, None));
    let text = terminal(&comparison, Style::new(false, 120));
    assert!(text.contains("1.60 EUR") && text.contains("0.400 EUR"), "{text}");
}

#[test]
fn layers_keep_cpu_time_and_memory() {
    let records = guests();
    let prices = ["A=1.6EUR/h".parse().unwrap()];
    let comparison = Comparison::new(&records, &prices).unwrap();
    let of = |environment: &str| {
        let row = comparison.kept.iter().find(|row| row.environment == environment);
        row.and_then(|row| row.records[0].clone())
    };
    assert_eq!(of("native"), None, "nothing is kept without a layer");
    let guest = of("+ no seccomp").unwrap();
    assert_eq!((guest.memory_bytes, guest.layer_cpus), (Some(64 << 20), None));
    assert!((guest.share - 1.0 / 256.0).abs() < 1e-9, "{guest:?}");
    assert!((guest.money_per_hour.unwrap() - 1.6 / 256.0).abs() < 1e-9, "{guest:?}");
    // The fixture's proxy takes a fifth of the system's CPU time.
    let proxy = of("docker-default").unwrap();
    let slices = records[0].1.slices.iter().filter(|s| s.environment == "docker-default");
    let cpus = proxy.layer_cpus.unwrap();
    let per_slice: Vec<f64> = slices
        .filter(|s| s.phase == tare_lab::record::Phase::Capacity)
        .map(|s| s.layer_cpu_ns[0].1 as f64 / s.window_ns as f64)
        .collect();
    let mean = per_slice.iter().sum::<f64>() / per_slice.len() as f64;
    assert!(holds(&cpus, mean) && (proxy.share - cpus.value / 4.0).abs() < 1e-9, "{proxy:?}");
    let shown = markdown(&comparison);
    assert!(shown.contains("Kept by the layers: write") && shown.contains("64.0 MiB"), "{shown}");
    assert!(csv(&comparison).contains("memory_kept,B,67108864"));
}

#[test]
fn bandwidths_of_two_records_stand_side_by_side() {
    let records = guests();
    let comparison = Comparison::new(&records, &[]).unwrap();
    let figures = comparison.figures[0].records[1].clone().unwrap();
    let bytes = figures.bandwidth_bytes_per_s.unwrap();
    assert!((bytes.value / figures.throughput_per_s.unwrap().value - 4096.0).abs() < 1e-6);
    let text = terminal(&comparison, Style::new(false, 120));
    assert!(text.contains("Disk: write") && text.contains(" MB/s"), "{text}");
    let json: Value = serde_json::from_str(&json(&comparison)).unwrap();
    assert!(json["figures"][0]["records"][0]["bandwidth_bytes_per_s"]["value"].is_f64());
    assert_eq!(json["machines"][0]["cpus"], 4);
}

/// Two records of one host: "docker-default" of the first is called "podman" in the second.
fn renamed() -> [Record; 2] {
    let [a, mut b] = [on(1, 1.0, 1.0).1, on(2, 1.0, 1.2).1];
    b.rename_environment("docker-default", "podman=4");
    [a, b]
}

fn compared<'r>(named: &'r mut Vec<Named>, records: [Record; 2], text: &str) -> Comparison<'r> {
    let mut records = records.to_vec();
    let pairs = pair(&mut records, &[text.to_string()]).unwrap();
    let analysed = |record: Record| {
        let analysis = tare_lab::analysis::analyse(&record);
        ("x.tare".to_string(), record, analysis)
    };
    named.extend(records.into_iter().map(analysed));
    Comparison::paired(named, &[], pairs).unwrap()
}

#[test]
fn pair_is_compared_under_both_names() {
    let (mut named, mut apart) = (Vec::new(), Vec::new());
    let comparison = compared(&mut named, renamed(), " docker-default =podman=4");
    let label = "docker-default = podman=4";
    let row = comparison.costs.iter().find(|row| row.environment == label).unwrap();
    let difference = row.differences_to_first[1].as_ref().unwrap();
    assert!(difference.claimed() && holds(&difference.cost.percent, 20.0), "{difference:?}");
    assert!(comparison.only_in_some.is_empty(), "{:?}", comparison.only_in_some);
    assert!(comparison.has_claimed_difference(true));
    let document: Value = serde_json::from_str(&json(&comparison)).unwrap();
    assert_eq!(document["pairs"][0]["names"][1], "podman=4");
    // The baseline keeps its control.
    let pair = "native=native";
    let comparison = compared(&mut apart, renamed(), pair);
    assert_eq!(comparison.only_in_some.len(), 2);
    assert!(comparison.figures.iter().any(|row| row.baseline && row.environment == "native"));
}

#[test]
fn renamed_baseline_keeps_its_control() {
    let [a, mut b] = renamed();
    b.rename_environment("native", "old kernel");
    let mut named = Vec::new();
    let comparison = compared(&mut named, [a, b], "native=old kernel");
    let controls = comparison.costs.iter().filter(|row| row.control).count();
    assert!(controls > 0 && comparison.figures.iter().any(|row| row.baseline));
    let kinds: Vec<WarningKind> = comparison.warnings.iter().map(|one| one.kind).collect();
    assert!(!kinds.contains(&WarningKind::Baseline), "{:?}", comparison.warnings);
}

/// Across runtimes, the runtimes' own controls bound what may be claimed.
#[test]
fn pair_across_runtimes_has_the_noise_of_their_controls() {
    let [a, mut b] = renamed();
    // The layers of the baseline under Docker: their cost is noise of every comparison with it.
    let native = b.environments[0].spec.clone();
    for one in b.environments.iter_mut().filter(|one| one.spec.name == "+ cpuset") {
        let (name, runtime) = (one.spec.name.clone(), "docker".into());
        one.spec = EnvironmentSpec { name, runtime, cgroup: Cgroup::Own, ..native.clone() };
    }
    let mut named = Vec::new();
    let comparison = compared(&mut named, [a, b], "+ no cgroup=+ cpuset");
    let row = comparison.costs.iter().find(|row| row.environment.contains(" = ")).unwrap();
    let difference = row.differences_to_first[1].as_ref().unwrap();
    assert!(difference.cost.found && difference.cost.percent.value > 15.0, "{difference:?}");
    assert_eq!(difference.verdict, Verdict::WithinNoise);
}

#[test]
fn wrong_pairs_are_refused() {
    let refused = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_string()).collect();
        pair(&mut renamed(), &texts).unwrap_err().to_string()
    };
    for text in ["", "docker-default", "docker-default=podman", "podman=4=docker-default"] {
        let error = refused(&[text]);
        assert!(error.contains("B has \"native\", \"podman=4\""), "{text}: {error}");
    }
    let twice = refused(&["docker-default=podman=4", "docker-default=native"]);
    assert!(twice.contains("\"docker-default\" of A is in two pairs"), "{twice}");
}
