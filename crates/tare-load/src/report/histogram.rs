//! Latency histograms: HdrHistogram in ns with 3 significant digits from 1 ns to 1 hour. Longer
//! times count as one hour. They are stored and sent in HdrHistogram's V2 compressed form.

use std::io::Read;

use flate2::read::ZlibDecoder;
use hdrhistogram::serialization::{
    DeserializeError, Deserializer, Serializer, V2DeflateSerializer,
};
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
///
/// Java's histograms (seen in HdrHistogram 2.1.12) may hold a value above the range that their head
/// names, if two threads made room for longer times at once. Counts do not depend on the range, so
/// such a histogram is read with the longest one.
pub fn decode(bytes: &[u8]) -> Result<Histogram, DecodeError> {
    let read = |mut bytes: &[u8]| Deserializer::new().deserialize(&mut bytes);
    let decoded = match read(bytes) {
        Err(DeserializeError::EncodedArrayTooLong) => read(&with_longest_range(bytes)),
        decoded => decoded,
    };
    decoded.map_err(|error| DecodeError { reason: format!("{error:?}") })
}

/// First bytes of a compressed V2 histogram; a length and a zlib stream follow.
const COMPRESSED: [u8; 4] = 0x1c84_9314_u32.to_be_bytes();
/// Place of the highest value in a V2 histogram, big-endian.
const HIGHEST: std::ops::Range<usize> = 24..32;

/// The histogram without compression, with the greatest range that the format has.
fn with_longest_range(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    match bytes.strip_prefix(&COMPRESSED).and_then(|rest| rest.get(4..)) {
        // What cannot be decompressed is cut, and so is no histogram.
        Some(stream) => drop(ZlibDecoder::new(stream).read_to_end(&mut plain)),
        None => plain.extend_from_slice(bytes),
    }
    if let Some(highest) = plain.get_mut(HIGHEST) {
        highest.copy_from_slice(&i64::MAX.to_be_bytes());
    }
    plain
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

    /// Written by Java's HdrHistogram 2.1.12 after four threads had recorded 30 times each; the
    /// highest value of its head is 8,589,934,591.
    #[test]
    fn values_above_the_range_of_the_head_are_read() {
        let text = "HISTFAAAAPt4nC2Pu0oDURCGd75z4WSNEY2NNxB8BB/AQsTKyspnsLSwsArayhZbSBARCS\
                    JhSbVFSCFivUiwCJIHSGVjt4VFnIMZmPnn8s/wz/ZN3k4SWUv+zSxQos/VDn4WnWawWOsw\
                    lhWbYFhlDy1ZZoMtrhR7wjlj4QPqlDLQh0I45lmoNqlNHJ5xC0dUcC1kwhe6X6S8OmaQOS\
                    7JLHc2pm8wDJH37TnkHl4MlaHrOGFsuSD3PO7SazD1dBzvLSYhMqK+hI7QZiCcMk01aDb0\
                    VEuUhgdRDZ9C0SIXnjyTBrOUUaAUdpg7BvqE5VeiiNE6+9Sib/aD3u2qziZ/Us89tQ==";
        let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text);
        let histogram = decode(&bytes.unwrap()).unwrap();
        assert_eq!(histogram.len(), 120);
        assert_eq!(histogram.max(), 16_735_272_959);
    }
}
