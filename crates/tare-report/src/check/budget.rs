//! The text of a budget: `container default: cpu <= 30 %, p99 <= 2x`.

use std::fmt;
use std::str::FromStr;

use serde::Serialize;

/// A figure with a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Figure {
    /// CPU time of the server per operation, at capacity.
    #[serde(rename = "cpu")]
    Cpu,
    /// Throughput lost at capacity.
    #[serde(rename = "throughput")]
    Throughput,
    /// Response time at the fixed rate, as a factor of the baseline's.
    #[serde(rename = "p50")]
    P50,
    #[serde(rename = "p95")]
    P95,
    #[serde(rename = "p99")]
    P99,
    #[serde(rename = "p99.9")]
    P999,
}

impl Figure {
    pub const ALL: [Self; 6] =
        [Self::Cpu, Self::Throughput, Self::P50, Self::P95, Self::P99, Self::P999];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Throughput => "throughput",
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }

    /// The percentile of a latency; 0 for a cost.
    pub(crate) fn percentile(self) -> f64 {
        match self {
            Self::Cpu | Self::Throughput => 0.0,
            Self::P50 => 50.0,
            Self::P95 => 95.0,
            Self::P99 => 99.0,
            Self::P999 => 99.9,
        }
    }

    /// Whether it is a percentile of response times, which only whole histograms give.
    pub fn is_latency(self) -> bool {
        !matches!(self, Self::Cpu | Self::Throughput)
    }
}

/// One limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Term {
    pub figure: Figure,
    /// Whether the limit is on the rise since an older record.
    pub rise: bool,
    /// In percent for a cost, a factor for a latency.
    pub limit: f64,
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rise = if self.rise { " rise" } else { "" };
        write!(f, "{}{rise} <= ", self.figure.name())?;
        match self.figure.is_latency() {
            true => write!(f, "{}x", self.limit),
            false => write!(f, "{} %", self.limit),
        }
    }
}

/// The limits of an environment.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Budget {
    /// Name of an environment, or [`super::ALL`].
    pub environment: String,
    /// `None`: under every workload.
    pub workload: Option<String>,
    pub terms: Vec<Term>,
}

/// Why a text is no budget.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("a budget is \"ENVIRONMENT: cpu <= 30 %, p99 <= 2x\"; {0:?} has no colon")]
    NoColon(String),
    #[error("no environment before the colon; write a name, or all")]
    NoEnvironment,
    #[error("{0:?} is no limit; write such as cpu <= 30 %, p99 <= 2x or cpu rise <= 5 %")]
    NoLimit(String),
    #[error("{0:?} is no figure; there are cpu, throughput, p50, p95, p99 and p99.9")]
    NoFigure(String),
    #[error("{0:?} is no limit of {1}; write a percentage such as 30 %, or a factor such as 1.3x")]
    BadLimit(String, &'static str),
    #[error("a rise of {0} is not compared: latencies of two records have different rates")]
    RiseOfLatency(&'static str),
}

impl FromStr for Budget {
    type Err = BudgetError;

    /// Reads `ENVIRONMENT [@ WORKLOAD]: LIMIT, ...`. A name may contain colons and commas, because
    /// the limits, which follow the last colon, do not.
    fn from_str(text: &str) -> Result<Self, BudgetError> {
        let (place, limits) =
            text.rsplit_once(':').ok_or_else(|| BudgetError::NoColon(text.to_string()))?;
        let (environment, workload) = match place.rsplit_once(" @ ") {
            Some((environment, workload)) => (environment, Some(workload.trim().to_string())),
            None => (place, None),
        };
        let environment = environment.trim().to_string();
        if environment.is_empty() {
            return Err(BudgetError::NoEnvironment);
        }
        let terms = limits.split(',').map(term).collect::<Result<Vec<Term>, BudgetError>>()?;
        Ok(Self { environment, workload, terms })
    }
}

fn term(text: &str) -> Result<Term, BudgetError> {
    let text = text.trim();
    let (name, limit) =
        text.split_once("<=").ok_or_else(|| BudgetError::NoLimit(text.to_string()))?;
    let name = name.trim();
    let (name, rise) = match name.strip_suffix(" rise") {
        Some(name) => (name.trim(), true),
        None => (name, false),
    };
    let figure = Figure::ALL.into_iter().find(|figure| figure.name() == name);
    let figure = figure.ok_or_else(|| BudgetError::NoFigure(name.to_string()))?;
    if rise && figure.is_latency() {
        return Err(BudgetError::RiseOfLatency(figure.name()));
    }
    let limit = limit.trim();
    let parsed = match (limit.strip_suffix('%'), limit.strip_suffix('x')) {
        (Some(percent), _) => number(percent),
        // A throughput of a factor could be a loss or a gain.
        (_, Some(factor)) if figure != Figure::Throughput => {
            number(factor).map(|factor| (factor - 1.0) * 100.0)
        }
        _ => None,
    };
    let valid = |percent: &f64| match figure {
        Figure::Throughput if !rise => (0.0..100.0).contains(percent),
        _ => *percent >= 0.0,
    };
    let percent = parsed
        .filter(valid)
        .ok_or_else(|| BudgetError::BadLimit(limit.to_string(), figure.name()))?;
    // No more digits than anybody writes, so that 1.3x is 30 % and not 30.000000000000004 %.
    let rounded = (percent * 1e6).round() / 1e6;
    let limit = if figure.is_latency() { (100.0 + rounded) / 100.0 } else { rounded };
    Ok(Term { figure, rise, limit })
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}
