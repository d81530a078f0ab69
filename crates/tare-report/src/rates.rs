//! Response time over the fixed rate, for workloads that differ in their rate alone.

use tare_lab::analysis::{Analysis, Finding};
use tare_lab::record::Record;

use crate::axes::Axis;
use crate::figures::{clean, rate};
use crate::run_conditions::fixed_rate;
use crate::tails;

/// The settings that make an axis one of rates.
const RATES: [&str; 2] = ["rate_per_s", "latency_share"];
/// The percentiles of a table, in percent.
pub(crate) const SHOWN: [f64; 3] = [50.0, 99.0, 99.9];
/// The head of a table.
pub(crate) const HEAD: [&str; 5] =
    ["environment", "rate, op/s", "p50 [95 %]", "p99 [95 %]", "p99.9 [95 %]"];

/// The response times of a workload at each of its rates.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RateTable {
    pub(crate) caption: String,
    /// One environment after the other, each with its rates in ascending order.
    pub(crate) rows: Vec<Vec<String>>,
}

/// Returns the table of an axis of rates; `None` for another, and if nothing was measured.
pub(crate) fn table(axis: &Axis<'_>, record: &Record, analysis: &Analysis) -> Option<RateTable> {
    if !RATES.contains(&axis.setting.as_str()) {
        return None;
    }
    let mut rows = Vec::new();
    for environment in &record.environments {
        let name = environment.spec.name.as_str();
        for point in &axis.points {
            let mut findings = analysis.findings.iter();
            let of_point = |one: &&Finding| one.workload == point.workload;
            let found = findings.find(|one| of_point(one) && one.environment == name);
            let Some(finding) = found.filter(|one| one.response.is_some()) else { continue };
            let at = fixed_rate(record, point.workload).map_or_else(|| clean(&point.text), rate);
            rows.push(row(finding, at));
        }
    }
    let caption =
        format!("Response time of {} at each rate, from the intended start:", clean(axis.workload));
    (!rows.is_empty()).then_some(RateTable { caption, rows })
}

fn row(finding: &Finding, at: String) -> Vec<String> {
    let percentile = |percent: f64| {
        let found = tails::percentile(finding, percent);
        found.map_or_else(|| tails::NOT_ENOUGH.to_string(), tails::percentile_text)
    };
    [clean(&finding.environment), at].into_iter().chain(SHOWN.map(percentile)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::axes::axes;
    use crate::fixture;

    #[test]
    fn rates_have_a_row_for_each_environment_and_rate() {
        let (record, analysis) = fixture::rates();
        let axes = axes(&record.study);
        let [axis] = &axes[..] else { panic!("{axes:?}") };
        let table = table(axis, &record, &analysis).unwrap();
        assert_eq!(table.caption, "Response time of write at each rate, from the intended start:");
        let first: Vec<[&str; 2]> =
            table.rows.iter().take(3).map(|row| [row[0].as_str(), row[1].as_str()]).collect();
        assert_eq!(first, [["native", "16.0k"], ["native", "32.0k"], ["docker-default", "16.0k"]]);
        assert!(table.rows.iter().all(|row| row.len() == HEAD.len()), "{table:?}");
        assert!(table.rows[0][2].contains('['), "{:?}", table.rows[0]);
        let (sweep, of_sweep) = fixture::sweep();
        let others = crate::axes::axes(&sweep.study);
        assert!(others.iter().all(|axis| super::table(axis, &sweep, &of_sweep).is_none()));
    }
}
