//! Several fixed rates of a workload.

use super::*;

/// Reads `GOOD` with other words in its workload.
fn with(words: &str, more: &str) -> Result<Study, StudyError> {
    let text = GOOD.replace("write_share = 1\n", words) + more;
    parse(&text, "s.toml", &vocabulary())
}

#[test]
fn list_of_rates_makes_a_workload_for_each() {
    let words = "rate_per_s = [20_000, 5e4]\nslo = \"p99 = 5ms\"\nload = \"saturate\"\n";
    let other = "[[workload]]\nname = \"other\"\n";
    let workloads = with(words, other).unwrap().workloads;
    let shown: Vec<(&str, Option<f64>, bool, bool)> = workloads
        .iter()
        .map(|one| (one.name.as_str(), one.rate_per_s, one.rate_only, one.slo.is_some()))
        .collect();
    let expect = [
        ("w", Some(20_000.0), false, true),
        ("w, rate 50000", Some(50_000.0), true, false),
        ("other", None, false, false),
    ];
    assert_eq!(shown, expect);
    assert!(workloads[1].has_rows_of(&workloads[0]));
    let study = with(words, other).unwrap();
    let at_rate_only = crate::schedule::cells(&study).into_iter().filter(|cell| cell.workload == 1);
    let phases: Vec<_> = at_rate_only.map(|cell| cell.phase).collect();
    assert_eq!(phases, [crate::record::Phase::Latency]);
}

#[test]
fn rates_that_make_no_sense_are_refused() {
    let refused = |words: &str, expect: &str| {
        let error = with(words, "").unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    };
    refused("rate_per_s = []\n", "a list of rates needs at least one");
    refused("rate_per_s = [100, \"fast\"]\n", "rate_per_s");
    refused("rate_per_s = [100, 0]\n", "rate_per_s");
    refused("rate_per_s = [100, 200, 200]\n", "w, rate 200");
    refused("latency_share = 0\nrate_only = true\n", "nothing would be measured");
    refused("rate_per_s = [100, 200]\nlatency_share = 0.5\n", "cannot both be set");
}

#[test]
fn rows_are_shared_only_where_they_are_the_same() {
    let study = with("", "[[workload]]\nname = \"read\"\nwrite_share = 0\ntls = true\n").unwrap();
    assert!(study.workloads[1].has_rows_of(&study.workloads[0]));
    let study = with("", "[[workload]]\nname = \"more\"\nrows = 7\n").unwrap();
    assert!(!study.workloads[1].has_rows_of(&study.workloads[0]));
}
