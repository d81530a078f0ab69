use super::*;
use crate::report::histogram::{Quantiles, record};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use proptest::prelude::*;

/// Writes a log of these stretches; each holds the service times of reads, and twice those as
/// response times of writes.
fn write(path: &Path, start_ms: u64, stretches: &[Vec<u64>]) {
    let mut log = Log::create(path).unwrap();
    log.begin(UNIX_EPOCH + Duration::from_millis(start_ms));
    for (second, times) in (0..).zip(stretches) {
        let mut stats = Stats { begin_ns: 0, end_ns: 1_000_000_000, ..Stats::new() };
        for &ns in times {
            stats.answered(0, ns, None);
            stats.answered(1, ns, Some(ns.saturating_mul(2)));
        }
        log.stretch(Duration::from_secs(second), &stats, &["read", "write"]);
    }
    log.finish().unwrap();
}

/// Returns every histogram of a log by tag, added up.
fn total(text: &str, tag: &str) -> Histogram {
    let mut sum = histogram::new();
    for entry in IntervalLogIterator::new(text.as_bytes()) {
        if let LogEntry::Interval(interval) = entry.unwrap()
            && interval.tag().unwrap().as_str() == tag
        {
            let bytes = STANDARD.decode(interval.encoded_histogram()).unwrap();
            let histogram = histogram::decode(&bytes).unwrap();
            assert!((interval.max() - histogram.max() as f64 / 1e6).abs() < 0.001);
            sum.add(histogram).unwrap();
        }
    }
    sum
}

#[test]
fn log_reads_back() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("load.hdr");
    write(&path, 1_700_000_000_500, &[vec![1_000, 2_000], vec![5_000_000]]);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("#[BaseTime: 1700000000.500 (seconds since epoch)]\n"), "{text}");
    let tags: Vec<&str> = text.lines().filter(|line| line.starts_with("Tag=")).collect();
    let tags: Vec<&str> = tags.iter().map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(tags, ["Tag=read-service", "Tag=write-response", "Tag=write-service"].repeat(2));
    let reads = total(&text, "read-service");
    assert_eq!((reads.len(), reads.max()), (3, reads.highest_equivalent(5_000_000)));
    assert_eq!(total(&text, "write-response").len(), 3);
}

#[test]
fn broken_log_is_refused_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.hdr");
    let refused = |text: &str| {
        std::fs::write(&path, text).unwrap();
        let error = merge(std::slice::from_ref(&path), &mut Vec::new()).unwrap_err();
        error.to_string().replace(&path.display().to_string(), "a.hdr")
    };
    assert_eq!(refused("dance\n"), "line 1 of a.hdr is not part of an HdrHistogram log");
    assert_eq!(refused("# nothing\n"), "there is no interval in a.hdr");
    assert_eq!(
        refused("# x\nTag=a,0.0,1.0,2.0,!\n"),
        "line 2 of a.hdr is not part of an HdrHistogram log"
    );
    assert_eq!(refused("0.0,1.0,2.0,AAAA\n"), "cannot read the interval in line 1 of a.hdr");
    let of = |digits| {
        let mut histogram = Histogram::new_with_bounds(1, 1_000, digits).unwrap();
        record(&mut histogram, 7);
        format!("0.0,1.0,2.0,{}\n", STANDARD.encode(histogram::encode(&histogram)))
    };
    assert_eq!(
        refused(&(of(3) + &of(2))),
        "line 2 of a.hdr counts from 1 in 2 digits, the lines before from 1 in 3 digits; merge only \
         logs of one tool"
    );
    let nowhere = folder.path().join("nowhere");
    let error = merge(&[nowhere], &mut Vec::new()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read the log "), "{error}");
}

#[test]
fn overlapping_intervals_of_loaders_merge() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("a.hdr"), folder.path().join("b.hdr")];
    write(&paths[0], 1_000_000, &[vec![10], vec![20], vec![30]]);
    // 300 ms later, and one second longer.
    write(&paths[1], 1_000_300, &[vec![40], vec![50], vec![60], vec![70]]);
    let mut out = Vec::new();
    let merged = merge(&paths, &mut out).unwrap();
    assert_eq!((merged.logs, merged.intervals_read, merged.intervals_written), (2, 21, 12));
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains("#[StartTime: 1000.000 "), "{text}");
    let first = text.lines().find(|line| line.starts_with("Tag=read-service")).unwrap();
    assert!(first.starts_with("Tag=read-service,0.000,1.300,"), "{first}");
    assert_eq!(total(&text, "read-service").len(), 7);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]
    #[test]
    fn merging_loses_nothing(
        loaders in prop::collection::vec(
            (0u64..5_000, prop::collection::vec(prop::collection::vec(1u64..1 << 45, 0..20), 1..5)),
            1..4,
        ),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        let mut expect = histogram::new();
        for (number, (start_ms, stretches)) in loaders.iter().enumerate() {
            let path = folder.path().join(format!("{number}.hdr"));
            write(&path, 1_700_000_000_000 + start_ms, stretches);
            stretches.iter().flatten().for_each(|&ns| record(&mut expect, ns));
            paths.push(path);
        }
        prop_assume!(loaders.iter().all(|(_, stretches)| stretches.iter().any(|s| !s.is_empty())));
        let mut out = Vec::new();
        let merged = merge(&paths, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        for tag in ["read-service", "write-service"] {
            let sum = total(&text, tag);
            prop_assert_eq!(&sum, &expect);
            let told = merged.tags.iter().find(|one| one.tag == tag).unwrap();
            prop_assert_eq!(&told.quantiles, &Quantiles::of(&expect));
        }
        // Merging what was merged changes nothing.
        let again = folder.path().join("again.hdr");
        std::fs::write(&again, &text).unwrap();
        let mut out = Vec::new();
        merge(&[again], &mut out).unwrap();
        prop_assert_eq!(total(&String::from_utf8(out).unwrap(), "read-service"), expect);
    }
}
