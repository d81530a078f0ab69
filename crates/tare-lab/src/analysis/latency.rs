//! Latencies at the fixed rate: histograms of all slices merged into one, never averaged.

use std::io::Cursor;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;

use super::Latency;
use crate::record::{Phase, Record, Slice};

/// Some histograms could not be read; the others could.
pub(super) struct Unreadable {
    pub(super) reason: String,
    pub(super) slices: u32,
    pub(super) readable: Option<Latency>,
}

/// Merges one histogram of every latency slice of an environment that counts.
pub(super) fn merge(
    record: &Record,
    workload: &str,
    environment: &str,
    histogram_of: impl Fn(&Slice) -> &[u8],
) -> Result<Option<Latency>, Unreadable> {
    let mut deserializer = Deserializer::new();
    let mut merged: Option<Histogram<u64>> = None;
    let mut failed: Option<(String, u32)> = None;
    let slices = record.slices.iter().filter(|slice| {
        slice.phase == Phase::Latency
            && slice.void.is_none()
            && slice.workload == workload
            && slice.environment == environment
    });
    for bytes in slices.map(histogram_of).filter(|bytes| !bytes.is_empty()) {
        let outcome = deserializer
            .deserialize::<u64, _>(&mut Cursor::new(bytes))
            .map_err(|error| error.to_string())
            .and_then(|histogram| match &mut merged {
                None => {
                    let mut first = histogram;
                    first.auto(true);
                    merged = Some(first);
                    Ok(())
                }
                Some(merged) => merged.add(&histogram).map_err(|error| error.to_string()),
            });
        if let Err(reason) = outcome {
            failed.get_or_insert((reason, 0)).1 += 1;
        }
    }
    let readable = merged.filter(|histogram| !histogram.is_empty()).map(|h| quantiles(&h));
    match failed {
        None => Ok(readable),
        Some((reason, slices)) => Err(Unreadable { reason, slices, readable }),
    }
}

/// Quantiles of one slice's histogram (HdrHistogram V2). `None` where it is empty or unreadable.
pub fn latency(histogram: &[u8]) -> Option<Latency> {
    let bytes = &mut Cursor::new(histogram);
    let histogram: Histogram<u64> = Deserializer::new().deserialize(bytes).ok()?;
    (!histogram.is_empty()).then(|| quantiles(&histogram))
}

fn quantiles(histogram: &Histogram<u64>) -> Latency {
    Latency {
        mean_ns: histogram.mean(),
        p50_ns: histogram.value_at_quantile(0.5),
        p95_ns: histogram.value_at_quantile(0.95),
        p99_ns: histogram.value_at_quantile(0.99),
        p999_ns: histogram.value_at_quantile(0.999),
        max_ns: histogram.max(),
        count: histogram.len(),
    }
}
