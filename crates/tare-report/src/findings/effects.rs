//! The effect of a single layer, if the record separates it from the others: from two environments
//! that differ in it alone, or from its share in an explanation.

use tare_lab::ablation::{Explanation, Plan, Verdict, changes};
use tare_lab::analysis::{Analysis, Cost, Interval, pair_costs, server_cpu_by_round};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::record::Record;
use tare_stats::estimate;

use super::claim_filter::ClaimFilter;
use super::layer_changes::{Ends, LAYERS, LayerChange, NEIGHBOURS};
use crate::headline::{Metric, is_claim, noise};

/// The source of an effect.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// Two environments that differ in this layer alone.
    Pair,
    /// A share of an explanation, with its percentage of the whole.
    Share { of_whole: Option<f64> },
}

/// A layer's effect under one workload: `to` less `from`.
#[derive(Clone, Debug)]
pub(crate) struct Effect {
    pub(crate) kind: &'static LayerChange,
    pub(crate) workload: String,
    /// Name of the environment with the layer, and of the one without.
    pub(crate) with: String,
    pub(crate) without: String,
    /// `host → bridge`.
    pub(crate) change: String,
    /// Server CPU per operation in µs.
    pub(crate) us: Option<Interval>,
    /// Server CPU as paired ratios; a share has no interval.
    pub(crate) percent: Option<Interval>,
    pub(crate) throughput: Option<Interval>,
    /// Whether the loss or gain in CPU, in µs and as a ratio, and in throughput, may be claimed.
    pub(crate) cpu_claimed: bool,
    pub(crate) throughput_claimed: bool,
    /// Whether the intervals in µs and of the ratio exclude 0.
    pub(crate) found: bool,
    pub(crate) source: Source,
}

impl Effect {
    /// Whether one figure is a claimed loss, and none a claimed gain.
    pub(crate) fn costs(&self) -> bool {
        self.signs().contains(&1) && !self.signs().contains(&-1)
    }

    pub(crate) fn gives_back(&self) -> bool {
        self.signs().contains(&-1) && !self.signs().contains(&1)
    }

    /// Whether one figure is a claimed loss and the other a claimed gain.
    pub(crate) fn mixed(&self) -> bool {
        self.signs().contains(&-1) && self.signs().contains(&1)
    }

    fn signs(&self) -> [i8; 2] {
        let sign = |claimed: bool, figure: &Option<Interval>| match figure {
            Some(figure) if claimed && figure.value > 0.0 => 1,
            Some(figure) if claimed && figure.value < 0.0 => -1,
            _ => 0,
        };
        [sign(self.cpu_claimed, &self.percent), sign(self.throughput_claimed, &self.throughput)]
    }

    /// The larger claimed figure in percent, for the order of statements.
    pub(crate) fn size(&self) -> f64 {
        let of = |claimed: bool, figure: &Option<Interval>| {
            figure.filter(|_| claimed).map_or(0.0, |figure| figure.value.abs())
        };
        of(self.cpu_claimed, &self.percent).max(of(self.throughput_claimed, &self.throughput))
    }
}

/// Every effect in the record, at most one for each kind of change and workload.
pub(super) fn effects(
    record: &Record,
    analysis: &Analysis,
    plan: Option<&Plan>,
    explanations: &[Explanation],
) -> Vec<Effect> {
    let mut all = Vec::new();
    let ran: Vec<&EnvironmentSpec> = record
        .environments
        .iter()
        .filter(|one| !one.control && one.left_out.is_none())
        .map(|one| &one.spec)
        .collect();
    for workload in &record.study.workloads {
        let explained = plan.zip(explanations.iter().find(|one| one.workload == workload.name));
        for kind in LAYERS {
            let effect = match explained {
                Some((plan, found)) => share(record, analysis, plan, found, kind),
                None => None,
            };
            let effect = effect.or_else(|| pair(record, analysis, &workload.name, &ran, kind));
            all.extend(effect);
        }
        // If both parts have their own effects, drop their sum.
        let of = |one: &Effect, id: &str| one.workload == workload.name && one.kind.rule == id;
        let parts = ["io_uring_lost", "seccomp_filter"];
        if parts.iter().all(|id| all.iter().any(|one| of(one, id))) {
            all.retain(|one| !of(one, "seccomp_and_io_uring"));
        }
    }
    all
}

fn engine<'r>(record: &'r Record, environment: &str) -> Option<&'r str> {
    let found = record.environments.iter().find(|one| one.spec.name == environment)?;
    let setting = found.settings.iter().find(|(key, _)| key == "io_engine")?;
    Some(&setting.1)
}

