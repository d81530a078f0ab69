use super::*;
use crate::layer::{Cgroup, Cpu, Host, Layer, Limits, Network, Quota, Rootfs, Security};

mod attach;
mod connection;
mod parts;
mod rates;

pub(super) fn vocabulary() -> Vocabulary {
    let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    Vocabulary {
        runtimes: words(&["process", "oci:*", "containerd", "docker", "docker:*"]),
        host_groups: words(&["disk", "network"]),
        storages: vec![
            KnownPart { name: "directory".into(), ..KnownPart::default() },
            KnownPart {
                name: "ext4".into(),
                options: vec![
                    KnownOption { name: "size".into(), values: vec![] },
                    KnownOption { name: "journal".into(), values: words(&["ordered", "data"]) },
                ],
                ..KnownPart::default()
            },
        ],
        vm: vec![KnownOption { name: "vcpus".into(), values: vec![] }],
        sandbox: vec![KnownOption { name: "platform".into(), values: words(&["systrap", "kvm"]) }],
        systems: vec![KnownPart {
            name: "tare-db".into(),
            options: vec![
                KnownOption { name: "durability".into(), values: words(&["periodic", "batch"]) },
                KnownOption { name: "shards".into(), values: vec![] },
                KnownOption {
                    name: "overprovisioned".into(),
                    values: words(&["auto", "yes", "no"]),
                },
            ],
            ..KnownPart::default()
        }],
        drivers: vec![
            KnownPart { name: "tare-load".into(), ..KnownPart::default() },
            KnownPart {
                name: "fio".into(),
                options: vec![
                    KnownOption { name: "rw".into(), values: words(&["randread", "write"]) },
                    KnownOption { name: "iodepth".into(), values: vec![] },
                ],
                ..KnownPart::default()
            },
        ],
        workloads: vec![KnownWorkload { name: "ycsb-a".into(), text: None, rows: 1_000_000 }],
    }
}

fn read(text: &str) -> Study {
    parse(text, "s.toml", &vocabulary()).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) const GOOD: &str = r#"name = "s"
baseline = "native"
[schedule]
rounds = 9
[[environment]]
name = "native"
runtime = "process"
[[environment]]
name = "box"
extends = "native"
[[workload]]
name = "w"
write_share = 1
"#;

/// Checks the error for `GOOD` with one text replaced by another.
#[track_caller]
fn check(old: &str, new: &str, expect: &str) {
    assert_eq!(GOOD.matches(old).count(), 1, "{old:?} occurs not exactly once in GOOD");
    let text = GOOD.replace(old, new);
    let error = parse(&text, "s.toml", &vocabulary()).expect_err(new);
    assert_eq!(error.to_string(), expect.trim_matches('\n'), "\n{error}");
}

#[test]
fn objective_needs_a_fixed_rate() {
    let with = |words: &str| {
        let text = GOOD.replace("write_share = 1\n", words);
        parse(&text, "s.toml", &vocabulary())
    };
    let workload = with("slo = \"p99 = 5ms\"\n").unwrap().workloads.remove(0);
    assert_eq!(workload.slo, Some("p99 = 5ms".parse().unwrap()));
    let error = with("latency_share = 0\nslo = \"p99 = 5ms\"\n").unwrap_err().to_string();
    assert!(error.contains("set latency_share above 0"), "{error}");
    let error = with("slo = \"p99 < 5ms\"\n").unwrap_err().to_string();
    assert!(error.contains("such as \"p99 = 5ms\""), "{error}");
}

#[test]
fn accepts_named_workload() {
    let named = |words: &str| {
        let text = GOOD.replace("write_share = 1\n", words);
        let workload = read(&text).workloads.remove(0);
        (workload.workload, workload.rows, workload.columns, workload.write_share)
    };
    let name = Some("ycsb-a".to_string());
    assert_eq!(named("workload = \"ycsb-a\"\n"), (name.clone(), 1_000_000, 0, 0.0));
    assert_eq!(named("workload = \"ycsb-a\"\nrows = 5\n"), (name, 5, 0, 0.0));
    assert_eq!(named("rows = 5\n"), (None, 5, defaults::COLUMNS, 1.0));
    check(
        "write_share = 1",
        "workload = \"ycsb-b\"",
        r#"
s.toml:13:12: unknown value "ycsb-b" for "workload"; did you mean "ycsb-a"?
   |
13 | workload = "ycsb-b"
   |            ^^^^^^^^
"#,
    );
    check(
        "write_share = 1",
        "write_share = 1\nworkload = \"ycsb-a\"",
        r#"
s.toml:13:1: "write_share" and "workload" cannot both be set: a predefined workload has its own
   |
13 | write_share = 1
   | ^^^^^^^^^^^
"#,
    );
}

#[test]
fn shipped_studies_and_the_template_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies");
    for name in ["quick.toml", "docker-cost.toml"] {
        let study = read(&std::fs::read_to_string(format!("{folder}/{name}")).unwrap());
        assert_eq!(format!("{}.toml", study.name), name);
        assert!(study.environments.len() >= 6);
    }
    assert_eq!(read(TEMPLATE).name, "template");
}

