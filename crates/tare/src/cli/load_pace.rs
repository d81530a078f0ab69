//! The options of `tare load` about pacing, and `tare load merge`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use tare_load::pacing::{Arrivals, Step};
use tare_load::search::{Limit, Slo};

use super::{MakeSpec, duration};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ArrivalKind {
    /// Evenly
    #[default]
    Constant,
    /// At random, like requests of many users
    Poisson,
}

impl From<ArrivalKind> for Arrivals {
    fn from(kind: ArrivalKind) -> Self {
        match kind {
            ArrivalKind::Constant => Self::Constant,
            ArrivalKind::Poisson => Self::Poisson,
        }
    }
}

#[derive(Debug, Args)]
pub struct LoadPace {
    /// Open loop: operations per second, on a schedule that never skips; steps (10k,20k,40k) or a
    /// ramp (10k..100k)
    #[arg(long, value_name = "RATES", value_parser = rates)]
    pub rate: Option<Rates>,
    /// Open loop: how operations are distributed over time
    #[arg(long, value_name = "HOW", default_value = "constant")]
    pub arrivals: ArrivalKind,
    /// Duration, with several rates that of each
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = length)]
    pub duration: Duration,
    /// Time of load before the measurement
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub lead_in: Duration,
    /// Search for the highest rate that meets the SLO, in runs of `--duration`; `--rate` is the
    /// first rate to try
    #[arg(long, requires = "slo", conflicts_with = "hdr")]
    pub find_max: bool,
    /// Limits of the response time for `--find-max`, such as p99=5ms or p99=5ms,max=1s
    #[arg(long, value_name = "LIMITS", value_parser = slo, requires = "find_max")]
    pub slo: Option<Slo>,
    /// Runs of `--find-max` at each rate around the limit
    #[arg(long, value_name = "N", default_value_t = 3, requires = "find_max", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub confirmations: u32,
}

impl LoadPace {
    /// Refuses options that would have no effect.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let one_rate = |rates: &Rates| matches!(rates.0.as_slice(), [(from, to)] if from == to);
        if self.find_max && !self.rate.as_ref().is_none_or(one_rate) {
            return Err("--find-max starts at one rate; pass one --rate, or none");
        }
        if self.arrivals == ArrivalKind::Poisson && self.rate.is_none() && !self.find_max {
            return Err("a closed loop has no arrival times; pass --rate or --find-max");
        }
        Ok(())
    }
}

/// Rates of the command line: (from, to).
#[derive(Clone, Debug, PartialEq)]
pub struct Rates(pub Vec<(f64, f64)>);

impl Rates {
    /// Returns the steps of a schedule, each of this length.
    pub fn steps(&self, length: Duration) -> Vec<Step> {
        let step = |&(from_per_s, to_per_s): &(f64, f64)| Step { from_per_s, to_per_s, length };
        self.0.iter().map(step).collect()
    }
}

#[derive(Debug, Subcommand)]
pub enum LoadTask {
    /// Merge the HdrHistogram logs of several loaders without loss
    Merge(Merge),
    /// Print a workload like the load of a packet capture, or for a table of a running cluster
    Spec(Box<MakeSpec>),
}

#[derive(Debug, Args)]
pub struct Merge {
    /// The logs
    #[arg(value_name = "FILE.hdr", required = true)]
    pub logs: Vec<PathBuf>,
    /// Write the merged log to this file (`-` for standard output, without the table)
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

fn length(text: &str) -> Result<Duration, String> {
    let length = duration(text).map_err(|error| error.to_string())?;
    (!length.is_zero()).then_some(length).ok_or_else(|| "the duration must be above 0".to_string())
}

fn rates(text: &str) -> Result<Rates, String> {
    let step = |text: &str| match text.split_once("..") {
        None => rate(text).map(|rate| (rate, rate)),
        Some((from, to)) => Ok((rate(from)?, rate(to)?)),
    };
    text.split(',').map(step).collect::<Result<_, _>>().map(Rates)
}

fn rate(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1e3),
        None => text.strip_suffix('M').map_or((text, 1.0), |number| (number, 1e6)),
    };
    let rate = number.parse().map(|number: f64| number * unit).ok();
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| "a rate is a number above 0, such as 500, 20k, 10k..100k".to_string())
}

fn slo(text: &str) -> Result<Slo, String> {
    let limit = |text: &str| {
        let (quantile, limit) = text.trim().split_once('=')?;
        let percentile = match quantile {
            "max" => 100.0,
            quantile => quantile.strip_prefix('p')?.parse().ok()?,
        };
        let limit_ns = u64::try_from(duration(limit).ok()?.as_nanos()).ok()?;
        (limit_ns > 0).then_some(Limit { percentile, limit_ns })
    };
    let limits = text.split(',').map(limit).collect::<Option<Vec<_>>>();
    limits.and_then(Slo::new).ok_or_else(|| "write limits like p99=5ms or p99=5ms,max=1s".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Arguments, Command};
    use clap::Parser;

    #[test]
    fn rates_are_steps_and_ramps() {
        let check = |text: &str, expect: &[(f64, f64)]| assert_eq!(rates(text).unwrap().0, expect);
        check("500", &[(500.0, 500.0)]);
        check("10k,20k", &[(1e4, 1e4), (2e4, 2e4)]);
        check("10k..0.1M,5.5", &[(1e4, 1e5), (5.5, 5.5)]);
        for bad in ["", "0", "-1", "k", "10k..", "1,,2", "nan", "1e400"] {
            assert!(rates(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn options_without_effect_are_refused() {
        let check = |words: &str, expect: bool| {
            let words = format!("tare load {words}");
            let arguments = Arguments::try_parse_from(words.split_whitespace()).unwrap();
            let Command::Load(load) = arguments.command else { panic!("{words}") };
            assert_eq!(load.pace.check().is_ok(), expect, "{words}");
        };
        check("", true);
        check("--arrivals poisson", false);
        check("--rate 5 --arrivals poisson", true);
        check("--find-max --slo p99=5ms --arrivals poisson", true);
        check("--find-max --slo p99=5ms --rate 5", true);
        check("--find-max --slo p99=5ms --rate 5,6", false);
        check("--find-max --slo p99=5ms --rate 5..6", false);
    }

    #[test]
    fn limits_are_percentiles_and_times() {
        let check = |text: &str, expect: &str| assert_eq!(slo(text).unwrap().to_string(), expect);
        check("p99=5ms", "p99 <= 5.00 ms");
        check("p99.9=20ms, max=1s", "p99.9 <= 20.0 ms, max <= 1.00 s");
        for bad in ["", "p99", "99=5ms", "p0=5ms", "p101=5ms", "p99=5", "p99=0s", "p99=5ms,"] {
            assert!(slo(bad).is_err(), "{bad}");
        }
    }
}