/// The share of a step that consists of this layer alone.
fn share(
    record: &Record,
    analysis: &Analysis,
    plan: &Plan,
    found: &Explanation,
    kind: &'static LayerChange,
) -> Option<Effect> {
    let end = |at: usize| plan.environments.get(at).map_or("", |one| one.environment.as_str());
    let (first, last) = (end(0), end(plan.environments.len().saturating_sub(1)));
    let share = found.shares.iter().find(|share| {
        let step = plan.steps.get(share.step);
        step.is_some_and(|step| match step.changes.as_slice() {
            [change] => {
                let ends = Ends {
                    from: &change.from,
                    to: &change.to,
                    engines: [engine(record, first), engine(record, last)],
                };
                change.layer == kind.layer && (kind.matches)(&ends)
            }
            _ => false,
        })
    })?;
    let of_from = |us: f64| 100.0 * us / found.from_us.value;
    let filter = ClaimFilter::new(analysis, &found.workload, [first, last]);
    let claim = matches!(share.verdict, Verdict::Costs | Verdict::Saves);
    Some(Effect {
        kind,
        workload: found.workload.clone(),
        with: plan.to.clone(),
        without: plan.from.clone(),
        change: share.what.clone(),
        us: Some(share.us),
        percent: Some(Interval {
            value: share.percent_of_from,
            low: of_from(share.us.low),
            high: of_from(share.us.high),
            rounds: share.us.rounds,
        }),
        throughput: None,
        cpu_claimed: claim && filter.allows_layer(&share.us, found.noise_us),
        throughput_claimed: false,
        found: share.verdict != Verdict::NotFound,
        source: Source::Share { of_whole: share.percent_of_whole },
    })
}

/// The first two environments, in the order of the study, that differ in this layer alone.
pub(super) fn pair(
    record: &Record,
    analysis: &Analysis,
    workload: &str,
    ran: &[&EnvironmentSpec],
    kind: &'static LayerChange,
) -> Option<Effect> {
    let is_one = |without: &EnvironmentSpec, with: &EnvironmentSpec| {
        let changes = changes(without, with);
        let [change] = changes.as_slice() else { return None };
        let ends = Ends {
            from: &change.from,
            to: &change.to,
            engines: [engine(record, &without.name), engine(record, &with.name)],
        };
        let is = change.layer == kind.layer && (kind.matches)(&ends);
        is.then(|| format!("{} \u{2192} {}", change.from, change.to))
    };
    let (without, with, change) = ran.iter().find_map(|with| {
        let change = ran.iter().find_map(|without| Some((without, is_one(without, with)?)));
        change.map(|(without, change)| (*without, *with, change))
    })?;
    between(record, analysis, workload, (without, with), (kind, change))
}

/// The effects of neighbours: every environment with neighbours against the first that differs
/// only in that it has none.
pub(crate) fn of_neighbours(record: &Record, analysis: &Analysis, workload: &str) -> Vec<Effect> {
    let ran: Vec<&EnvironmentSpec> = record
        .environments
        .iter()
        .filter(|one| !one.control && one.left_out.is_none())
        .map(|one| &one.spec)
        .collect();
    let quiet = |with: &EnvironmentSpec| {
        let is = |without: &&&EnvironmentSpec| {
            let changes = changes(without, with);
            let only = matches!(changes.as_slice(), [one] if one.layer == NEIGHBOURS.layer);
            only && without.neighbours.is_empty()
        };
        ran.iter().find(is).copied()
    };
    let busy = ran.iter().filter(|with| !with.neighbours.is_empty());
    busy.filter_map(|with| {
        let without = quiet(with)?;
        let change = NEIGHBOURS.layer.text(with);
        between(record, analysis, workload, (without, with), (&NEIGHBOURS, change))
    })
    .collect()
}

/// Whether the difference in µs excludes 0 on the side of the ratio. Both come from the same
/// rounds, and rounds of very different cost can move one interval over 0 and not the other.
fn agree(us: Option<&Interval>, percent: &Interval) -> bool {
    us.is_none_or(|us| match percent.value > 0.0 {
        true => us.low > 0.0,
        false => us.high < 0.0,
    })
}

/// The effect of the difference between two environments.
fn between(
    record: &Record,
    analysis: &Analysis,
    workload: &str,
    (without, with): (&EnvironmentSpec, &EnvironmentSpec),
    (kind, change): (&'static LayerChange, String),
) -> Option<Effect> {
    let found = pair_costs(record, workload, &with.name, &without.name)?;
    let filter = ClaimFilter::new(analysis, workload, [&with.name, &without.name]);
    let claim = |metric: Metric, cost: &Option<Cost>| {
        cost.as_ref().is_some_and(|cost| {
            let noise = noise(analysis, workload, metric);
            is_claim(analysis, workload, [&with.name, &without.name], metric, cost)
                && filter.allows_layer(&cost.percent, noise)
        })
    };
    let blocks = server_cpu_by_round(record, workload, &[&with.name, &without.name]);
    let differences: Vec<f64> = blocks
        .us
        .values()
        .filter_map(|pair| Some(pair.first().copied()?? - pair.get(1).copied()??))
        .filter(|us| us.is_finite())
        .collect();
    let us = estimate(&differences).map(Interval::from);
    let agrees = found.cpu.as_ref().is_some_and(|cost| agree(us.as_ref(), &cost.percent));
    Some(Effect {
        kind,
        workload: workload.to_string(),
        with: with.name.clone(),
        without: without.name.clone(),
        change,
        us,
        cpu_claimed: agrees && claim(Metric::ServerCpu, &found.cpu),
        throughput_claimed: claim(Metric::Throughput, &found.throughput),
        found: agrees && found.cpu.as_ref().is_some_and(|cost| cost.found),
        percent: found.cpu.map(|cost| cost.percent),
        throughput: found.throughput.map(|cost| cost.percent),
        source: Source::Pair,
    })
}