#[test]
fn quick_steps_change_one_layer_each() {
    let text = include_str!("../../../../studies/quick.toml");
    let study = read(text);
    let ladder: Vec<_> =
        study.environments.iter().filter(|one| one.runtime == "oci:runc").collect();
    assert_eq!(ladder.len(), 6);
    for pair in ladder.windows(2) {
        let layers = |spec: &crate::environment::EnvironmentSpec| {
            [Layer::Network, Layer::Cpu, Layer::Security, Layer::Cgroup]
                .map(|layer| layer.text(spec))
        };
        let (before, after) = (layers(pair[0]), layers(pair[1]));
        let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        assert_eq!(changed, 1, "{} -> {}", pair[0].name, pair[1].name);
    }
}

#[test]
fn fills_in_defaults() {
    let study = read(GOOD);
    assert_eq!(study.driver, "tare-load");
    assert_eq!(study.system, SystemSpec { name: "tare-db".into(), options: vec![] });
    let schedule = &study.schedule;
    assert_eq!(
        (schedule.kind, schedule.window, schedule.rounds, schedule.rounds_min),
        (ScheduleKind::Slices, defaults::WINDOW_SLICES, 9, 8)
    );
    let native = &study.environments[0];
    let layers = (native.network, native.cpu, native.security, native.cgroup);
    assert_eq!(layers, (Network::Host, Cpu::Shared, Security::None, Cgroup::None));
    let workload = &study.workloads[0];
    assert_eq!((workload.keys, workload.latency_share), (KeyDistribution::Uniform, 0.5));
    let container = read(&GOOD.replace("\"process\"", "\"oci:runc\""));
    let container = &container.environments[0];
    let layers = (container.network, container.cpu, container.security, container.cgroup);
    let bridge = Network::Bridge { proxy: false };
    assert_eq!(layers, (bridge, Cpu::Shared, Security::Default, Cgroup::Own));
}

#[test]
fn extends_inherits_missing_layers() {
    let study = read(&GOOD.replace(
        "extends = \"native\"\n",
        "extends = \"limited\"\ncpu = \"pinned\"\noptional = true\n\
         [[environment]]\nname = \"limited\"\nextends = \"native\"\nruntime = \"docker\"\n\
         cpu = \"quota=1.5\"\nlimits = { memory = \"2G\" }\n\
         [[environment]]\nname = \"free\"\nextends = \"limited\"\n\
         limits = { memory = \"none\", cpu_weight = 50, write_iops = \"none\" }\n",
    ));
    let [_, pinned, limited, free] = &study.environments[..] else { panic!() };
    assert_eq!((pinned.runtime.as_str(), pinned.cpu), ("docker", Cpu::Pinned));
    assert_eq!(pinned.limits.memory_bytes, Some(2 << 30));
    assert!(pinned.optional && !limited.optional);
    let bridge = Network::Bridge { proxy: false };
    assert_eq!((limited.cpu, limited.network), (Cpu::Quota(Quota::of(1.5)), bridge));
    assert_eq!(free.limits, Limits { cpu_weight: Some(50), ..Limits::default() });
}

#[test]
fn reads_from_disk_needs_reads() {
    let read = |text: &str| parse(text, "s.toml", &vocabulary());
    let with = |share: &str| {
        GOOD.replace(
            "write_share = 1",
            &format!("write_share = {share}\nreads_from_disk = \"95%\""),
        )
    };
    let study = read(&with("0.5")).unwrap();
    assert_eq!(study.workloads[0].reads_from_disk, Some(0.95));
    let error = read(&with("1")).unwrap_err().to_string();
    assert!(error.contains("this workload has no reads"), "{error}");
}

#[test]
fn reads_driver_options() {
    let text = GOOD.replace("baseline", "driver = \"fio\"\nbaseline");
    let (head, _) = text.split_once("[[workload]]").unwrap();
    let with = |workload: &str| {
        parse(&format!("{head}[[workload]]\nname = \"w\"\n{workload}"), "s.toml", &vocabulary())
    };
    let study = with("fio = { rw = \"randread\", iodepth = 32 }\nlatency_share = 0").unwrap();
    assert_eq!(study.driver, "fio");
    let workload = &study.workloads[0];
    let option = |name: &str, value: &str| (name.to_string(), value.to_string());
    assert_eq!(workload.options, [option("rw", "randread"), option("iodepth", "32")]);
    assert_eq!((workload.rows, workload.latency_share), (0, 0.0));
    for (workload, expect) in [
        ("", "fio"),
        ("fio = { iodept = 1 }", "iodepth"),
        ("fio = { rw = \"randwrit\" }", "randread"),
        ("rows = 5\nfio = { rw = \"write\" }", "rows"),
    ] {
        let error = with(workload).unwrap_err().to_string();
        assert!(error.contains(expect), "{workload}: {error}");
    }
}

