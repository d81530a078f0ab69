//! Attributes a cost to layers by ablation.
//!
//! Method: two environments differ in some layers. Adding these one at a time leads from one
//! environment to the other, in every feasible order ([`Plan`]). What a layer adds depends on the
//! layers added before it. A layer's share is the mean of what it adds over the orders: Shapley's
//! value. It is computed in each round, from the server CPU per operation of environments that were
//! all measured in that round. So its interval is that of a mean over rounds, and the shares add up
//! to the whole exactly.
//!
//! The caller decides which layers can be combined; this module contains no runtime.
//!
//! Limits: intervals cover the noise between rounds, but not a permanent difference between two
//! starts of an environment. The A/A control shows that difference, and nothing smaller is claimed.
//! If orders were drawn, the shares are those of the drawn orders.

mod layers;
mod orders;
mod plan;
mod shares;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::analysis::{Interval, server_cpu_by_round};
use crate::record::{HostFact, Phase, Record};
use crate::study::control_name;
use orders::Set;
use tare_stats::Estimate;
use tare_stats::law::{self, Noise};
use tare_stats::robust::{cleaned, holm, mean_with_probability};

pub use layers::{Change, changes};
pub use plan::{Plan, PlanEnvironment, PlanError, Step};

/// Section and key of the host fact that holds a record's plan, as JSON.
pub const FACTS: &str = "explain";
const FACT_PLAN: &str = "plan";

/// Interactions with a lower corrected probability are named.
const NAMED_BELOW: f64 = 0.05;

impl Plan {
    /// Returns the plan as a host fact for the record.
    pub fn fact(&self) -> HostFact {
        // A plan of strings and numbers always converts to JSON.
        let value = serde_json::to_string(self).unwrap_or_default();
        HostFact { section: FACTS.into(), key: FACT_PLAN.into(), value }
    }

    /// Returns the plan of a record, if the record has a valid one.
    pub fn of_record(record: &Record) -> Option<Self> {
        let is_plan = |fact: &&HostFact| fact.section == FACTS && fact.key == FACT_PLAN;
        let fact = record.host.iter().find(is_plan)?;
        serde_json::from_str(&fact.value).ok().filter(Plan::is_sound)
    }

    /// Returns whether the plan is consistent. A record can come from any source.
    fn is_sound(&self) -> bool {
        let steps = self.steps.len();
        let measured = |set: Set| self.environments.iter().any(|one| one.steps == set);
        let fits = |order: &Vec<usize>| {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            sorted.into_iter().eq(0..steps) && orders::sets_of(order).all(measured)
        };
        (1..=orders::STEPS_MAX).contains(&steps)
            && !self.orders.is_empty()
            && self.orders.iter().all(fits)
            && self.needs.iter().all(|(a, b)| *a < steps && *b < steps)
    }
}

/// The verdict on a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The interval is above 0, and the share is larger than the noise of the control.
    Costs,
    /// The interval is below 0, and the share is larger than the noise of the control.
    #[serde(rename = "gives_back")]
    Saves,
    /// The interval excludes 0, but the control differs from the baseline by as much.
    WithinNoise,
    /// The interval contains 0.
    NotFound,
}

/// The share of one step in a cost, in µs of server CPU per operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// Index of the step in the plan.
    pub step: usize,
    pub name: String,
    /// `host → bridge`.
    pub what: String,
    pub us: Interval,
    /// The share in percent of the figure of `from`. These values add up too, to the whole cost in
    /// percent.
    pub percent_of_from: f64,
    /// The share in percent of the whole difference. `None` if that is not distinguishable from
    /// zero, or if some shares are losses and others gains, so that parts exceed the whole.
    pub percent_of_whole: Option<f64>,
    pub verdict: Verdict,
}

