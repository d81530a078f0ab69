//! Latency histograms of a record: decoded, merged (never averaged), and read off as a curve.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use tare_lab::record::{Phase, Slice};

/// A point of the percentile curve: one in `10^nines` operations is slower.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Point {
    /// `-log10(1 - quantile)`: 1 is p90, 2 is p99, 3 is p99.9.
    pub(crate) nines: f64,
    pub(crate) latency_ns: f64,
}

/// Response times of one environment at the fixed rate, over the slices that count.
pub(crate) struct Responses {
    pub(crate) merged: Histogram<u64>,
    /// The round of each slice, with average, p95, p99 and p99.9 in ns.
    pub(crate) by_round: Vec<(u32, [f64; 4])>,
}

/// Decodes the response times of an environment's slices. `None` if no slice has any.
pub(crate) fn responses<'s>(slices: impl Iterator<Item = &'s Slice>) -> Option<Responses> {
    let counts = |slice: &&Slice| {
        slice.phase == Phase::Latency && slice.void.is_none() && !slice.response.is_empty()
    };
    let mut merged: Option<Histogram<u64>> = None;
    let mut by_round = Vec::new();
    let mut decoder = Deserializer::new();
    for slice in slices.filter(counts) {
        // A damaged histogram is left out of the chart. The analysis, which the tables show,
        // reports it.
        let Ok(histogram) = decoder.deserialize::<u64, _>(&mut slice.response.as_slice()) else {
            continue;
        };
        if histogram.is_empty() {
            continue;
        }
        #[expect(clippy::cast_precision_loss, reason = "a picture")]
        let at = |quantile| histogram.value_at_quantile(quantile) as f64;
        by_round.push((slice.round, [histogram.mean(), at(0.95), at(0.99), at(0.999)]));
        match merged.as_mut() {
            None => {
                let mut first = histogram;
                first.auto(true);
                merged = Some(first);
            }
            Some(sum) => {
                // Adding cannot fail, because the histogram resizes itself.
                let _ = sum.add(&histogram);
            }
        }
    }
    merged.map(|merged| Responses { merged, by_round })
}

/// The curve of a histogram up to the quantile `1 - 1/count`, beyond which is only the maximum.
#[expect(clippy::cast_precision_loss, reason = "a picture")]
pub(crate) fn curve(histogram: &Histogram<u64>) -> Vec<Point> {
    const STEPS_PER_NINE: u32 = 24;
    let nines_max = (histogram.len() as f64).log10().clamp(0.0, 7.0);
    let mut points = Vec::new();
    for step in 0.. {
        let nines = (f64::from(step) / f64::from(STEPS_PER_NINE)).min(nines_max);
        let quantile = 1.0 - 10f64.powf(-nines);
        let latency_ns = histogram.value_at_quantile(quantile) as f64;
        points.push(Point { nines, latency_ns: latency_ns.max(1.0) });
        if nines >= nines_max {
            break;
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn slices_are_merged_and_the_curve_rises() {
        let (record, _) = fixture::quick();
        let native = record.slices.iter().filter(|s| s.environment == "native");
        let Responses { merged: histogram, by_round } = responses(native).unwrap();
        assert_eq!(by_round.len(), 12);
        let one = record.slices.iter().filter(|s| {
            s.environment == "native" && s.phase == Phase::Latency && s.workload == "write"
        });
        assert!(histogram.len() > 1000 && one.count() > 1);
        let curve = curve(&histogram);
        assert!(curve.windows(2).all(|w| w[0].latency_ns <= w[1].latency_ns));
        assert!(curve.last().unwrap().nines > 3.0);
    }

    #[test]
    fn damaged_bytes_are_no_panic() {
        let (mut record, _) = fixture::quick();
        for slice in &mut record.slices {
            slice.response = vec![0x1c, 0x84, 0x93, 0x14, 0, 0, 0, 9, 1, 2, 3];
        }
        assert!(responses(record.slices.iter()).is_none());
    }
}