#[test]
fn reads_options_keys_and_cpus() {
    let study = read(&GOOD.replace(
        "[schedule]",
        "[system]\nshards = 2\ndurability = \"batch\"\n[cpus]\nsystem = \"2-3\"\n\
         client = \"0x3\"\n[schedule]\nkind = \"trials\"\nseed = 7\nbudget = \"1h\"",
    ));
    let option = |name: &str, value: &str| (name.to_string(), value.to_string());
    assert_eq!(study.system.options, [option("shards", "2"), option("durability", "batch")]);
    assert_eq!(study.cpus.client.unwrap().to_string(), "0-1");
    assert_eq!(study.schedule.window, defaults::WINDOW_TRIALS);
    assert_eq!((study.schedule.seed, study.schedule.budget.as_secs()), (Some(7), 3600));
    let study = read(&GOOD.replace(
        "write_share = 1\n",
        "write_share = \"25%\"\nkeys = { kind = \"gaussian\", deviation_share = 0.1 }\n\
         rate_per_s = 500\n",
    ));
    let workload = &study.workloads[0];
    assert_eq!((workload.write_share, workload.latency_share), (0.25, 0.0));
    assert_eq!(workload.rate_per_s, Some(500.0));
    let keys = KeyDistribution::Gaussian { mean_share: 0.5, deviation_share: 0.1 };
    assert_eq!(workload.keys, keys);
}

#[test]
fn reads_cpus_for_interrupts() {
    let cpus = |text: &str| {
        let text = GOOD.replace("[schedule]", &format!("[cpus]\n{text}\n[schedule]"));
        parse(&text, "s.toml", &vocabulary()).map(|study| study.cpus)
    };
    let none = cpus("system = 4").unwrap();
    assert!(!none.says_interrupts());
    let count = cpus("interrupts = 0").unwrap();
    assert_eq!((count.interrupts_count, count.says_interrupts()), (Some(0), true));
    let list = cpus("client = \"4-7\"\ninterrupts = \"0-1\"").unwrap();
    assert_eq!(list.interrupts.unwrap().to_string(), "0-1");
    let error = cpus("client = \"0-7\"\ninterrupts = \"1-2\"").unwrap_err().to_string();
    assert!(error.contains("CPU 1-2 is also in \"client\"; interrupts need their own"), "{error}");
}

#[test]
fn unknown_key_shows_place_and_nearest_name() {
    check(
        "runtime =",
        "runtme =",
        r#"
s.toml:7:1: unknown key "runtme" in [[environment]]; did you mean "runtime"?
  |
7 | runtme = "process"
  | ^^^^^^"#,
    );
    check(
        "[schedule]",
        "[shedule]",
        r#"
s.toml:3:2: unknown key "shedule" in the study; did you mean "schedule"?
  |
3 | [shedule]
  |  ^^^^^^^"#,
    );
    check(
        "runtime = \"process\"",
        "runtime = \"process\"\nlimits = { disk = \"1G\" }",
        r#"
s.toml:8:12: unknown key "disk" in limits; known: memory, memory_high, swap, huge_pages, cpu_weight, io_weight, read_bandwidth, write_bandwidth, read_iops, write_iops, network_bandwidth
  |
8 | limits = { disk = "1G" }
  |            ^^^^"#,
    );
    check(
        "[schedule]",
        "[system]\ndurabilty = \"batch\"\n[schedule]",
        r#"
s.toml:4:1: unknown key "durabilty" in [system] of tare-db; did you mean "durability"?
  |
4 | durabilty = "batch"
  | ^^^^^^^^^"#,
    );
    check(
        "write_share = 1",
        "write_share = 1\nkeys = { kind = \"uniform\", mean_share = 1 }",
        r#"
s.toml:14:28: unknown key "mean_share" in keys of kind uniform; known: kind
   |
14 | keys = { kind = "uniform", mean_share = 1 }
   |                            ^^^^^^^^^^"#,
    );
}

