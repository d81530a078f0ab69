//! Reads from a record what each flag gains: from two environments that differ in one layer alone,
//! paired round by round.

use std::collections::BTreeMap;

use tare_lab::analysis::{Cost, analyse_costs, pair_costs};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::{Cpu, Network, Security};
use tare_lab::record::Record;
use tare_tune::flags::Layer;

const LAYERS: [(Layer, &str); 4] = [
    (Layer::Cpu, "cpu"),
    (Layer::Network, "network"),
    (Layer::Security, "security"),
    (Layer::Memory, "limits"),
];

/// Returns a sentence for each layer and workload that the record has a figure of, and notes about
/// the others. `name` is the name of the record in them.
pub(super) fn read(
    record: &Record,
    name: &str,
    consumer: &str,
) -> (BTreeMap<Layer, Vec<String>>, Vec<String>) {
    let mut measured: BTreeMap<Layer, Vec<String>> = BTreeMap::new();
    let mut unknown = Vec::new();
    for (layer, key) in LAYERS {
        for workload in &record.study.workloads {
            let sentences = pairs(record, layer, key, consumer).into_iter().filter_map(|pair| {
                let found =
                    pair_costs(record, &workload.name, &pair.without.name, &pair.with.name)?;
                let of = record.study.system.name.as_str();
                let (without, with) = (&pair.without.name, &pair.with.name);
                let cpu = found
                    .cpu
                    .as_ref()
                    .map(|cost| phrase(cost, "server CPU per operation", ["more", "less"]));
                let throughput = found
                    .throughput
                    .as_ref()
                    .map(|cost| phrase(cost, "throughput", ["less", "more"]));
                let parts: Vec<String> = cpu.into_iter().chain(throughput).collect();
                Some(format!(
                    "{name} ({of}, {}), without it ({without:?} against {with:?}): {}.",
                    workload.name,
                    parts.join("; ")
                ))
            });
            // The first pair is the closest one to the consumer.
            measured.entry(layer).or_default().extend({ sentences }.next());
        }
        if measured.get(&layer).is_none_or(Vec::is_empty) {
            unknown.push(key);
        }
    }
    let mut notes = Vec::new();
    if !unknown.is_empty() {
        notes.push(format!(
            "{name} has no two environments that differ in one of these alone, so their flags have \
             no figure: {}.",
            unknown.join(", ")
        ));
    }
    for doubt in analyse_costs(record).doubts {
        notes.push(format!("{name} is in doubt: {}. {}", doubt.text(), doubt.advice()));
    }
    (measured, notes)
}

/// Two environments: one with the flag's setting, one without.
struct Pair<'r> {
    without: &'r EnvironmentSpec,
    with: &'r EnvironmentSpec,
}

/// Returns the pairs of a layer, the closest to the consumer first.
fn pairs<'r>(record: &'r Record, layer: Layer, key: &str, consumer: &str) -> Vec<Pair<'r>> {
    let ran = record.environments.iter().filter(|e| e.left_out.is_none() && !e.control);
    let specs: Vec<&EnvironmentSpec> = ran.map(|environment| &environment.spec).collect();
    let mut pairs = Vec::new();
    for &without in &specs {
        for &with in &specs {
            if is_step(layer, without, with) && only_difference(without, with, key) {
                pairs.push(Pair { without, with });
            }
        }
    }
    pairs.sort_by_key(|pair| distance(pair.with.runtime.as_str(), consumer));
    pairs
}

/// Returns whether the flag changes `without` into `with`.
fn is_step(layer: Layer, without: &EnvironmentSpec, with: &EnvironmentSpec) -> bool {
    match layer {
        Layer::Cpu => with.cpu == Cpu::Pinned && without.cpu != Cpu::Pinned,
        Layer::Network => with.network == Network::Host && without.network != Network::Host,
        Layer::Security => {
            with.security == Security::DefaultWithIoUring && without.security == Security::Default
        }
        Layer::Memory => {
            with.limits.memory_bytes.is_some() && without.limits.memory_bytes.is_none()
        }
    }
}

