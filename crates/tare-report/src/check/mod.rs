//! The gate of `tare check`: each cost with its budget, and whether it is within.
//!
//! The rule is that of [`tare_stats::law::judge_budget`]: only a claimed cost whose whole interval
//! is above the limit is beyond it. What the record cannot decide is undecided, with the time that
//! a decision needs.

mod budget;
mod forges;
mod junit;
#[cfg(test)]
mod tests;
mod text;

use serde::Serialize;
use tare_lab::analysis::claims::{self, Metric, ratio_noise, ratio_verdict, verdict};
use tare_lab::analysis::{Analysis, Finding, Interval};
use tare_lab::record::Record;
use tare_lab::study::Study;
use tare_stats::law::{
    BudgetVerdict, Noise, Verdict, is_decided_early, judge_budget, rounds_to_decide,
};

use crate::compare::between;
use crate::figures::percent_interval;
use crate::headline::noise;

pub use budget::{Budget, BudgetError, Figure, Term};
pub use forges::{code_quality, github};
pub use junit::junit;
pub use text::{json, lines, markdown};

/// The environments of a budget for all that are compared with the baseline.
pub const ALL: &str = "all";

/// The rise that `--against` alone allows, in percent of CPU per operation.
pub const RISE_PERCENT: f64 = 5.0;

/// Why a budget does not fit a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    #[error("the budget names the environment \"{name}\", and the study has {known}")]
    UnknownEnvironment { name: String, known: String },
    #[error("the budget names the workload \"{name}\", and the study has {known}")]
    UnknownWorkload { name: String, known: String },
    #[error("\"{name}\" is the baseline, which has no cost; name another environment")]
    Baseline { name: String },
    #[error("a budget limits a rise, which needs an older record: add --against RECORD.tare")]
    NothingAgainst,
}

/// One figure and its budget.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckedCost {
    pub environment: String,
    pub workload: String,
    pub figure: Figure,
    /// Whether the limit is on the rise since the older record.
    pub rise: bool,
    /// The figure with its interval, in percent (latencies: as a factor).
    pub value: Option<Interval>,
    pub limit: f64,
    pub verdict: BudgetVerdict,
    /// Why it is undecided where the interval does not say it.
    pub reason: Option<String>,
    /// Rounds that a decision is expected to need in all, if it is undecided.
    pub rounds_needed: Option<u32>,
    /// The time of the missing rounds, in s.
    pub seconds_needed: Option<u64>,
    /// Whether more rounds are not worth their time: it is decided with a margin, or no number of
    /// rounds decides it.
    #[serde(skip)]
    pub is_settled: bool,
}

/// The outcome of a gate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub study: String,
    /// Name of the older record.
    pub against: Option<String>,
    #[serde(rename = "blocks")]
    pub rounds: u32,
    pub costs: Vec<CheckedCost>,
}

/// The older record of a gate, with its name.
#[derive(Clone, Copy, Debug)]
pub struct Against<'r> {
    pub name: &'r str,
    pub analysis: &'r Analysis,
}

impl Check {
    /// Checks every budget. Without one, every environment's CPU per operation may have risen by
    /// [`RISE_PERCENT`] since the older record.
    ///
    /// # Errors
    /// If a budget names what the study does not have, or limits a rise without an older record.
    pub fn new(
        record: &Record,
        analysis: &Analysis,
        against: Option<Against<'_>>,
        budgets: &[Budget],
    ) -> Result<Self, CheckError> {
        let gate = Gate { record, analysis, against };
        let default = [Budget {
            environment: ALL.to_string(),
            workload: None,
            terms: vec![Term { figure: Figure::Cpu, rise: true, limit: RISE_PERCENT }],
        }];
        let limits_rise = budgets.iter().flat_map(|one| &one.terms).any(|term| term.rise);
        let budgets =
            budgets.iter().chain(default.iter().filter(|_| against.is_some() && !limits_rise));
        let mut costs = Vec::new();
        for budget in budgets {
            // All environments are those that this host can run.
            let here = |name: &str| budget.environment != ALL || !gate.is_left_out(name);
            let places = places(&record.study, budget)?.into_iter();
            for (environment, workload) in places.filter(|(name, _)| here(name)) {
                for term in &budget.terms {
                    costs.push(gate.cost(environment, workload, term)?);
                }
            }
        }
        Ok(Self {
            study: record.study.name.clone(),
            against: against.map(|one| one.name.to_string()),
            rounds: analysis.rounds,
            costs,
        })
    }

    /// Whether a cost is beyond its budget.
    pub fn is_exceeded(&self) -> bool {
        self.costs.iter().any(|cost| cost.verdict == BudgetVerdict::Beyond)
    }

