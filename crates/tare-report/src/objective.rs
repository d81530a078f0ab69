//! The capacity of each environment under the objective of a workload, as every text and the page
//! have it.

use tare_lab::analysis::claims::{self, CostKind};
use tare_lab::analysis::{Analysis, Finding, SloFigures};
use tare_lab::record::Record;

use crate::figures::{CostFormat, clean, cost, rate, with_interval};

/// The head of the table.
pub(crate) const HEAD: [&str; 4] =
    ["environment", "capacity, op/s [95 %]", "lost [95 %]", "slices that count"];

/// Returns what is above the table, and its rows: the findings of one workload with a search.
/// `None` if the workload has no objective.
pub(crate) fn table(
    record: &Record,
    analysis: &Analysis,
    workload: &str,
) -> Option<(String, Vec<Vec<String>>)> {
    let slo = record.study.workloads.iter().find(|one| one.name == workload)?.slo?;
    let findings = analysis.findings.iter().filter(|finding| finding.workload == workload);
    let row = |finding: &Finding| Some(row(analysis, finding, finding.slo.as_ref()?));
    let rows: Vec<Vec<String>> = findings.filter_map(row).collect();
    let caption = format!(
        "Capacity with a {slo}: the rate at which half of the slices keep this response time, from the intended start:"
    );
    (!rows.is_empty()).then_some((caption, rows))
}

fn row(analysis: &Analysis, finding: &Finding, slo: &SloFigures) -> Vec<String> {
    let capacity = slo.capacity_per_s.as_ref();
    let lost = slo.cost.as_ref().map(|lost| {
        cost(lost, claims::verdict(analysis, finding, CostKind::Slo), CostFormat::Short)
    });
    vec![
        clean(&finding.environment),
        capacity.map_or_else(|| "not known yet".into(), |one| with_interval(one, rate)),
        lost.unwrap_or_else(|| "-".into()),
        format!("{} of {}", slo.slices_settled, slo.slices),
    ]
}

#[cfg(test)]
mod tests {
    use tare_lab::analysis::analyse;
    use tare_lab::record::{Phase, Slice};
    use tare_lab::staircase::{self, KEPT};

    use super::*;
    use crate::fixture;

    /// Adds a search to a record: the baseline keeps the objective up to 60,000/s, the others up
    /// to 45,000/s.
    fn with_search() -> Record {
        let (mut record, _) = fixture::quick();
        record.study.workloads[0].slo = Some("p99 = 5ms".parse().unwrap());
        let workload = record.study.workloads[0].name.clone();
        let names: Vec<String> =
            record.environments.iter().map(|one| one.spec.name.clone()).collect();
        for name in names {
            let is_base = name == record.study.baseline || name.ends_with(" again");
            let limit = if is_base { 60_000.0 } else { 45_000.0 };
            for round in 0..40 {
                let steps = staircase::steps(&record.slices, &workload, &name);
                let rate_per_s = staircase::next(&steps).map_or(30_000.0, |(rate, _)| rate);
                let kept = f64::from(u8::from(rate_per_s <= limit));
                let like = record.slices.iter().find(|s| s.phase == Phase::Latency).unwrap();
                let mut slice = Slice {
                    round,
                    rate_per_s: Some(rate_per_s),
                    phase: Phase::Slo,
                    ..like.clone()
                };
                slice.environment.clone_from(&name);
                slice.workload.clone_from(&workload);
                slice.void = None;
                slice.counters = vec![tare_lab::probe::Counter { name: KEPT.into(), value: kept }];
                record.slices.push(slice);
            }
        }
        record
    }

    #[test]
    fn table_has_capacity_and_loss_of_each_environment() {
        let record = with_search();
        let analysis = analyse(&record);
        let workload = record.study.workloads[0].name.clone();
        let (caption, rows) = table(&record, &analysis, &workload).unwrap();
        assert!(caption.starts_with("Capacity with a p99 of 5.00 ms: "), "{caption}");
        assert_eq!(rows[0][0], record.study.baseline);
        assert!(rows[0][1].starts_with("59") || rows[0][1].starts_with("60"), "{rows:?}");
        assert_eq!(rows[0][2], "-");
        let row = rows.iter().find(|row| row[0] == "+ cpuset").unwrap();
        assert!(row[2].starts_with("+2"), "{rows:?}");
        let finding = |f: &&Finding| f.environment == "+ cpuset" && f.workload == workload;
        let slo = analysis.findings.iter().find(finding).unwrap().slo.as_ref().unwrap();
        let lost = &slo.cost.as_ref().unwrap().percent;
        assert!(lost.low <= 25.0 && 25.0 <= lost.high, "{lost:?}");
        assert_eq!(table(&fixture::quick().0, &analysis, &workload), None);
    }
}
