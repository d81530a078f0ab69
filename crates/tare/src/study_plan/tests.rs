//! The plan of shipped studies as text, with the facts of an invented host.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_lab::cpus::{self, CpuTopology, Node};
use tare_lab::study::CpuSpec;
use tare_std::cpus::CpuSet;

use super::*;
use crate::campaign::study;

/// Two sockets of two cores with two hardware threads each.
fn topology() -> CpuTopology {
    let core = |first: u32| -> CpuSet { [first, first + 4].into_iter().collect() };
    let node = |id: u32| Node { id, caches: vec![vec![core(2 * id), core(2 * id + 1)]] };
    CpuTopology { nodes: vec![node(0), node(1)], ..CpuTopology::default() }
}

/// Returns the plan of a shipped study on a host that lacks f2fs and docker.
fn plan(name: &str, budget: Option<Duration>) -> StudyPlan {
    let whole = study::read(name, false).unwrap().0;
    let quick = study::read(name, true).ok().map(|(part, _)| part);
    let reason = |what: &str| (what.to_string(), format!("{what} cannot run here; install it"));
    let absent = [reason("f2fs"), reason("volume")];
    let names: Vec<String> = absent.iter().map(|(name, _)| name.clone()).collect();
    let known = Known { absent: names.clone(), cached: None };
    let mut part = whole.clone();
    if let Some(budget) = budget {
        part.schedule.budget = budget;
        choose_part(&mut part, &known);
    }
    let cpus = cpus::plan(&topology(), &CpuSpec::default()).unwrap();
    let needed_bytes = 300 << 20;
    StudyPlan {
        loaders: Vec::new(),
        name: part.name.clone(),
        title: part.title.clone(),
        record: PathBuf::from("out.tare"),
        time: times::this(&part, &whole, &known),
        other_parts: times::other_parts(&part, &whole, quick.as_ref(), &known),
        stop_width_percent: part.schedule.stop_width_percent,
        cpus: CpuGroup::of(&topology(), &cpus),
        environments: environments(&part, &whole, &absent),
        workloads: workloads(&part, &whole),
        memory: Some(MemoryPlan {
            needed_bytes,
            available_bytes: 4 << 30,
            per_environment_bytes: needed_bytes,
            at_once: 1,
        }),
        hosts: Vec::new(),
        not_known: Vec::new(),
        disk: Some(DiskPlan {
            free_bytes: Some(100 << 30),
            ..space::disk(&part, &names, Path::new("/var/lib/tare"))
        }),
        conditioning: Conditioning::of(&part, &names),
        cached_data: None,
        needs: Needs::of(&part),
        obstacles: Vec::new(),
        exit: Exit::Success,
    }
}

#[test]
fn plans_match_golden_texts() {
    let mut plans = String::new();
    for budget in [None, Some(3600), Some(60)] {
        let plan = plan("storage-options", budget.map(Duration::from_secs));
        plans += &format!("{}\n----\n", text::render(&plan));
    }
    let mut stuck = plan("quick", None);
    stuck.obstacles.push("fio is not on PATH: apt-get install fio".into());
    plans += &text::render(&stuck);
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/golden/dry-run.txt");
    tare_testkit::golden(&golden, plans);
}

#[test]
fn long_or_cut_studies_are_announced() {
    let whole = study::read("storage-options", false).unwrap().0;
    let lines = announcement(&whole, &Known::default(), false);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("storage-options: up to "), "{lines:?}");
    assert!(lines[0].contains(" h, 10 rounds of 16 environments under "), "{lines:?}");

    let mut part = whole.clone();
    part.schedule.budget = Duration::from_secs(3600);
    choose_part(&mut part, &Known::default());
    let lines = announcement(&part, &Known::default(), true);
    assert!(part.title.ends_with("(part for 1h)"), "{}", part.title);
    assert_eq!(lines[1], "  left out, because there is no time for 8 rounds within --budget 1h:");
    assert!(lines.last().unwrap().contains("workloads: random write; sequential"), "{lines:?}");

    let mut short = whole;
    short.schedule.budget = Duration::from_secs(120);
    choose_part(&mut short, &Known::default());
    let lines = announcement(&short, &Known::default(), true);
    let last = lines.last().unwrap();
    assert!(last.contains("of at least 8 rounds; give --budget "), "{last}");

    let quick = study::read("quick", false).unwrap().0;
    assert_eq!(announcement(&quick, &Known::default(), false), Vec::<String>::new());
}

#[test]
fn needs_are_those_of_the_file() {
    let needs = |name: &str| Needs::of(&study::read(name, false).unwrap().0).text();
    assert_eq!(needs("fake"), "nothing");
    assert_eq!(needs("quick"), "root, runc; for some environments docker");
    let storage = needs("storage-options");
    assert!(storage.starts_with("root, fio, runc, ext4; for some environments xfs, btrfs,"));
    assert!(needs("virtualization").contains("QEMU"));
}

#[test]
fn needs_name_the_devices_that_are_erased() {
    let text = crate::studies::find("storage-options").unwrap();
    let text =
        text.replace("kind = \"raw\", size = \"6G\"", "kind = \"raw\", device = \"/dev/sdz\"");
    let words = crate::registry::vocabulary();
    let study = tare_lab::study::parse(&text, "s.toml", &words).unwrap();
    assert!(Needs::of(&study).always.contains(&"--destroy-data-on /dev/sdz".to_string()));
}

#[test]
fn what_is_lacking_has_a_remedy() {
    let memory = MemoryPlan {
        needed_bytes: 3 << 30,
        available_bytes: 1 << 30,
        per_environment_bytes: 1 << 30,
        at_once: 3,
    };
    let lack = memory.lack().unwrap();
    assert!(lack.starts_with("3.0 GiB of memory is needed and 1.0 GiB is available"), "{lack}");
    let disk = DiskPlan {
        data_bytes: 2 << 30,
        images_bytes: 0,
        free_bytes: Some(512 << 20),
        directory: "/x".into(),
    };
    assert!(disk.lack().unwrap().contains("512 MiB is free in /x"));
    assert_eq!(DiskPlan { free_bytes: None, ..disk }.lack(), None);
}
