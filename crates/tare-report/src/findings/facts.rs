//! The input of the rules: a record with its analysis, explanations, stacks and counters.

use std::collections::BTreeMap;

use tare_lab::ablation::{Explanation, Plan, explain};
use tare_lab::analysis::{Analysis, Cost, CounterFinding, Finding, Interval, counters};
use tare_lab::doubt::Doubt;
use tare_lab::record::{EnvironmentRecord, Phase, Record};
use tare_lab::stacks::{StackKind, StackSlice};

use super::Evidence;
use super::effects::{Effect, effects};
use crate::doubts::DoubtGroups;
use crate::figures::clean;
use crate::headline::{Metric, claimed, is_claim};
use crate::prove::Proof;
use crate::stacks::{Figure, Profile, Row, Side};

/// A record and everything derived from it.
pub(crate) struct Facts<'a> {
    pub(crate) record: &'a Record,
    pub(crate) analysis: &'a Analysis,
    pub(crate) stacks: &'a [StackSlice],
    pub(crate) counters: Vec<CounterFinding>,
    /// The plan of the explanation, if there is one.
    pub(crate) plan: Option<Plan>,
    /// One explanation for each workload that has a complete round.
    pub(crate) explanations: Vec<Explanation>,
    pub(crate) proof: Option<Proof>,
    pub(crate) marks: DoubtGroups,
    /// The effect of each layer that the record separates from the others.
    pub(crate) effects: Vec<Effect>,
}

impl<'a> Facts<'a> {
    pub(crate) fn new(
        record: &'a Record,
        analysis: &'a Analysis,
        stacks: &'a [StackSlice],
        plan: Option<&Plan>,
    ) -> Self {
        let names = record.study.workloads.iter().map(|workload| workload.name.as_str());
        let explanations: Vec<Explanation> = match plan {
            Some(plan) => names.filter_map(|name| explain(record, plan, name)).collect(),
            None => Vec::new(),
        };
        let effects = effects(record, analysis, plan, &explanations);
        Self {
            record,
            analysis,
            stacks,
            counters: counters(record),
            plan: plan.cloned(),
            explanations,
            proof: Proof::of(record, analysis),
            marks: DoubtGroups::of(record, analysis),
            effects,
        }
    }

    pub(crate) fn workloads(&self) -> impl Iterator<Item = (usize, &str)> {
        self.record.study.workloads.iter().map(|one| one.name.as_str()).enumerate()
    }

    pub(crate) fn environment(&self, name: &str) -> Option<&EnvironmentRecord> {
        self.record.environments.iter().find(|one| one.spec.name == name)
    }

    pub(crate) fn finding(&self, workload: &str, environment: &str) -> Option<&Finding> {
        let here = |f: &&Finding| f.workload == workload && f.environment == environment;
        self.analysis.findings.iter().find(here)
    }

    /// The environments under a workload that are compared with the baseline.
    pub(crate) fn compared(&self, workload: &str) -> impl Iterator<Item = &Finding> {
        let of = move |f: &&Finding| f.workload == workload && !f.baseline && !f.control;
        self.analysis.findings.iter().filter(of)
    }

    /// The environment with the largest claimed cost in CPU, or else in throughput.
    pub(crate) fn costliest(&self, workload: &str) -> Option<&Finding> {
        Metric::ALL.into_iter().find_map(|metric| {
            let value = |f: &Finding| metric.cost(f).map_or(0.0, |cost| cost.percent.value);
            let claims = self.compared(workload);
            let claims = claims.filter(|f| self.claimed(f, metric) && value(f) > 0.0);
            claims.max_by(|a, b| value(a).total_cmp(&value(b)))
        })
    }

    /// Whether a finding's cost may be claimed.
    pub(crate) fn claimed(&self, finding: &Finding, metric: Metric) -> bool {
        claimed(self.analysis, finding, metric)
    }

    /// Like [`Self::claimed`], for a cost between any two environments.
    pub(crate) fn claim(
        &self,
        workload: &str,
        environments: [&str; 2],
        metric: Metric,
        cost: &Cost,
    ) -> bool {
        is_claim(self.analysis, workload, environments, metric, cost)
    }

    /// Stacks of two environments, the second less the first.
    pub(crate) fn profile(&self, workload: &str, from: &str, to: &str) -> Option<Profile> {
        if self.stacks.is_empty() {
            return None;
        }
        let side = |name: &str| Side::of(self.stacks, StackKind::OnCpu, workload, name);
        Profile::new(side(from), side(to))
    }

    /// A subsystem's row, if the interval of its difference excludes 0.
    pub(crate) fn subsystem(&self, profile: &Profile, name: &str) -> Option<Row> {
        profile.subsystems().into_iter().find(|row| row.name == name && row.difference.found())
    }

