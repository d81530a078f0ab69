//! Slices that search the capacity under a service level objective ([`crate::staircase`]).

use std::io::Cursor;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use tare_stats::quantile_of_answered;

use super::Campaign;
use crate::driver::SliceLoad;
use crate::probe::Counter;
use crate::record::Phase;
use crate::schedule::Cell;
use crate::staircase;
use crate::study::Slo;

impl Campaign<'_, '_> {
    /// Returns the rate of the next slice of a cell in an environment, in operations/s. `None` at
    /// capacity, and while it is not known.
    pub(super) fn rate(&mut self, index: usize, cell: Cell) -> Option<f64> {
        match cell.phase {
            Phase::Capacity => None,
            Phase::Latency | Phase::Traced => self.rates[cell.workload],
            Phase::Slo => self.search_rate(index, cell.workload),
        }
    }

    /// Returns the rate of the next slice of an environment: that after its recorded ones, or at
    /// first the fixed rate of the workload. `None` while that is not known.
    fn search_rate(&mut self, index: usize, workload: usize) -> Option<f64> {
        let first = self.rates[workload];
        let name = self.members[index].name().to_string();
        let workload = self.study.workloads[workload].name.clone();
        let steps = staircase::steps(&self.writer().record().slices, &workload, &name);
        let next = staircase::next(&steps).map(|(rate_per_s, _)| rate_per_s.max(1.0));
        next.or(first)
    }
}

/// Returns the counter of a slice of the search.
pub(super) fn counter(phase: Phase, slo: Option<Slo>, load: &SliceLoad) -> Option<Counter> {
    let slo = slo.filter(|_| phase == Phase::Slo)?;
    Some(staircase::counter(is_kept(slo, load)))
}

/// Returns whether a slice kept an objective. Operations that failed or were never sent count as
/// slower than any other.
fn is_kept(slo: Slo, load: &SliceLoad) -> bool {
    let read: Result<Histogram<u64>, _> =
        Deserializer::new().deserialize(&mut Cursor::new(&load.response));
    let Ok(response) = read else { return false };
    let failed: u64 = load.errors.iter().map(|(_, count)| count).sum();
    let missing = load.unsent + failed;
    quantile_of_answered(slo.percentile, response.len(), missing)
        .is_some_and(|quantile| slo.is_kept(response.value_at_quantile(quantile) as f64))
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

    use super::*;

    #[test]
    fn missing_operations_break_an_objective() {
        let mut response = Histogram::<u64>::new(3).unwrap();
        (1..=1_000u64).for_each(|ms| response.record(ms * 1_000_000).unwrap());
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&response, &mut bytes).unwrap();
        let check = |slo: &str, unsent: u64, errors: u64, expect: bool| {
            let errors = vec![("timeout".to_string(), errors)];
            let load =
                SliceLoad { response: bytes.clone(), unsent, errors, ..SliceLoad::default() };
            assert_eq!(is_kept(slo.parse().unwrap(), &load), expect, "{slo} {unsent}");
        };
        check("p99 = 995ms", 0, 0, true);
        check("p99 = 985ms", 0, 0, false);
        check("p99 = 2s", 5, 5, true);
        check("p99 = 2s", 6, 5, false);
        check("p50 = 505ms", 100, 0, false);
        assert!(!is_kept("p50 = 1s".parse().unwrap(), &SliceLoad::default()));
    }
}