#[test]
fn unknown_value_shows_nearest() {
    check(
        "\"process\"",
        "\"proces\"",
        r#"
s.toml:7:11: unknown value "proces" for "runtime"; did you mean "process"?
  |
7 | runtime = "proces"
  |           ^^^^^^^^"#,
    );
    check(
        "\"process\"",
        "\"oci:\"",
        r#"
s.toml:7:11: unknown value "oci:" for "runtime"; did you mean "oci:*"?
  |
7 | runtime = "oci:"
  |           ^^^^^^"#,
    );
    check(
        "runtime = \"process\"",
        "runtime = \"process\"\nnetwork = \"carrier pigeon\"",
        r#"
s.toml:8:11: unknown value "carrier pigeon" for "network"; known: host, bridge, bridge+proxy, macvlan, ipvlan, vxlan, pasta, none, service, node-port, host-port
  |
8 | network = "carrier pigeon"
  |           ^^^^^^^^^^^^^^^^"#,
    );
    check(
        "[schedule]",
        "[system]\nname = \"tare-dc\"\n[schedule]",
        r#"
s.toml:4:8: unknown value "tare-dc" for "name"; did you mean "tare-db"?
  |
4 | name = "tare-dc"
  |        ^^^^^^^^^"#,
    );
    check(
        "[schedule]",
        "[system]\ndurability = \"bach\"\n[schedule]",
        r#"
s.toml:4:14: unknown value "bach" for "durability"; did you mean "batch"?
  |
4 | durability = "bach"
  |              ^^^^^^"#,
    );
    check(
        "[schedule]\n",
        "[schedule]\nkind = \"slice\"\n",
        r#"
s.toml:4:8: unknown value "slice" for "kind"; did you mean "slices"?
  |
4 | kind = "slice"
  |        ^^^^^^^"#,
    );
    check(
        "write_share = 1",
        "write_share = 1\nkeys = \"gausian\"",
        r#"
s.toml:14:8: unknown value "gausian" for "keys"; did you mean "gaussian"?
   |
14 | keys = "gausian"
   |        ^^^^^^^^^"#,
    );
}

#[test]
fn refuses_invalid_environments() {
    check(
        "baseline = \"native\"",
        "baseline = \"nativ\"",
        r#"
s.toml:2:12: "baseline" names "nativ", but no environment has that name; did you mean "native"?
  |
2 | baseline = "nativ"
  |            ^^^^^^^"#,
    );
    check(
        "extends = \"native\"",
        "extends = \"none such\"",
        r#"
s.toml:10:11: "extends" names "none such", but no environment has that name; known: native, box
   |
10 | extends = "none such"
   |           ^^^^^^^^^^^"#,
    );
    check(
        "runtime = \"process\"",
        "extends = \"box\"",
        r#"
s.toml:10:11: environments extend each other in a circle: native -> box -> native
   |
10 | extends = "native"
   |           ^^^^^^^^"#,
    );
    check(
        "name = \"box\"",
        "name = \"native\"",
        r#"
s.toml:9:8: there are two environments named "native"; the first is on line 6
  |
9 | name = "native"
  |        ^^^^^^^^"#,
    );
    check(
        "name = \"box\"",
        "name = \"native again\"",
        r#"
s.toml:9:8: "native again" is no valid value for "name": the baseline's second copy (A/A control) has this name
  |
9 | name = "native again"
  |        ^^^^^^^^^^^^^^"#,
    );
    check(
        "runtime = \"process\"\n",
        "",
        r#"
s.toml:5:1: [[environment]] lacks the key "runtime"
  |
5 | [[environment]]
  | ^^^^^^^^^^^^^^^"#,
    );
    check(
        "runtime = \"process\"",
        "runtime = \"process\"\ncpu = \"quota=two\"",
        r#"
s.toml:8:7: "quota=two" is no valid value for "cpu": a quota is a number of CPUs such as quota=1.5, a period from 1ms to 1s may follow (quota=1.5/10ms), and a burst (quota=1.5/10ms+5ms); the quota of a period is at least 1 ms of CPU time, and a burst at most that quota
  |
8 | cpu = "quota=two"
  |       ^^^^^^^^^^^"#,
    );
    check(
        "runtime = \"process\"",
        "runtime = \"process\"\nlimits.memory = \"6X\"",
        r#"
s.toml:8:17: "6X" is no valid value for "memory": "6X" is not an amount of memory; write it like 512M or 6G
  |
8 | limits.memory = "6X"
  |                 ^^^^"#,
    );
    for (limit, expect) in [
        ("cpu_weight = 0", "\"cpu_weight\" is 0; it must be from 1 to 10000"),
        ("cpu_weight = \"high\"", "\"cpu_weight\" must be a whole number, not a text"),
        ("io_weight = 1001", "\"io_weight\" is 1001; it must be from 1 to 1000"),
        ("write_iops = 9", "\"write_iops\" is 9; it must be from 10 to"),
        ("write_bandwidth = \"1K\"", "it must be at least 64K (bytes per second), or \"none\""),
        ("memory_high = \"1K\"", "it must be at least 1M, or \"none\""),
    ] {
        let with = format!("runtime = \"process\"\nlimits.{limit}");
        let text = GOOD.replace("runtime = \"process\"", &with);
        let error = parse(&text, "s.toml", &vocabulary()).unwrap_err().to_string();
        assert!(error.lines().next().unwrap().contains(expect), "{error}");
    }
    check(
        "runtime = \"process\"",
        "runtime = \"process\"\noptional = \"yes\"",
        r#"
s.toml:8:12: "optional" must be true or false, not a text
  |
8 | optional = "yes"
  |            ^^^^^"#,
    );
}

