//! The cost for a fleet: the nodes that an environment needs for the work of a given number of
//! nodes in the baseline, and the price of the difference per year.
//!
//! Method: an environment that loses the share `l` of its throughput needs `nodes / (1 - l)` nodes
//! for the work of `nodes`; one that takes `r` times the server CPU per operation needs
//! `nodes x r`. Both rise with the cost, so the bounds of a cost give the bounds of the nodes.
//! Nodes are rounded up, and prices are of whole nodes.
//!
//! Limits: the fleet is assumed to be limited by the measured figure, and every node to lose as
//! much as this host. A year has 365 days; all nodes have one price.

mod parse;
mod table;

use tare_lab::analysis::claims::verdict;
use tare_lab::analysis::{Analysis, Cost, Finding, Interval};
use tare_stats::law::Verdict;

use crate::headline::Metric;

pub use parse::FleetError;
pub use table::render;

/// Hours of a year of 365 days.
const HOURS_PER_YEAR: f64 = 8_760.0;
const MONTHS_PER_YEAR: f64 = 12.0;

/// A fleet in the baseline: `nodes=60,price=4.99USD/h`.
#[derive(Clone, Debug, PartialEq)]
pub struct Fleet {
    /// At least 1.
    pub nodes: u32,
    pub price: Option<Price>,
}

/// The price of one node.
#[derive(Clone, Debug, PartialEq)]
pub struct Price {
    /// Above 0, in any currency.
    pub amount: f64,
    /// The currency as written, or empty.
    pub currency: String,
    pub per: Period,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    Hour,
    Month,
    Year,
}

impl Price {
    /// The price of one node for a year.
    pub fn per_year(&self) -> f64 {
        self.amount * self.per.in_a_year()
    }

    /// The price of one node for an hour.
    pub fn per_hour(&self) -> f64 {
        self.per_year() / HOURS_PER_YEAR
    }
}

impl std::fmt::Display for Price {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let per = match self.per {
            Period::Hour => "h",
            Period::Month => "month",
            Period::Year => "year",
        };
        write!(f, "{}{}/{per}", self.amount, self.currency)
    }
}

impl Period {
    fn in_a_year(self) -> f64 {
        match self {
            Period::Hour => HOURS_PER_YEAR,
            Period::Month => MONTHS_PER_YEAR,
            Period::Year => 1.0,
        }
    }
}

/// The nodes that one environment needs under one workload, by one metric.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodesNeeded<'a> {
    pub(crate) finding: &'a Finding,
    pub(crate) cost: &'a Cost,
    /// The verdict on the cost. A control that differs is within the noise.
    pub(crate) verdict: Option<Verdict>,
    /// Nodes before rounding; more than the fleet's is a loss.
    pub(crate) exact: Interval,
}

impl NodesNeeded<'_> {
    /// Whole nodes beyond those of the fleet; below 0 for nodes to spare.
    pub(crate) fn extra(&self, fleet: &Fleet) -> Interval {
        let more = |exact: f64| whole(exact) - f64::from(fleet.nodes);
        Interval {
            value: more(self.exact.value),
            low: more(self.exact.low),
            high: more(self.exact.high),
            rounds: self.exact.rounds,
        }
    }
}

/// Rounds up to whole nodes, except for the excess of a floating-point error.
fn whole(exact: f64) -> f64 {
    const ROUNDING: f64 = 1e-9;
    (exact * (1.0 - ROUNDING)).ceil()
}

/// The nodes of every environment but the baseline, in the order of the analysis.
pub(crate) fn nodes_needed<'a>(
    fleet: &Fleet,
    analysis: &'a Analysis,
    workload: &str,
    metric: Metric,
) -> Vec<NodesNeeded<'a>> {
    let nodes = f64::from(fleet.nodes);
    let need = |finding: &'a Finding| {
        let cost = metric.cost(finding)?;
        Some(NodesNeeded {
            finding,
            cost,
            verdict: match finding.control && cost.found {
                true => Some(Verdict::WithinNoise),
                false => verdict(analysis, finding, metric),
            },
            exact: needed(nodes, &cost.percent, metric),
        })
    };
    analysis.findings.iter().filter(|f| f.workload == workload).filter_map(need).collect()
}

/// The nodes that do the work of `nodes` at a cost in percent.
fn needed(nodes: f64, percent: &Interval, metric: Metric) -> Interval {
    let at = |percent: f64| match metric {
        Metric::ServerCpu => nodes * (1.0 + percent / 100.0),
        // No throughput is left, so no number of nodes is enough.
        Metric::Throughput if percent >= 100.0 => f64::INFINITY,
        Metric::Throughput => nodes / (1.0 - percent / 100.0),
    };
    let (low, high) = if percent.is_bounded() {
        (at(percent.low), at(percent.high))
    } else {
        (f64::NEG_INFINITY, f64::INFINITY)
    };
    Interval { value: at(percent.value), low, high, rounds: percent.rounds }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn interval(value: f64, low: f64, high: f64) -> Interval {
        Interval { value, low, high, rounds: 12 }
    }

    #[test]
    fn nodes_follow_from_the_cost_and_its_bounds() {
        for (metric, nodes, percent, exact) in [
            (Metric::Throughput, 60, (50.0, 40.0, 60.0), (120.0, 100.0, 150.0)),
            (Metric::Throughput, 60, (0.0, -20.0, 25.0), (60.0, 50.0, 80.0)),
            (Metric::ServerCpu, 60, (50.0, 40.0, 60.0), (90.0, 84.0, 96.0)),
            (Metric::ServerCpu, 10, (-10.0, -20.0, 0.0), (9.0, 8.0, 10.0)),
        ] {
            let found =
                needed(f64::from(nodes), &interval(percent.0, percent.1, percent.2), metric);
            for (got, wanted) in
                [(found.value, exact.0), (found.low, exact.1), (found.high, exact.2)]
            {
                assert!((got - wanted).abs() < 1e-9, "{metric:?} {percent:?}: {found:?}");
            }
        }
    }

    #[test]
    fn nodes_are_whole_and_rounding_buys_none() {
        for (exact, nodes) in
            [(60.0, 60.0), (60.000_000_000_01, 60.0), (60.01, 61.0), (59.2, 60.0), (0.3, 1.0)]
        {
            assert_eq!(whole(exact), nodes, "{exact}");
        }
    }

    #[test]
    fn one_round_has_no_bounds() {
        let one = interval(20.0, f64::NEG_INFINITY, 100.0);
        let found = needed(60.0, &one, Metric::Throughput);
        assert_eq!((found.value, found.is_bounded()), (75.0, false));
    }

    #[test]
    fn the_baseline_needs_what_it_has() {
        let (_, analysis) = fixture::quick();
        let fleet = Fleet { nodes: 60, price: None };
        let needs = nodes_needed(&fleet, &analysis, "write", Metric::Throughput);
        let names: Vec<&str> = needs.iter().map(|n| n.finding.environment.as_str()).collect();
        assert_eq!(names.len(), 6);
        assert!(!names.contains(&"native"));
        let control = needs.iter().find(|need| need.finding.control).unwrap();
        assert!(!control.verdict.is_some_and(Verdict::is_claim));
    }
}