/// Returns whether two environments differ in no layer except this one.
fn only_difference(one: &EnvironmentSpec, other: &EnvironmentSpec, key: &str) -> bool {
    tare_lab::ablation::changes(one, other).iter().all(|change| change.layer.name() == key)
}

/// Returns how far a runtime is from the consumer of the flags: 0 the same, 1 the same kind, 2
/// another.
fn distance(runtime: &str, consumer: &str) -> u8 {
    let family = runtime.split(':').next().unwrap_or(runtime);
    let native = matches!(consumer, "systemd" | "tare-db" | "cassandra");
    match (family == "process", native) {
        _ if family == consumer => 0,
        (process, native) if process == native => 1,
        _ => 2,
    }
}

/// Returns a cost in words. `loss` and `gain` are the words for its direction.
fn phrase(cost: &Cost, what: &str, [loss, gain]: [&str; 2]) -> String {
    let percent = cost.percent;
    if !percent.is_bounded() {
        return format!("too few rounds for {what}");
    }
    if !cost.found {
        return format!("no difference found in {what} (within {:.1} %)", cost.within_percent);
    }
    let word = if percent.value > 0.0 { loss } else { gain };
    // The bounds of a gain are negated and swapped, so that the smaller one is first.
    let (low, high) = match percent.value > 0.0 {
        true => (percent.low, percent.high),
        false => (-percent.high, -percent.low),
    };
    format!("{:.1} % {word} {what} [{low:.1}, {high:.1}]", percent.value.abs())
}

#[cfg(test)]
mod tests {
    use tare_lab::analysis::Interval;
    use tare_lab::environment::Limits;

    use super::*;

    fn spec(runtime: &str, network: &str, cpu: &str) -> EnvironmentSpec {
        let spec = serde_json::json!({
            "name": format!("{runtime} {network} {cpu}"), "runtime": runtime, "network": network,
            "cpu": cpu, "security": "default", "cgroup": "own", "limits": Limits::default(),
        });
        serde_json::from_value(spec).unwrap()
    }

    #[test]
    fn environments_are_paired_if_one_layer_differs() {
        let bridge = spec("docker", "bridge", "pinned");
        let host = spec("docker", "host", "pinned");
        assert!(is_step(Layer::Network, &bridge, &host));
        assert!(!is_step(Layer::Network, &host, &bridge));
        assert!(only_difference(&bridge, &host, "network"));
        assert!(!only_difference(&bridge, &spec("docker", "host", "shared"), "network"));
        assert!(!only_difference(&bridge, &spec("podman", "host", "pinned"), "network"));
    }

    #[test]
    fn closest_runtime_comes_first() {
        assert_eq!(distance("docker:runsc", "docker"), 0);
        assert_eq!(distance("oci:runc", "docker"), 1);
        assert_eq!(distance("process", "docker"), 2);
        assert_eq!(distance("process", "tare-db"), 1);
        assert_eq!(distance("oci:runc", "systemd"), 2);
    }

    #[test]
    fn phrases_have_the_interval_or_its_absence() {
        let cost = |value: f64, low: f64, high: f64, found: bool| Cost {
            percent: Interval { value, low, high, rounds: 20 },
            found,
            within_percent: low.abs().max(high.abs()),
        };
        let text = |cost: Cost| phrase(&cost, "throughput", ["less", "more"]);
        assert_eq!(text(cost(12.34, 10.0, 14.0, true)), "12.3 % less throughput [10.0, 14.0]");
        assert_eq!(text(cost(-12.34, -14.0, -10.0, true)), "12.3 % more throughput [10.0, 14.0]");
        let nothing = text(cost(0.4, -1.2, 2.1, false));
        assert_eq!(nothing, "no difference found in throughput (within 2.1 %)");
        let one = text(cost(5.0, f64::NEG_INFINITY, f64::INFINITY, false));
        assert_eq!(one, "too few rounds for throughput");
    }
}