#[test]
fn refuses_invalid_workloads() {
    check(
        "write_share = 1",
        "write_share = 1\nrows = 0",
        r#"
s.toml:14:8: "rows" is 0; it must be from 1 to 1000000000000
   |
14 | rows = 0
   |        ^"#,
    );
    check(
        "write_share = 1",
        "write_share = 1.5",
        r#"
s.toml:13:15: "write_share" is 1.5; it must be from 0 to 1 (0 % to 100 %)
   |
13 | write_share = 1.5
   |               ^^^"#,
    );
    check(
        "write_share = 1",
        "write_share = \"half\"",
        r#"
s.toml:13:15: "half" is no valid value for "write_share": a share is a number from 0 to 1 or a percentage, such as 0.5 or "50%"
   |
13 | write_share = "half"
   |               ^^^^^^"#,
    );
    check(
        "name = \"w\"\n",
        "",
        r#"
s.toml:11:1: [[workload]] lacks the key "name"
   |
11 | [[workload]]
   | ^^^^^^^^^^^^"#,
    );
    check(
        "write_share = 1",
        "write_share = 1\nlatency_share = 0.5\nrate_per_s = 10",
        r#"
s.toml:15:1: "rate_per_s" and "latency_share" cannot both be set: the fixed rate is either a number or a share of the baseline's capacity
   |
15 | rate_per_s = 10
   | ^^^^^^^^^^"#,
    );
}

#[test]
fn refuses_invalid_schedules_and_cpus() {
    check(
        "rounds = 9",
        "budget = \"5 parsecs\"",
        r#"
s.toml:4:10: "5 parsecs" is no valid value for "budget": a duration is a number with ns, us, ms, s, m or h, such as "400ms" or "5m"
  |
4 | budget = "5 parsecs"
  |          ^^^^^^^^^^^"#,
    );
    check(
        "rounds = 9",
        "window = 400",
        r#"
s.toml:4:10: "window" must be a duration in quotes, such as "400ms", not a whole number
  |
4 | window = 400
  |          ^^^"#,
    );
    check(
        "rounds = 9",
        "window = \"1ms\"",
        r#"
s.toml:4:10: "window" is "1ms"; it must be from 20ms to 3600s
  |
4 | window = "1ms"
  |          ^^^^^"#,
    );
    check(
        "rounds = 9",
        "rounds = 9\nrounds_min = 10",
        r#"
s.toml:5:14: "rounds_min" is 10; it must be at most "rounds", which is 9
  |
5 | rounds_min = 10
  |              ^^"#,
    );
    check(
        "[schedule]",
        "[cpus]\nsystem = \"0-1\"\nclient = \"1\"\n[schedule]",
        r#"
s.toml:5:10: "1" is no valid value for "client": CPU 1 is also in "system"; the client needs its own
  |
5 | client = "1"
  |          ^^^"#,
    );
    check(
        "[schedule]",
        "[cpus]\nsystem = \"3-1\"\n[schedule]",
        r#"
s.toml:4:10: "3-1" is no valid value for "system": "3-1" is not a CPU list: the range "3-1" runs backwards
  |
4 | system = "3-1"
  |          ^^^^^"#,
    );
}