/// How much more two steps add together than separately, in µs per operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interaction {
    pub first: String,
    pub second: String,
    pub us: Interval,
    /// The probability by chance, corrected by Holm's method for the number of measured pairs.
    pub probability: f64,
    /// Whether it is improbable by chance, and larger than the noise of the control.
    pub named: bool,
}

/// The shares of a cost under one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    pub workload: String,
    pub phase: Phase,
    /// Whether idle polling was subtracted, because the system measures its busy time.
    pub is_busy_time: bool,
    /// Server CPU per operation of both environments, in µs.
    pub from_us: Interval,
    pub to_us: Interval,
    /// The difference of the two, which is the sum of the shares.
    pub whole_us: Interval,
    pub whole: Verdict,
    /// Largest first.
    pub shares: Vec<Share>,
    /// Largest first.
    pub interactions: Vec<Interaction>,
    /// Pairs of independent steps for which the drawn orders have no measurement.
    pub pairs_not_measured: Vec<(String, String)>,
    /// The largest difference that the control's interval does not exclude, in µs. `None` without a
    /// control.
    pub noise_us: Option<f64>,
    /// Number of rounds behind the figures.
    #[serde(rename = "blocks")]
    pub rounds: u32,
    /// Share of the figures that were outliers and were pulled back, 0 to 1.
    pub pulled: f64,
    /// Number of rounds left out because an environment has no valid slice in them.
    #[serde(rename = "blocks_incomplete")]
    pub rounds_incomplete: u32,
}

/// Explains a cost under one workload. `None` until a round has every environment.
pub fn explain(record: &Record, plan: &Plan, workload: &str) -> Option<Explanation> {
    let control = control_name(&record.study.baseline);
    let mut names: Vec<&str> = plan.environments.iter().map(|b| b.environment.as_str()).collect();
    let columns: BTreeMap<Set, usize> =
        plan.environments.iter().enumerate().map(|(column, one)| (one.steps, column)).collect();
    let needed = names.len();
    // Two more columns, for the noise.
    names.extend([record.study.baseline.as_str(), control.as_str()]);
    let measured = server_cpu_by_round(record, workload, &names);
    let sound = |us: &Option<f64>| us.filter(|us| us.is_finite() && *us > 0.0);
    let (mut rounds, mut controls, mut incomplete) = (Vec::new(), Vec::new(), 0u32);
    for row in measured.us.values() {
        match row[..needed].iter().map(sound).collect::<Option<Vec<f64>>>() {
            Some(round) => rounds.push(round),
            None => incomplete += 1,
        }
        controls.extend(row[needed..].iter().map(sound).collect::<Option<Vec<f64>>>());
    }
    let (rounds, pulled) = cleaned(&rounds);
    let (controls, pulled_controls) = cleaned(&controls);
    let controls: Vec<f64> = controls.iter().map(|pair| pair[1] - pair[0]).collect();
    let noise_us = mean_with_probability(&controls, pulled_controls)
        .map(|(control, _)| control.low.abs().max(control.high.abs()))
        .filter(|noise| noise.is_finite());
    let figures = Figures { plan, columns: &columns, rounds: &rounds, pulled, noise_us };
    let full: Set = (1 << plan.steps.len()) - 1;
    let level = |set: Set| Some(figures.estimate(&BTreeMap::from([(set, 1.0)]))?.0);
    let whole = figures.estimate(&BTreeMap::from([(full, 1.0), (0, -1.0)]))?.0;
    let (interactions, pairs_not_measured) = figures.interactions();
    Some(Explanation {
        workload: workload.to_string(),
        phase: measured.phase,
        is_busy_time: measured.is_busy_time,
        from_us: level(0)?.into(),
        to_us: level(full)?.into(),
        whole_us: whole.into(),
        whole: figures.verdict(&whole),
        shares: figures.shares(&whole, level(0)?.centre),
        interactions,
        pairs_not_measured,
        noise_us,
        rounds: whole.rounds,
        pulled,
        rounds_incomplete: incomplete,
    })
}

