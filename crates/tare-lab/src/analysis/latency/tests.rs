use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use tare_std::rng::Rng;

use super::*;
use crate::analysis::{Finding, analyse, tests};

/// Slices at the fixed rate of an environment: so many operations of about 100 µs, times a factor.
fn slices(record: &mut Record, environment: &str, rounds: &[u32], operations: u32, factor: f64) {
    // The same weather for all environments of a round.
    for round in rounds {
        let mut rng = Rng::new(u64::from(*round));
        let weather = factor * (0.1 * rng.normal()).exp();
        let mut histogram = Histogram::<u64>::new(3).unwrap();
        for _ in 0..operations {
            let us = 80.0 - 20.0 * (1.0 - rng.next_f64()).ln();
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
            histogram.record((1e3 * weather * us) as u64).unwrap();
        }
        let mut bytes = Vec::new();
        V2DeflateSerializer::new().serialize(&histogram, &mut bytes).unwrap();
        let slice = tests::slice(record, *round, environment, 10.0);
        (slice.phase, slice.response) = (Phase::Latency, bytes);
    }
}

fn finding(record: &Record, environment: &str) -> Finding {
    let mut findings = analyse(record).findings.into_iter();
    findings.find(|finding| finding.environment == environment).unwrap()
}

fn percentile(record: &Record, environment: &str, percent: f64) -> Percentile {
    finding(record, environment).response.unwrap().percentile(percent).unwrap().clone()
}

const TEN: [u32; 10] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];

#[test]
fn ratio_is_tighter_than_levels_under_shared_noise() {
    let mut record = tests::record();
    slices(&mut record, "native", &TEN, 300, 1.0);
    slices(&mut record, "bridge", &TEN, 300, 1.5);
    for percent in [50.0, 95.0, 99.0] {
        let (here, base) =
            (percentile(&record, "bridge", percent), percentile(&record, "native", percent));
        let over = here.over_baseline.clone().unwrap();
        let Interval { value, low, high, rounds } = over.ratio;
        assert!(over.found && rounds == 10 && low <= value && value <= high, "{over:?}");
        assert!((value - 1.5).abs() < 0.01 && high / low < 1.02, "{over:?}");
        let (here, base) = (here.ns.unwrap(), base.ns.unwrap());
        assert!(here.high / here.low > 1.05, "the weather: {here:?}");
        assert!((over.difference_ns.value - (here.value - base.value)).abs() < 1.0, "{over:?}");
    }
    assert_eq!(percentile(&record, "native", 50.0).over_baseline, None);
    assert_eq!(percentile(&record, "bridge", 99.0), percentile(&record, "bridge", 99.0));
}

#[test]
fn percentile_is_that_of_merged_histogram() {
    let mut record = tests::record();
    slices(&mut record, "native", &TEN, 1_200, 1.0);
    let response = finding(&record, "native").response.unwrap();
    let told: Vec<f64> = response.percentiles.iter().map(|one| one.ns.unwrap().value).collect();
    let merged = [response.p50_ns, response.p95_ns, response.p99_ns, response.p999_ns];
    for (told, merged) in told.iter().zip(merged) {
        assert!((told / merged as f64 - 1.0).abs() < 1e-9, "{told} {merged}");
    }
    assert_eq!(
        response.percentiles.iter().map(|one| one.beyond).sum::<u64>(),
        6_000 + 600 + 120 + 12
    );
}

#[test]
fn hides_percentile_with_few_operations_beyond() {
    let mut record = tests::record();
    slices(&mut record, "native", &TEN, 300, 1.0);
    slices(&mut record, "bridge", &TEN[..3], 300, 1.0);
    let (p99, p999) = (percentile(&record, "native", 99.0), percentile(&record, "native", 99.9));
    assert!(p99.ns.is_some() && p99.beyond == 30, "{p99:?}");
    assert!(p999.ns.is_none() && p999.beyond == 3, "{p999:?}");
    let bridge = percentile(&record, "bridge", 99.0);
    assert!(bridge.ns.is_none() && bridge.over_baseline.is_none(), "{bridge:?}");
}

#[test]
fn ratio_uses_common_rounds() {
    let mut record = tests::record();
    slices(&mut record, "native", &TEN, 300, 1.0);
    // The rounds that native lacks are three times as slow.
    slices(&mut record, "bridge", &TEN[4..], 300, 1.5);
    slices(&mut record, "bridge", &[10, 11, 12], 300, 4.5);
    let p50 = percentile(&record, "bridge", 50.0);
    let over = p50.over_baseline.unwrap();
    assert!((over.ratio.value - 1.5).abs() < 0.01 && over.ratio.rounds == 6, "{over:?}");
    assert_eq!(p50.ns.unwrap().rounds, 9);
}

#[test]
fn one_round_is_unbounded_and_many_are_grouped() {
    let mut record = tests::record();
    slices(&mut record, "native", &[0], 300, 1.0);
    slices(&mut record, "bridge", &[0], 300, 1.5);
    let one = percentile(&record, "bridge", 50.0);
    assert!(!one.ns.unwrap().is_bounded(), "{one:?}");
    let over = one.over_baseline.unwrap();
    assert!(!over.found && !over.ratio.is_bounded(), "{over:?}");
    let json = serde_json::to_string(&over).unwrap();
    assert_eq!(serde_json::from_str::<OverBaseline>(&json).unwrap().found, over.found);

    let mut record = tests::record();
    let many: Vec<u32> = (0..150).collect();
    slices(&mut record, "native", &many, 20, 1.0);
    let p95 = percentile(&record, "native", 95.0).ns.unwrap();
    assert!(p95.rounds == 150 && p95.is_bounded(), "{p95:?}");
}