    /// A counter of an environment at capacity that differs from the baseline's beyond the noise.
    pub(crate) fn stands_out(
        &self,
        workload: &str,
        environment: &str,
        name: &str,
    ) -> Option<(&CounterFinding, Interval)> {
        let found = self.counters.iter().find(|one| {
            one.stands_out
                && one.phase == Phase::Capacity
                && one.workload == workload
                && one.environment == environment
                && one.name == name
        })?;
        Some((found, found.difference?))
    }

    /// The doubt of a kind about an environment under a workload, and the share of slices it
    /// affects.
    pub(crate) fn doubt(&self, finding: &Finding, kind: &str) -> Option<(Doubt, f64)> {
        let of = f64::from((finding.slices + finding.slices_void).max(1));
        let found = finding.doubts.iter().find(|(doubt, _)| doubt.kind() == kind)?;
        Some((found.0.clone(), (f64::from(found.1) / of).min(1.0)))
    }

    /// Number of a kind of doubt in the report.
    pub(crate) fn doubt_number(&self, kind: &str) -> Option<usize> {
        self.marks.0.iter().find(|mark| mark.kind == kind).map(|mark| mark.number)
    }

    pub(crate) fn doubt_evidence(&self, kind: &str) -> Option<Evidence> {
        let number = self.doubt_number(kind)?;
        Some(Evidence::at(format!("doubt-{number}"), format!("doubt [{number}]")))
    }

    /// Numbers of the doubts about some environments under a workload.
    pub(crate) fn doubts(&self, workload: &str, environments: &[&str]) -> Vec<usize> {
        environments.iter().flat_map(|name| self.marks.numbers(name, workload)).collect()
    }

    /// Numbers of the doubts about any environment of the explanation.
    pub(crate) fn doubts_of_explanation(&self, workload: &str) -> Vec<usize> {
        let plan = self.plan.as_ref();
        let names = plan.into_iter().flat_map(|plan| &plan.environments);
        let names: Vec<&str> = names.map(|one| one.environment.as_str()).collect();
        self.doubts(workload, &names)
    }

    /// Median size of a doubt over the slices of some environments.
    pub(crate) fn median_of_doubt(
        &self,
        environments: &[&str],
        size: impl Fn(&Doubt) -> Option<f64>,
    ) -> Option<f64> {
        let names: BTreeMap<i64, &str> =
            self.record.slices.iter().map(|slice| (slice.id, slice.environment.as_str())).collect();
        let here = |id: i64| names.get(&id).is_some_and(|name| environments.contains(name));
        let mut sizes: Vec<f64> = self
            .record
            .doubts
            .iter()
            .filter(|entry| entry.slice.is_some_and(here))
            .filter_map(|entry| size(&entry.doubt))
            .collect();
        sizes.sort_unstable_by(f64::total_cmp);
        sizes.get(sizes.len() / 2).copied()
    }

    /// Rows of the table of costs.
    pub(crate) fn costs_evidence(&self, workload: &str, rows: &[&str]) -> Evidence {
        let index = self.workloads().find(|(_, name)| *name == workload).map_or(0, |(at, _)| at);
        let rows: Vec<String> = rows.iter().map(|name| format!("\"{}\"", clean(name))).collect();
        Evidence::at(format!("costs-{index}"), format!("costs of {}", rows.join(" and ")))
    }

    /// A row of the table of shares.
    pub(crate) fn shares_evidence(&self, workload: &str, row: &str) -> Evidence {
        let index = self.workloads().find(|(_, name)| *name == workload).map_or(0, |(at, _)| at);
        Evidence::at(format!("shares-{}", index + 1), format!("share of {}", clean(row)))
    }

    pub(crate) fn counter_evidence(&self, name: &str) -> Evidence {
        Evidence::at("counters", format!("counter {}", clean(name)))
    }

    pub(crate) fn stacks_evidence(&self, from: &str, to: &str, row: &str) -> Evidence {
        let (from, to, row) = (clean(from), clean(to), clean(row));
        Evidence::at("stacks", format!("stacks of \"{to}\" against \"{from}\": {row}"))
    }
}

/// A figure of stacks as an interval; a single round gives no bounds.
pub(crate) fn interval(figure: &Figure, rounds: usize) -> Interval {
    Interval {
        value: figure.us,
        low: figure.low.unwrap_or(f64::NEG_INFINITY),
        high: figure.high.unwrap_or(f64::INFINITY),
        rounds: u32::try_from(rounds).unwrap_or(u32::MAX),
    }
}
