//! Reads `[[published]]`: relations between two environments that others published. A run can
//! confirm or contradict them ([`crate::analysis::relations`] has the rule).

use serde::{Deserialize, Serialize};

use super::checks::{must_exist, must_exist_as};
use super::{Problem, StudyError};
use tare_toml::{Item, Table};

/// A published relation between two environments, measured on another machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PublishedRelation {
    pub environment: String,
    /// The environment with which it was compared. `None` is the study's baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// The workload of the measurement. `None` is every workload of the study.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    #[serde(flatten)]
    pub claim: Claim,
    /// The tolerance within which a figure confirms the published one, in percent: points of the
    /// baseline's throughput, or a share of a latency ratio. `None` is the default of the claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within_percent: Option<f64>,
    pub source: String,
    /// The hardware of the measurement, if the source names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<String>,
}

/// The published figure and its metric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Claim {
    /// Loss of operations/s against the other environment, in percent.
    #[serde(rename = "throughput_cost_percent")]
    Throughput(Expected),
    /// Latency divided by that of the other environment.
    #[serde(rename = "latency")]
    Latency { percentile: Percentile, ratio: Expected },
}

/// A published figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Expected {
    Value(f64),
    /// Lowest and highest.
    Range(f64, f64),
    /// The direction alone.
    Sign(Sign),
}

/// The direction of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    Loss,
    None,
    Gain,
}

/// A point of a distribution of latencies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Percentile {
    #[serde(rename = "mean")]
    Mean,
    #[serde(rename = "p50")]
    P50,
    #[serde(rename = "p95")]
    P95,
    #[serde(rename = "p99")]
    P99,
    #[serde(rename = "p99.9")]
    P999,
}

impl Percentile {
    pub const ALL: [Percentile; 5] = [Self::Mean, Self::P50, Self::P95, Self::P99, Self::P999];

    /// Returns the name in a study: `p99.9`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }
}

const KEYS: &[&str] = &[
    "environment",
    "against",
    "workload",
    "throughput_cost_percent",
    "latency_ratio",
    "percentile",
    "within_percent",
    "source",
    "hardware",
];

/// Reads every `[[published]]`. `environments` and `workloads` are the names of the whole study.
pub(super) fn read(
    root: &Table<'_>,
    environments: &[String],
    workloads: &[String],
) -> Result<Vec<PublishedRelation>, StudyError> {
    let tables = root.tables("published", KEYS)?;
    tables.iter().map(|table| one(table, environments, workloads)).collect()
}

fn one(
    table: &Table<'_>,
    environments: &[String],
    workloads: &[String],
) -> Result<PublishedRelation, StudyError> {
    let environment = table.need("environment")?;
    must_exist(&environment, environment.text()?, environments)?;
    let against = table.text("against")?;
    if let Some((name, item)) = &against {
        must_exist(item, name, environments)?;
        if name == environment.text()? {
            return Err(item.bad_value("an environment cannot be compared with itself"));
        }
    }
    let workload = table.text("workload")?;
    if let Some((name, item)) = &workload {
        must_exist_as("workload", item, name, workloads)?;
    }
    let text = |found: Option<(String, Item<'_>)>| found.map(|(text, _)| text);
    Ok(PublishedRelation {
        environment: environment.text()?.to_string(),
        against: text(against),
        workload: text(workload),
        claim: claim(table)?,
        within_percent: table
            .get("within_percent")
            .map(|item| item.number(0.1..=1000.0))
            .transpose()?,
        source: table.need("source")?.text()?.to_string(),
        hardware: text(table.text("hardware")?),
    })
}

fn claim(table: &Table<'_>) -> Result<Claim, StudyError> {
    table.exclusive("latency_ratio", "throughput_cost_percent", "a relation has one figure")?;
    table.exclusive("percentile", "throughput_cost_percent", "throughput has no percentiles")?;
    let Some(ratio) = table.get("latency_ratio") else {
        let item = table.need("throughput_cost_percent")?;
        return Ok(Claim::Throughput(expected(&item, -1000.0, 99.9)?));
    };
    let names = Percentile::ALL.map(|one| one.name().to_string());
    let name = table.word("percentile", &names)?.ok_or_else(|| table.missing("percentile"))?;
    let percentile = Percentile::ALL.into_iter().find(|one| one.name() == name);
    let ratio_is = expected(&ratio, 0.001, 1000.0)?;
    match (percentile, ratio_is) {
        (Some(percentile), Expected::Value(_) | Expected::Range(..)) => {
            Ok(Claim::Latency { percentile, ratio: ratio_is })
        }
        _ => Err(ratio.wrong_type("a ratio such as 1.5, or two such as [1.2, 1.5]")),
    }
}

/// Reads a number, a range of two numbers, or a word.
fn expected(item: &Item<'_>, low: f64, high: f64) -> Result<Expected, StudyError> {
    if let Ok(word) = item.text() {
        let words = ["loss", "none", "gain"].map(String::from);
        item.known(word, &words)?;
        return Ok(Expected::Sign(match word {
            "loss" => Sign::Loss,
            "gain" => Sign::Gain,
            _ => Sign::None,
        }));
    }
    let Some(items) = item.list() else { return Ok(Expected::Value(item.number(low..=high)?)) };
    let [from, to] = items.as_slice() else {
        return Err(item.wrong_type("one number, or two as [lowest, highest]"));
    };
    let (from, to) = (from.number(low..=high)?, to.number(low..=high)?);
    if from > to {
        let (key, value) = (item.key().to_string(), format!("[{from}, {to}]"));
        return Err(item.error(Problem::OutOfRange { key, value, range: "rising".into() }));
    }
    Ok(Expected::Range(from, to))
}