    /// Whether a cost could not be decided, or nothing was checked.
    pub fn is_undecided(&self) -> bool {
        self.costs.is_empty() || self.costs.iter().any(|cost| cost.verdict.is_undecided())
    }

    /// Whether a running measurement may end: every cost is decided with a margin for having been
    /// looked at before, or cannot be decided by more rounds.
    pub fn is_settled(&self) -> bool {
        self.costs.iter().all(|cost| cost.is_settled)
    }

    pub(crate) fn count(&self, which: impl Fn(BudgetVerdict) -> bool) -> usize {
        self.costs.iter().filter(|cost| which(cost.verdict)).count()
    }
}

/// Returns the environments and workloads of a study that a budget names.
///
/// # Errors
/// If the study does not have them, or the environment is its baseline.
pub fn places<'s>(
    study: &'s Study,
    budget: &Budget,
) -> Result<Vec<(&'s str, &'s str)>, CheckError> {
    let quoted = |names: &[&str]| {
        names.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ")
    };
    let known: Vec<&str> = study.environments.iter().map(|one| one.name.as_str()).collect();
    let name = budget.environment.as_str();
    if name == study.baseline {
        return Err(CheckError::Baseline { name: name.to_string() });
    }
    let environments: Vec<&str> = match known.iter().find(|one| **one == name) {
        Some(found) => vec![found],
        None if name == ALL => known.into_iter().filter(|one| *one != study.baseline).collect(),
        None => {
            let (name, known) = (name.to_string(), quoted(&known));
            return Err(CheckError::UnknownEnvironment { name, known });
        }
    };
    let known: Vec<&str> = study.workloads.iter().map(|one| one.name.as_str()).collect();
    let workloads: Vec<&str> = match &budget.workload {
        None => known,
        Some(name) => match known.iter().find(|one| *one == name) {
            Some(found) => vec![found],
            None => {
                let (name, known) = (name.clone(), quoted(&known));
                return Err(CheckError::UnknownWorkload { name, known });
            }
        },
    };
    let of = |environment| workloads.iter().map(move |workload| (environment, *workload));
    Ok(environments.into_iter().flat_map(of).collect())
}

struct Gate<'r> {
    record: &'r Record,
    analysis: &'r Analysis,
    against: Option<Against<'r>>,
}

impl<'r> Gate<'r> {
    fn is_left_out(&self, environment: &str) -> bool {
        let found = self.record.environments.iter().find(|one| one.spec.name == environment);
        found.is_some_and(|found| found.left_out.is_some())
    }

    fn cost(
        &self,
        environment: &str,
        workload: &str,
        term: &Term,
    ) -> Result<CheckedCost, CheckError> {
        let judged = if term.rise {
            let against = self.against.ok_or(CheckError::NothingAgainst)?;
            self.rise(against, environment, workload, term)
        } else {
            self.finding(self.analysis, environment, workload).and_then(|f| self.own(f, term))
        };
        let (value, law, noise) = match judged {
            Some((value, law, noise)) => (Some(value), law, noise),
            None => (None, Verdict::NotKnown, None),
        };
        let verdict =
            value.map_or(BudgetVerdict::TooWide, |value| judge_budget(&value, term.limit, law));
        let needed = value.filter(|_| verdict.is_undecided() && verdict != BudgetVerdict::Withheld);
        let needed = needed.and_then(|value| {
            let noise = noise.filter(|_| verdict == BudgetVerdict::Noise);
            rounds_to_decide(&value, term.limit, noise)
        });
        let is_settled = match value {
            None => self.is_left_out(environment),
            Some(_) if verdict == BudgetVerdict::Withheld => true,
            Some(value) => is_decided_early(&value, term.limit, law),
        };
        let missing = needed.map(|needed| needed.saturating_sub(self.analysis.rounds).max(1));
        Ok(CheckedCost {
            environment: environment.to_string(),
            workload: workload.to_string(),
            figure: term.figure,
            rise: term.rise,
            value,
            limit: term.limit,
            verdict,
            reason: value.is_none().then(|| self.why_missing(environment, term)),
            rounds_needed: needed,
            seconds_needed: missing.and_then(|missing| self.seconds(missing)),
            is_settled,
        })
    }

