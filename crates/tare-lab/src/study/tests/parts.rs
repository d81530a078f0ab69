//! Sweeps, quick parts and published relations.

use super::*;

/// A study with a quick part, a sweep and published relations.
const PARTS: &str = r#"name = "s"
title = "what?"
baseline = "native"
[schedule]
rounds = 60
budget = "2h"
[[environment]]
name = "native"
runtime = "process"
[[environment]]
name = "box"
extends = "native"
runtime = "oci:runc"
[[environment]]
name = "other"
extends = "box"
network = "host"
[[workload]]
name = "read"
write_share = 0
rows = 500_000
[[workload]]
name = "write"
[[sweep]]
workload = "read"
option = "in_flight"
values = [1, 32]
[[published]]
environment = "other"
against = "box"
workload = "read, in_flight 32"
throughput_cost_percent = [6, 12]
source = "a paper"
hardware = "a machine"
[[published]]
environment = "box"
latency_ratio = 8.1
percentile = "p99.9"
within_percent = 40
source = "a post"
[[published]]
environment = "box"
throughput_cost_percent = "gain"
source = "a post"
[quick]
environments = ["native", "other"]
workloads = ["read"]
schedule = { budget = "5m", rounds = 12 }
workload = { rows = 1000, keys = { kind = "gaussian", mean_share = 0.4 } }
"#;

#[test]
fn sweep_adds_workload_for_each_value() {
    let study = read(PARTS);
    let found: Vec<_> =
        study.workloads.iter().map(|one| (one.name.as_str(), one.in_flight, one.rows)).collect();
    assert_eq!(
        found,
        [
            ("read", defaults::IN_FLIGHT, 500_000),
            ("write", defaults::IN_FLIGHT, defaults::ROWS),
            ("read, in_flight 1", 1, 500_000),
            ("read, in_flight 32", 32, 500_000),
        ]
    );
    let broken = |old: &str, new: &str| {
        let error = parse(&PARTS.replace(old, new), "s.toml", &vocabulary()).unwrap_err();
        error.to_string().lines().next().unwrap().to_string()
    };
    let sweep = "workload = \"read\"\noption";
    assert_eq!(
        broken(sweep, "workload = \"reed\"\noption"),
        "s.toml:25:12: \"workload\" names \"reed\", but no workload has that name; did you mean \
         \"read\"?"
    );
    assert_eq!(
        broken("[1, 32]", "[1, 0]"),
        "s.toml:27:14: \"in_flight\" is 0; it must be from 1 to 1048576"
    );
}

#[test]
fn sweep_adds_environment_for_each_value() {
    let sweep = "[[sweep]]\nenvironment = \"box\"\noption = \"instances\"\nvalues = [2, 4]\n";
    let text = PARTS.replace(
        "[[published]]\nenvironment = \"other\"",
        &format!("{sweep}[[published]]\nenvironment = \"other\""),
    );
    let study = read(&text);
    let found: Vec<(&str, Option<u32>)> =
        study.environments.iter().map(|one| (one.name.as_str(), one.instances)).collect();
    // Every environment has a number once one has, so that equal numbers are no difference.
    assert_eq!(
        found,
        [
            ("native", Some(1)),
            ("box", Some(1)),
            ("other", Some(1)),
            ("box, instances 2", Some(2)),
            ("box, instances 4", Some(4)),
        ]
    );
    assert_eq!(study.environments[3].system_options(), [("instances".into(), "2".into())]);
    assert!(read(PARTS).environments.iter().all(|one| one.instances.is_none()));
    let error = |old: &str, new: &str| {
        let error = parse(&text.replace(old, new), "s.toml", &vocabulary()).unwrap_err();
        error.to_string().lines().next().unwrap().to_string()
    };
    let sweep = "environment = \"box\"\noption";
    assert_eq!(
        error(sweep, "environment = \"bix\"\noption"),
        "s.toml:29:15: \"environment\" names \"bix\", but no environment has that name; did you mean \
         \"box\"?"
    );
    assert_eq!(
        error("[2, 4]", "[2, 0]"),
        "s.toml:31:14: \"instances\" is 0; it must be from 1 to 4294967295"
    );
    assert!(
        error(sweep, "workload = \"read\"\nenvironment = \"box\"\noption").contains("give one")
    );
}

#[test]
fn quick_part_lists_what_it_leaves_out() {
    let text = PARTS;
    let part = parse_quick(text, "s.toml", &vocabulary()).unwrap();
    let names: Vec<&str> = part.environments.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["native", "other"]);
    // Inherited from an environment that is not in the part.
    assert_eq!(part.environments[1].runtime, "oci:runc");
    assert_eq!(part.title, "what? (quick part)");
    assert_eq!((part.schedule.rounds, part.schedule.budget.as_secs()), (12, 300));
    let [read] = part.workloads.as_slice() else { panic!("{:?}", part.workloads) };
    assert_eq!((read.write_share, read.rows), (0.0, 1000));
    assert!(matches!(read.keys, KeyDistribution::Gaussian { mean_share: 0.4, .. }));
    let left = part.quick.unwrap();
    assert_eq!(left.environments, ["box"]);
    assert_eq!(left.workloads, ["write", "read, in_flight 1", "read, in_flight 32"]);
    assert!(super::parse(text, "s.toml", &vocabulary()).unwrap().quick.is_none());
}

#[test]
fn checks_quick_part_with_study() {
    let broken = |old: &str, new: &str| {
        let error = parse(&PARTS.replace(old, new), "s.toml", &vocabulary()).unwrap_err();
        error.to_string().lines().next().unwrap().to_string()
    };
    assert_eq!(
        broken("[\"native\", \"other\"]", "[\"other\"]"),
        "s.toml:46:16: \"[\"other\"]\" is no valid value for \"environments\": the baseline \
         \"native\" is not among them"
    );
    assert_eq!(
        broken("rows = 1000", "rows = 0"),
        "s.toml:49:21: \"rows\" is 0; it must be from 1 to 1000000000000"
    );
    assert_eq!(
        broken("rounds = 12", "round = 12"),
        "s.toml:48:29: unknown key \"round\" in [schedule]; did you mean \"rounds\"?"
    );
    let error = parse_quick(GOOD, "s.toml", &vocabulary()).unwrap_err();
    assert!(error.to_string().contains("the study has no quick part; add a table [quick]"));
}

#[test]
fn reads_published_relations() {
    let study = read(PARTS);
    let [range, ratio, sign] = study.published.as_slice() else { panic!("three") };
    assert_eq!(range.claim, Claim::Throughput(Expected::Range(6.0, 12.0)));
    assert_eq!(
        (range.against.as_deref(), range.hardware.as_deref()),
        (Some("box"), Some("a machine"))
    );
    let latency = Claim::Latency { percentile: Percentile::P999, ratio: Expected::Value(8.1) };
    assert_eq!((&ratio.claim, ratio.within_percent), (&latency, Some(40.0)));
    assert_eq!(sign.claim, Claim::Throughput(Expected::Sign(Sign::Gain)));
    // Relations round-trip through a record. Older records have only a cost against the baseline.
    let json = serde_json::to_string(&study).unwrap();
    assert_eq!(serde_json::from_str::<Study>(&json).unwrap(), study);
    let old = r#"{"environment": "box", "throughput_cost_percent": 69.0, "source": "s"}"#;
    let old: PublishedRelation = serde_json::from_str(old).unwrap();
    assert_eq!(old.claim, Claim::Throughput(Expected::Value(69.0)));
    assert_eq!((old.against, old.workload), (None, None));
}
