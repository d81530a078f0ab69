//! The cost of each layer that a record separates from the others, for a system that has the same
//! layers.

use serde::Serialize;
use tare_lab::ablation::{Plan, changes};
use tare_lab::analysis::{Analysis, Interval};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::record::Record;

use super::effects::{Effect, pair};
use super::facts::Facts;
use super::layer_changes::{Ends, HOST_AS_IS, LAYERS, LayerChange};

/// The cost of one layer under one workload.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerCost {
    /// Id of the change, such as `bridge`: that of its rule in `docs/reference/findings.md`.
    pub rule: &'static str,
    /// The layer as a noun.
    pub name: &'static str,
    pub workload: String,
    /// The environment with the layer, and the one without.
    pub with: String,
    pub without: String,
    /// `host → bridge`.
    pub change: String,
    /// Server CPU per operation that the layer adds, in µs and in percent.
    pub cpu_us: Option<Interval>,
    pub cpu_percent: Option<Interval>,
    /// Throughput that the layer takes, in percent.
    pub throughput_percent: Option<Interval>,
    pub cpu_claimed: bool,
    pub throughput_claimed: bool,
}

impl From<Effect> for LayerCost {
    fn from(effect: Effect) -> Self {
        Self {
            rule: effect.kind.rule,
            name: effect.kind.name,
            workload: effect.workload,
            with: effect.with,
            without: effect.without,
            change: effect.change,
            cpu_us: effect.us,
            cpu_percent: effect.percent,
            throughput_percent: effect.throughput,
            cpu_claimed: effect.cpu_claimed,
            throughput_claimed: effect.throughput_claimed,
        }
    }
}

/// Returns the costs that a record holds, that of a host which is not tuned included.
pub fn layer_costs(record: &Record, analysis: &Analysis) -> Vec<LayerCost> {
    let plan = Plan::of_record(record);
    let effects = Facts::new(record, analysis, &[], plan.as_ref()).effects;
    let ran = record.environments.iter().filter(|one| !one.control && one.left_out.is_none());
    let ran: Vec<&EnvironmentSpec> = ran.map(|one| &one.spec).collect();
    let workloads = record.study.workloads.iter();
    let host = workloads.filter_map(|one| pair(record, analysis, &one.name, &ran, &HOST_AS_IS));
    effects.into_iter().chain(host).map(LayerCost::from).collect()
}

/// Returns whether two of the environments differ in this change of a layer alone. The I/O engine
/// is taken to be what the change needs, because only a run shows it.
pub fn separates(rule: &str, environments: &[EnvironmentSpec]) -> bool {
    let is_change = |kind: &LayerChange, from: &EnvironmentSpec, to: &EnvironmentSpec| {
        let changes = changes(from, to);
        let [change] = changes.as_slice() else { return false };
        let engines = [[None, None], [Some("io_uring"), Some("epoll")]];
        let ends = engines.map(|engines| Ends { from: &change.from, to: &change.to, engines });
        change.layer == kind.layer && ends.iter().any(|ends| (kind.matches)(ends))
    };
    let mut kinds = LAYERS.iter().chain([&HOST_AS_IS]).filter(|kind| kind.rule == rule);
    kinds.any(|kind| {
        let all = || environments.iter();
        all().any(|from| all().any(|to| is_change(kind, from, to)))
    })
}