/// The figures of the complete rounds.
struct Figures<'a> {
    plan: &'a Plan,
    /// The column of each set of steps.
    columns: &'a BTreeMap<Set, usize>,
    rounds: &'a [Vec<f64>],
    pulled: f64,
    noise_us: Option<f64>,
}

impl Figures<'_> {
    fn estimate(&self, weights: &shares::Weights) -> Option<(Estimate, f64)> {
        mean_with_probability(&shares::values(self.rounds, self.columns, weights), self.pulled)
    }

    /// Returns the noise of the control in µs.
    fn noise(&self) -> Noise {
        self.noise_us.map_or(Noise::NoControl, Noise::Within)
    }

    fn verdict(&self, us: &Estimate) -> Verdict {
        match law::judge_difference(us.excludes(0.0), us.centre, self.noise()) {
            law::Verdict::NotFound | law::Verdict::NotKnown => Verdict::NotFound,
            law::Verdict::WithinNoise | law::Verdict::NoiseUnknown | law::Verdict::Withheld => {
                Verdict::WithinNoise
            }
            law::Verdict::Loss => Verdict::Costs,
            law::Verdict::Gain => Verdict::Saves,
        }
    }

    fn shares(&self, whole: &Estimate, from_us: f64) -> Vec<Share> {
        let one = |(index, step): (usize, &Step)| {
            let (us, _) = self.estimate(&shares::share(&self.plan.orders, index))?;
            Some(Share {
                step: index,
                name: step.name(),
                what: step.what(),
                us: us.into(),
                percent_of_from: 100.0 * us.centre / from_us,
                percent_of_whole: None,
                verdict: self.verdict(&us),
            })
        };
        let mut found: Vec<Share> = self.plan.steps.iter().enumerate().filter_map(one).collect();
        let whole_is = self.verdict(whole);
        let against = |share: &Share| match whole_is {
            Verdict::Costs => share.verdict == Verdict::Saves,
            Verdict::Saves => share.verdict == Verdict::Costs,
            Verdict::WithinNoise | Verdict::NotFound => true,
        };
        if !found.iter().any(against) {
            for share in &mut found {
                share.percent_of_whole = Some(100.0 * share.us.value / whole.centre);
            }
        }
        found.sort_by(|a, b| b.us.value.total_cmp(&a.us.value));
        found
    }

    /// Returns the measured interactions, and the pairs without a measurement.
    fn interactions(&self) -> (Vec<Interaction>, Vec<(String, String)>) {
        let steps = &self.plan.steps;
        let measured = |set: Set| self.columns.contains_key(&set);
        let (mut found, mut probabilities, mut missing) = (Vec::new(), Vec::new(), Vec::new());
        for b in 1..steps.len() {
            for a in 0..b {
                if self.plan.needs.contains(&(a, b)) || self.plan.needs.contains(&(b, a)) {
                    continue;
                }
                let weights = shares::interaction(&self.plan.orders, &measured, (a, b));
                let estimate = weights.and_then(|weights| self.estimate(&weights));
                let (first, second) = (steps[a].name(), steps[b].name());
                match estimate {
                    Some((us, probability)) => {
                        found.push((first, second, us));
                        probabilities.push(probability);
                    }
                    None => missing.push((first, second)),
                }
            }
        }
        let corrected = holm(&probabilities);
        let one = |((first, second, us), probability): ((String, String, Estimate), f64)| {
            let improbable = probability < NAMED_BELOW;
            let named = law::judge_difference(improbable, us.centre, self.noise()).is_claim();
            Interaction { first, second, us: us.into(), probability, named }
        };
        let mut found: Vec<Interaction> = found.into_iter().zip(corrected).map(one).collect();
        found.sort_by(|a, b| b.us.value.abs().total_cmp(&a.us.value.abs()));
        (found, missing)
    }
}

#[cfg(test)]
mod tests;