    fn finding<'a>(
        &self,
        analysis: &'a Analysis,
        environment: &str,
        workload: &str,
    ) -> Option<&'a Finding> {
        let same = |f: &&Finding| f.environment == environment && f.workload == workload;
        analysis.findings.iter().find(same)
    }

    /// The figure, its verdict by the law, and the noise of the control in its unit.
    fn own(&self, finding: &Finding, term: &Term) -> Option<(Interval, Verdict, Option<f64>)> {
        match term.figure.metric() {
            Some(metric) => {
                let cost = metric.cost(finding)?;
                let law = verdict(self.analysis, finding, metric)?;
                Some((cost.percent, law, noise(self.analysis, &finding.workload, metric)))
            }
            None => {
                let percent = term.figure.percentile();
                let over =
                    finding.response.as_ref()?.percentile(percent)?.over_baseline.as_ref()?;
                let law = ratio_verdict(self.analysis, finding, percent)?;
                let noise = ratio_noise(self.analysis, &finding.workload, percent).bound();
                Some((over.ratio, law, noise))
            }
        }
    }

    /// The rise since the older record: the new cost over the old one.
    fn rise(
        &self,
        against: Against<'_>,
        environment: &str,
        workload: &str,
        term: &Term,
    ) -> Option<(Interval, Verdict, Option<f64>)> {
        let metric = term.figure.metric()?;
        let old = self.finding(against.analysis, environment, workload)?;
        let new = self.finding(self.analysis, environment, workload)?;
        let noises =
            [against.analysis, self.analysis].map(|one| claims::noise(one, workload, metric));
        let difference = between(metric.cost(old)?, metric.cost(new)?, metric, noises)?;
        let percent = Noise::of_two_records(noises).bound().map(|noise| noise * 100.0);
        // A doubt about either record forbids the claim, and so does one about a cost that did not
        // differ from the baseline.
        let withheld = [(against.analysis, old), (self.analysis, new)]
            .into_iter()
            .any(|(of, finding)| verdict(of, finding, metric) == Some(Verdict::Withheld));
        let law = difference.verdict.unless(withheld);
        Some((difference.cost.percent, law, percent))
    }

    fn why_missing(&self, environment: &str, term: &Term) -> String {
        let here = self.record.environments.iter().find(|e| e.spec.name == environment);
        match here.and_then(|here| here.left_out.as_ref()) {
            Some(reason) => format!("the environment was left out: {reason}"),
            None if term.rise => "not in both records".to_string(),
            None if term.figure.metric().is_none() => {
                "the record has no such latency: too few operations, or no phase at a fixed rate"
                    .to_string()
            }
            None => "not measured".to_string(),
        }
    }

    /// The time of a number of rounds, as those of the record took it.
    fn seconds(&self, rounds: u32) -> Option<u64> {
        let starts = || self.record.slices.iter().map(|slice| slice.started_unix_ms);
        let (first, last) = (starts().min()?, starts().max()?);
        let measured = u64::from(self.analysis.rounds.max(1));
        let each_ms = (last - first).checked_div(measured)?;
        Some((each_ms * u64::from(rounds)).div_ceil(1000).max(1))
    }
}

impl CheckedCost {
    /// `cpu <= 30 %`, `p99 <= 2.00x`, `cpu rise <= 5 %`.
    pub(crate) fn limit_text(&self) -> String {
        Term { figure: self.figure, rise: self.rise, limit: self.limit }.to_string()
    }

    /// The figure with its interval.
    pub(crate) fn value_text(&self) -> String {
        match (&self.value, self.figure.metric()) {
            (None, _) => "not known".to_string(),
            (Some(value), Some(_)) => percent_interval(value),
            (Some(value), None) if value.is_bounded() => {
                format!("{:.2}x [{:.2}, {:.2}]", value.value, value.low, value.high)
            }
            (Some(value), None) => format!("{:.2}x [no interval]", value.value),
        }
    }

    /// `within`, `BEYOND` or `undecided`.
    pub(crate) fn word(&self) -> &'static str {
        match self.verdict {
            BudgetVerdict::Within => "within",
            BudgetVerdict::Beyond => "BEYOND",
            _ => "undecided",
        }
    }

    /// Why it is undecided, and how long a decision takes.
    pub(crate) fn detail(&self) -> Option<String> {
        let why = match self.verdict {
            BudgetVerdict::Within | BudgetVerdict::Beyond => return None,
            _ if self.reason.is_some() => return self.reason.clone(),
            BudgetVerdict::TooWide => "the limit is inside the interval",
            BudgetVerdict::Noise => "not beyond the noise of the A/A control",
            BudgetVerdict::Withheld => "withheld: a doubt forbids any claim about it",
        };
        let time = match (self.rounds_needed, self.seconds_needed) {
            (Some(rounds), Some(seconds)) => {
                let time = crate::figures::span(seconds * 1000);
                format!("; about {rounds} rounds would tell, {time} more")
            }
            (Some(rounds), None) => format!("; about {rounds} rounds would tell"),
            _ if self.verdict == BudgetVerdict::Withheld => "; more rounds do not help".to_string(),
            _ => "; no foreseeable number of rounds would tell".to_string(),
        };
        Some(format!("{why}{time}"))
    }
}

impl Figure {
    pub(crate) fn metric(self) -> Option<Metric> {
        match self {
            Self::Cpu => Some(Metric::ServerCpu),
            Self::Throughput => Some(Metric::Throughput),
            _ => None,
        }
    }
}
