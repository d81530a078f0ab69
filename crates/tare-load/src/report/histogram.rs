//! Latency histograms: HdrHistogram in ns with 3 significant digits from 1 ns to 1 hour. Longer
//! times count as one hour. They are stored and sent in HdrHistogram's V2 compressed form.

use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// A histogram of times in ns.
pub type Histogram = hdrhistogram::Histogram<u64>;

/// One hour in ns.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Returns an empty histogram.
pub fn new() -> Histogram {
    let bounds = Histogram::new_with_bounds(1, LONGEST_NS, 3);
    bounds.expect("constant bounds that HdrHistogram accepts")
}

/// Records one time in ns.
#[inline]
pub fn record(histogram: &mut Histogram, ns: u64) {
    histogram.saturating_record(ns);
}

/// Adds `other` to `histogram`. Both come from `new`, so their bounds agree.
pub(crate) fn merge(histogram: &mut Histogram, other: &Histogram) {
    histogram.add(other).expect("histograms of one shape");
}

/// Returns the largest value that the histogram cannot tell from `ns`.
#[cfg(test)]
pub(crate) fn equivalent(histogram: &Histogram, ns: u64) -> u64 {
    histogram.highest_equivalent(ns)
}

/// Encodes a histogram in HdrHistogram's V2 compressed form.
///
/// ```
/// use tare_load::histogram::{decode, encode, new, record};
///
/// let mut times = new();
/// record(&mut times, 1_500_000);
/// assert_eq!(decode(&encode(&times))?, times);
/// # Ok::<(), tare_load::histogram::DecodeError>(())
/// ```
pub fn encode(histogram: &Histogram) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    // It fails only if counts exceed an i64 or the writer fails, which a Vec does not.
    written.expect("a histogram of counted operations can be written to memory");
    bytes
}

/// Bytes that are not a histogram.
#[derive(Debug, thiserror::Error)]
#[error("not a histogram in HdrHistogram's V2 form: {reason}")]
pub struct DecodeError {
    reason: String,
}

/// Decodes a V2 histogram, compressed or not.
pub fn decode(mut bytes: &[u8]) -> Result<Histogram, DecodeError> {
    Deserializer::new()
        .deserialize(&mut bytes)
        .map_err(|error| DecodeError { reason: format!("{error:?}") })
}

/// The quantiles that a report shows, in ns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    pub count: u64,
    pub mean_ns: f64,
    pub p50_ns: u64,
    pub p90_ns: u64,
    pub p95_ns: u64,
    pub p99_ns: u64,
    pub p999_ns: u64,
    pub max_ns: u64,
}

impl Quantiles {
    pub fn of(histogram: &Histogram) -> Self {
        Self {
            count: histogram.len(),
            mean_ns: histogram.mean(),
            p50_ns: histogram.value_at_quantile(0.5),
            p90_ns: histogram.value_at_quantile(0.9),
            p95_ns: histogram.value_at_quantile(0.95),
            p99_ns: histogram.value_at_quantile(0.99),
            p999_ns: histogram.value_at_quantile(0.999),
            max_ns: histogram.max(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoding_keeps_all_counts() {
        let mut histogram = new();
        for ns in [0, 1, 999, 100_000, 123_456_789, LONGEST_NS, u64::MAX] {
            record(&mut histogram, ns);
        }
        assert_eq!(decode(&encode(&histogram)).unwrap(), histogram);
        assert_eq!(histogram.len(), 7);
        assert!(decode(b"no histogram").is_err());
        assert!(decode(&[]).is_err());
    }
}
