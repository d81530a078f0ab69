//! Latency histograms: HdrHistogram, ns, 3 significant digits, 1 ns to 1 hour. Longer times count
//! as one hour. They travel in HdrHistogram's V2 compressed form and are logged in its log format,
//! version 1.3, which the tools of cassandra-stress and YCSB read and write too.

use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

/// A histogram of times in ns.
pub type Histogram = hdrhistogram::Histogram<u64>;

/// One hour in ns.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// An empty histogram.
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

/// The largest value that the histogram cannot tell from `ns`.
#[cfg(test)]
pub(crate) fn equivalent(histogram: &Histogram, ns: u64) -> u64 {
    histogram.highest_equivalent(ns)
}

/// HdrHistogram's V2 compressed form.
pub fn encode(histogram: &Histogram) -> Vec<u8> {
    let mut bytes = Vec::new();
    let written = V2DeflateSerializer::new().serialize(histogram, &mut bytes);
    // It fails only where the counts exceed an i64 or the writer fails; a Vec does not.
    written.expect("a histogram of counted operations can be written to memory");
    bytes
}

/// Why bytes are no histogram.
#[derive(Debug, thiserror::Error)]
#[error("not a histogram in HdrHistogram's V2 form: {reason}")]
pub struct DecodeError {
    reason: String,
}

/// Reads V2, compressed or not.
pub fn decode(mut bytes: &[u8]) -> Result<Histogram, DecodeError> {
    Deserializer::new()
        .deserialize(&mut bytes)
        .map_err(|error| DecodeError { reason: format!("{error:?}") })
}

/// The quantiles of a histogram that a report shows, in ns.
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

/// Writes an HdrHistogram log. Interval maxima are in ms, as cassandra-stress writes them.
#[derive(Debug)]
pub struct LogWriter<W: Write> {
    out: W,
}

impl<W: Write> LogWriter<W> {
    /// Writes the head of the log. Intervals count from `start`.
    pub fn begin(mut out: W, start: SystemTime) -> io::Result<Self> {
        let start = start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        writeln!(out, "#[Logged by tare load {}]", env!("CARGO_PKG_VERSION"))?;
        writeln!(out, "#[Histogram log format version 1.3]")?;
        writeln!(out, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
        writeln!(out, "#[StartTime: {start:.3} (seconds since epoch)]")?;
        writeln!(
            out,
            "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\
             \"Interval_Compressed_Histogram\""
        )?;
        Ok(Self { out })
    }

    /// Writes one interval under a tag without commas or blanks.
    pub fn interval(
        &mut self,
        tag: &str,
        begin: Duration,
        length: Duration,
        histogram: &Histogram,
    ) -> io::Result<()> {
        writeln!(
            self.out,
            "Tag={tag},{:.3},{:.3},{:.3},{}",
            begin.as_secs_f64(),
            length.as_secs_f64(),
            histogram.max() as f64 / 1e6,
            STANDARD.encode(encode(histogram)),
        )
    }

    /// Hands everything to the operating system.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn encoding_keeps_every_count() {
        let mut histogram = new();
        for ns in [0, 1, 999, 100_000, 123_456_789, LONGEST_NS, u64::MAX] {
            record(&mut histogram, ns);
        }
        assert_eq!(decode(&encode(&histogram)).unwrap(), histogram);
        assert_eq!(histogram.len(), 7);
        assert!(decode(b"no histogram").is_err());
        assert!(decode(&[]).is_err());
    }

    #[test]
    fn the_log_is_read_back_by_a_log_reader() {
        let mut histogram = new();
        (1..=1_000u64).for_each(|us| record(&mut histogram, us * 1_000));
        let mut text = Vec::new();
        let start = UNIX_EPOCH + Duration::from_millis(1_700_000_000_500);
        let mut log = LogWriter::begin(&mut text, start).unwrap();
        log.interval("READ-rt", Duration::from_secs(3), Duration::from_secs(1), &histogram)
            .unwrap();
        log.finish().unwrap();
        // The reader knows no legend; the reference implementation skips it.
        let text = String::from_utf8(text).unwrap();
        let text: Vec<&str> = text.lines().filter(|line| !line.starts_with('"')).collect();
        let text = text.join("\n") + "\n";
        let entries: Vec<LogEntry<'_>> =
            IntervalLogIterator::new(text.as_bytes()).collect::<Result<_, _>>().unwrap();
        let [LogEntry::BaseTime(base), LogEntry::StartTime(_), LogEntry::Interval(interval)] =
            entries.as_slice()
        else {
            panic!("{entries:?}");
        };
        assert_eq!(base.as_millis(), 1_700_000_000_500);
        assert_eq!(interval.tag().unwrap().as_str(), "READ-rt");
        assert_eq!(interval.start_timestamp(), Duration::from_secs(3));
        assert!((interval.max() - histogram.max() as f64 / 1e6).abs() < 0.001);
        let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
        assert_eq!(decode(&bytes).unwrap(), histogram);
    }
}