#[test]
fn window_may_be_chosen_on_the_host() {
    let schedule = |lines: &str| read(&GOOD.replace("rounds = 9", lines)).schedule;
    let auto = schedule("window = \"auto\"");
    assert_eq!(auto.auto_window, Some(AutoWindow::default()));
    assert_eq!((auto.window, auto.window_at_rate()), (AutoWindow::AT_RATE, AutoWindow::AT_RATE));
    let defaults = (defaults::LEAD_IN_AUTO, defaults::ROUNDS_AUTO, defaults::ROUNDS_MIN_AUTO);
    assert_eq!((auto.lead_in, auto.rounds, auto.rounds_min), defaults);
    let fixed = schedule("window = \"300ms\"\nrestarts = 3");
    assert_eq!((fixed.warm_up, fixed.warm_up_turns()), (Duration::ZERO, 1));
    assert_eq!((fixed.auto_window, fixed.restarts), (None, 3));
    assert_eq!(fixed.window, Duration::from_millis(300));

    let warm = schedule("window = \"300ms\"\nlead_in = \"100ms\"\nwarm_up = \"2100ms\"");
    assert_eq!(warm.warm_up_turns(), 6, "slices of 400 ms for at least 2.1 s");
    for (lines, expect) in [
        (
            "kind = \"trials\"\nwarm_up = \"1s\"",
            "every trial starts its environment; use \"lead_in\"",
        ),
        ("kind = \"trials\"\nwindow = \"auto\"", "only slices have a window that Tare chooses"),
        ("kind = \"trials\"\nrestarts = 2", "every trial starts its environment anyway"),
        ("window = \"automatic\"", "\"window\""),
        ("restarts = 101", "from 0 to 100"),
    ] {
        let text = GOOD.replace("rounds = 9", lines);
        let error = parse(&text, "s.toml", &vocabulary()).expect_err(lines).to_string();
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn refuses_broken_toml_and_missing_parts() {
    check(
        "rounds = 9",
        "rounds = ",
        r#"
s.toml:4:10: not valid TOML: string values must be quoted, expected literal string
  |
4 | rounds = 
  |          ^"#,
    );
    check(
        "name = \"s\"\n",
        "# no name\n",
        r#"
s.toml:1:1: the study lacks the key "name"
  |
1 | # no name
  | ^^^^^^^^^"#,
    );
    let published = "[[published]]\nenvironment = \"boxx\"\n[[workload]]";
    check(
        "[[workload]]",
        published,
        r#"
s.toml:12:15: "environment" names "boxx", but no environment has that name; did you mean "box"?
   |
12 | environment = "boxx"
   |               ^^^^^^"#,
    );
    let error = parse("", "empty.toml", &vocabulary()).unwrap_err();
    assert_eq!(
        error.to_string().lines().next(),
        Some("empty.toml:1:1: the study lacks the key \"name\"")
    );
}

#[test]
fn host_layer_defaults_to_as_is() {
    let study =
        read(&GOOD.replace("extends = \"native\"", "extends = \"native\"\nhost = \"tuned\""));
    let hosts: Vec<&Host> = study.environments.iter().map(|one| &one.host).collect();
    assert_eq!(hosts, [&Host::AsIs, &Host::Tuned]);
    // `as-is` is not serialized, so the JSON of older studies is unchanged.
    let json = serde_json::to_string(&study).unwrap();
    assert_eq!(json.matches("\"host\":").count(), 1, "{json}");
    assert_eq!(serde_json::from_str::<Study>(&json).unwrap(), study);
}

#[test]
fn reads_storage_vm_and_inject_layers() {
    let study = read(&GOOD.replace(
        "extends = \"native\"\n",
        "extends = \"native\"\nstorage = { kind = \"ext4\", size = \"2G\", journal = \"data\" }\n\
         vm = { vcpus = 2 }\nsandbox = { platform = \"kvm\" }\ninject = \"busy=2us\"\n\
         rootfs = { packages = [\"redis-server\", \"dash=1\"] }\n",
    ));
    let [native, other] = &study.environments[..] else { panic!("{study:?}") };
    assert!(
        native.storage.is_directory()
            && native.vm.is_empty()
            && native.sandbox.is_empty()
            && native.rootfs.is_none()
            && native.inject.is_nothing()
    );
    assert_eq!(other.storage.to_string(), "ext4 (size = 2G, journal = data)");
    assert_eq!(other.vm, [("vcpus".to_string(), "2".to_string())]);
    assert_eq!(other.sandbox, [("platform".to_string(), "kvm".to_string())]);
    assert_eq!(other.rootfs, Rootfs::Packages("redis-server dash=1".into()));
    assert_eq!(other.inject.to_string(), "busy=2us");
    let plain =
        GOOD.replace("extends = \"native\"\n", "extends = \"native\"\nstorage = \"ext4\"\n");
    assert_eq!(read(&plain).environments[1].storage.to_string(), "ext4");
    for (bad, expect) in [
        ("storage = \"ext5\"", "ext4"),
        ("storage = { kind = \"ext4\", journal = \"datta\" }", "data"),
        ("storage = { kind = \"directory\", size = \"2G\" }", "size"),
        ("vm = { vpus = 2 }", "vcpus"),
        ("sandbox = { platform = \"kvn\" }", "kvm"),
        ("rootfs = \"redis\"", "none"),
        ("rootfs = { package = \"redis\" }", "packages"),
        ("rootfs = { packages = \"a\", image = \"b\" }", "give one of"),
        ("rootfs = { packages = [\"a b\"] }", "no spaces"),
        ("inject = \"bussy\"", "busy=*"),
        ("inject = \"busy=2\"", "use one of none"),
        ("cpu = \"quota=0\"", "such as quota=1.5"),
        ("security = { capabilites = \"none\" }", "capabilities"),
        ("security = { capabilities = \"all\" }", "none"),
        ("security = { seccomp = \"of\" }", "default"),
        ("user = \"rootless\"", "namespace"),
        ("apparmor = \"docker\"", "default"),
        ("sidecar = \"istio\"", "idle"),
        ("memory = { pages = \"allways\" }", "always"),
        ("memory = { node = \"x\" }", "a whole number"),
        ("memory = \"always\"", "a table"),
        ("host = \"tuned=dsk\"", "disk"),
        ("host = \"tuned=disk+\"", "separate groups of knobs by +"),
    ] {
        let text =
            GOOD.replace("extends = \"native\"\n", &format!("extends = \"native\"\n{bad}\n"));
        let error = parse(&text, "s.toml", &vocabulary()).expect_err(bad).to_string();
        assert!(error.contains(expect), "{bad}: {error}");
    }
}

/// Fails for a layer that a study cannot set.
#[test]
fn study_has_key_for_every_layer() {
    for layer in Layer::ALL {
        let value = match layer {
            Layer::Runtime => "\"oci:runc\"",
            Layer::Network => "\"bridge+proxy\"",
            Layer::Cpu => "\"quota=1.5\"",
            Layer::Security => "\"default\"",
            Layer::Capabilities => "\"none\"",
            Layer::User => "\"namespace\"",
            Layer::Apparmor => "\"default\"",
            Layer::Pages => "\"never\"",
            Layer::Node => "0",
            Layer::Cgroup => "\"own\"",
            Layer::Host => "\"tuned=disk\"",
            Layer::Storage => "{ kind = \"ext4\", size = \"2G\" }",
            Layer::Vm => "{ vcpus = 2 }",
            Layer::Sandbox => "{ platform = \"kvm\" }",
            Layer::Rootfs => "{ image = \"/srv/x\" }",
            Layer::Inject => "\"busy=2us\"",
            Layer::System => "{ overprovisioned = \"yes\" }",
            Layer::Limits => "{ memory = \"1G\" }",
            Layer::Instances => "3",
            Layer::Sidecar => "\"proxy\"",
            Layer::Neighbours => "[\"burner\"]\n[[neighbour]]\nname = \"burner\"\nkind = \"cpu\"",
        };
        let line = format!("extends = \"native\"\n{} = {value}\n", layer.name());
        // Sets every layer, because the defaults of the others depend on the runtime.
        let process = "\"process\"\nnetwork = \"host\"\nsecurity = \"none\"\ncgroup = \"none\"";
        let text = GOOD.replace("\"process\"", process);
        let study = read(&text.replace("extends = \"native\"\n", &line));
        let [native, other] = &study.environments[..] else { panic!("{study:?}") };
        let differ: Vec<Layer> =
            Layer::ALL.into_iter().filter(|one| one.differs(native, other)).collect();
        assert_eq!(differ, [layer]);
    }
}

#[test]
fn an_environment_may_have_options_of_the_system() {
    let text = GOOD.replace(
        "extends = \"native\"",
        "extends = \"native\"\nsystem = { durability = \"batch\" }\n[[environment]]\nname = \"c\"\n\
         extends = \"box\"",
    );
    let study = read(&text);
    let options = vec![("durability".to_string(), "batch".to_string())];
    let of = |at: usize| study.environments[at].system.clone();
    assert_eq!((of(0), of(1), of(2)), (vec![], options.clone(), options.clone()));
    // They replace those of the study.
    let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
    let common = SystemSpec {
        name: "tare-db".into(),
        options: vec![pair("durability", "periodic"), pair("shards", "2")],
    };
    assert_eq!(common.with_options(&options).options, [pair("shards", "2"), options[0].clone()]);
    check(
        "extends = \"native\"",
        "extends = \"native\"\nsystem = { durabilty = \"batch\" }",
        r#"
s.toml:11:12: unknown key "durabilty" in system of tare-db; did you mean "durability"?
   |
11 | system = { durabilty = "batch" }
   |            ^^^^^^^^^
"#,
    );
}

#[test]
fn reads_loaders() {
    let loaders = "[[loader]]\nhost = \"ssh:load1\"\ncpus = \"2-15\"\naddress = \"10.0.0.5\"\n\
                   [[loader]]\nhost = \"ssh:bench@10.0.0.12:2222\"\n[[loader]]\n";
    let study = read(&GOOD.replace("[schedule]", &format!("{loaders}[schedule]")));
    let names: Vec<String> = study.loaders.iter().map(LoaderSpec::name).collect();
    assert_eq!(names, ["ssh:load1", "ssh:bench@10.0.0.12:2222", "local"]);
    assert_eq!(study.loaders[0].cpus, Some("2-15".parse().unwrap()));
    assert_eq!(study.loaders[0].address, Some("10.0.0.5".parse().unwrap()));
    assert_eq!((&study.loaders[1].cpus, &study.loaders[1].address), (&None, &None));
    let text = serde_json::to_string(&study).unwrap();
    assert_eq!(serde_json::from_str::<Study>(&text).unwrap(), study);
    assert!(read(GOOD).loaders.is_empty());
    assert!(!serde_json::to_string(&read(GOOD)).unwrap().contains("loader"));
}

#[test]
fn refuses_invalid_loaders() {
    let one = |lines: &str| format!("[[loader]]\n{lines}\n[schedule]");
    check(
        "[schedule]",
        &one("host = \"load1\""),
        r#"
s.toml:4:8: "load1" is no valid value for "host": it has no kind; write local, ssh:HOST, ssh:USER@HOST, ssh:HOST:PORT, kubernetes:NODE, pod:NODE or pods:LABEL=VALUE
  |
4 | host = "load1"
  |        ^^^^^^^
"#,
    );
    check(
        "[schedule]",
        &one("host = \"ssh:a\"\n[[loader]]\nhost = \"ssh:a\""),
        r#"
s.toml:6:8: there are two loaders named "ssh:a"; the first is on line 4
  |
6 | host = "ssh:a"
  |        ^^^^^^^
"#,
    );
    check(
        "[schedule]",
        &one("host = \"ssh:a\"\ncpus = \"2-\""),
        r#"
s.toml:5:8: "2-" is no valid value for "cpus": "2-" is not a CPU list: "2-" is not a number or range
  |
5 | cpus = "2-"
  |        ^^^^
"#,
    );
    check(
        "[schedule]",
        &one("host = \"ssh:a\"\naddress = \"here\""),
        r#"
s.toml:5:11: "address" must be an IP address such as "10.0.0.5", not a text
  |
5 | address = "here"
  |           ^^^^^^
"#,
    );
    check(
        "[schedule]",
        &one("host = \"ssh:a\"\ncount = 2"),
        r#"
s.toml:5:9: "2" is no valid value for "count": only a selector of nodes (pods:LABEL=VALUE) has a count
  |
5 | count = 2
  |         ^
"#,
    );
    let text = GOOD.replace("[schedule]", &one("[[loader]]"));
    let error = parse(&text, "s.toml", &vocabulary()).unwrap_err().to_string();
    assert!(error.contains("\"host\""), "{error}");
}

#[test]
fn every_loader_gets_a_part_of_the_workload() {
    let loaders = "[[loader]]\nhost = \"ssh:a\"\n[[loader]]\nhost = \"ssh:b\"\n[schedule]";
    let two = GOOD.replace("[schedule]", loaders);
    for key in ["connections", "in_flight", "rows"] {
        let text = |number: u32| two.replace("write_share = 1", &format!("{key} = {number}"));
        let error = parse(&text(1), "s.toml", &vocabulary()).unwrap_err().to_string();
        assert!(error.contains("is 1; it must be at least 2, one for each loader"), "{error}");
        read(&text(2));
    }
}

/// The nodes of a selector are known after the study was read.
#[test]
fn selectors_become_loaders() {
    let loaders =
        "[[loader]]\nhost = \"pod:n2\"\n[[loader]]\nhost = \"pods:a=b\"\ncpus = \"1\"\ncount = 3\n";
    let two = GOOD.replace("[schedule]", &format!("{loaders}[schedule]"));
    let mut study = read(&two);
    assert_eq!(study.loader_selectors.len(), 1);
    let place = |study: &mut Study| {
        study.place_loaders(|selector| {
            assert_eq!((selector.nodes.labels(), selector.count), ("a=b", Some(3)));
            Ok::<_, StudyError>(["n1", "n2", "n3"].map(|name| selector.nodes.node(name)).to_vec())
        })
    };
    place(&mut study).unwrap();
    let names: Vec<String> = study.loaders.iter().map(LoaderSpec::name).collect();
    assert_eq!(names, ["pod:n2", "pod:n1", "pod:n3"], "a node has one loader");
    assert_eq!(study.loaders[2].cpus, Some("1".parse().unwrap()));
    assert!(study.loader_selectors.is_empty());
    study.check_placed_loaders().unwrap();
    let mut few = read(&two.replace("write_share = 1", "connections = 2"));
    place(&mut few).unwrap();
    let error = few.check_placed_loaders().unwrap_err().to_string();
    assert!(error.contains("connections = 2 for 3 loaders; it must be at least 3"), "{error}");
}

#[test]
fn data_in_memory_cannot_be_restored() {
    let mut vocabulary = vocabulary();
    vocabulary.systems[0].in_memory = true;
    let read = |schedule: &str| {
        let text = GOOD.replace("rounds = 9", schedule);
        parse(&text, "s.toml", &vocabulary).map(|study| study.schedule.data)
    };
    assert_eq!(read("kind = \"trials\"").unwrap(), DataStart::Loaded);
    for schedule in ["data = \"restored\"", "kind = \"trials\"\ndata = \"restored\""] {
        let error = read(schedule).unwrap_err().to_string();
        assert!(error.contains("the system has no data in files"), "{error}");
    }
    vocabulary.systems[0].in_memory = false;
    let cluster = KnownOption { name: "cluster".into(), values: Vec::new() };
    vocabulary.systems[0].options.push(cluster);
    for (system, expect) in [
        ("cluster = \"true\"", "keeps the addresses of its first start"),
        ("hosts = [\"ssh:a\", \"ssh:b\"]", "run on hosts of their own"),
    ] {
        let name = &vocabulary.systems[0].name;
        let system = format!("[system]\nname = {name:?}\n{system}\n[schedule]");
        let text = GOOD.replace("[schedule]", &system);
        let restored = text.replace("rounds = 9", "data = \"restored\"");
        let error = parse(&restored, "s.toml", &vocabulary).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
        let trials = text.replace("rounds = 9", "kind = \"trials\"");
        let study = parse(&trials, "s.toml", &vocabulary).unwrap();
        assert_eq!(study.schedule.data, DataStart::Loaded);
    }
    let text = GOOD.replace("rounds = 9", "kind = \"trials\"");
    let study = parse(&text, "s.toml", &vocabulary).unwrap();
    assert_eq!(study.schedule.data, DataStart::Restored);
}
