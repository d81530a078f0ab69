//! `kill -9` at random moments of a study with pods, containers and processes on a node, then
//! `tare clean` and `tare clean --on`: nothing is left on the node, here and in the API, and what
//! was measured is here. In a cluster of two nodes a pod on the second one loads the system.
//!
//! `TARE_KILLS` sets how often; `cargo xtask kill --kubernetes --times 20` sets it, and
//! `TARE_KILLS_SEED` gives the same moments again.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Child;

use tare_testkit::host_state::left_of_run;
use tare_testkit::kubernetes::second_node_if_any;

use super::*;

/// Without `TARE_KILLS`.
const KILLS: u64 = 2;
/// The latest moment of a kill after the start: pods have been measured for some rounds by then.
const LATEST_MS: u64 = 24_000;
/// The state directory of the harness on the node.
const NODE_STATE: &str = "/var/lib/tare/runs";
const ENVIRONMENTS: &str = "[[environment]]\nname = \"pod\"\nruntime = \"kubernetes\"\n\
     network = \"service\"\n\
     [[environment]]\nname = \"pod with a profile\"\nruntime = \"kubernetes\"\n\
     security = \"default+io_uring\"\nnetwork = \"host\"\n[[workload]]";

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    /// The process on the node that measures.
    Harness,
    /// The command of the user.
    Command,
    Both,
}

/// A number that looks random, from a seed and an index (SplitMix64).
fn number(seed: u64, index: u64) -> u64 {
    let mut z = seed.wrapping_add(index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Returns the processes on the node that measure this study.
pub(super) fn harness(study: &str) -> Vec<u32> {
    let measures = |pid: &u32| {
        let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let has = |text: &[u8], word: &str| {
            text.split(|byte| *byte == 0).any(|one| one == word.as_bytes())
        };
        let command = read("cmdline");
        let is_of_session =
            read("environ").split(|byte| *byte == 0).any(|one| one.starts_with(b"TARE_SESSION="));
        is_of_session && has(&command, "weigh") && has(&command, study)
    };
    tare_host::process::all().into_iter().filter(measures).collect()
}

/// Returns the runs that have a journal in a directory.
pub(super) fn runs(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter_map(|name| name.strip_suffix(".journal").map(String::from)).collect()
}

/// Returns the cgroups of pods of the nodes, and the folder of profiles, which its kubelet has not.
pub(super) fn left_by_pods() -> Vec<String> {
    let find = ["/sys/fs/cgroup", "-type", "d", "-path", "*/kubepods/*pod*"];
    let groups = Command::new("find").args(find).output().unwrap().stdout;
    let groups = String::from_utf8(groups).unwrap();
    let access = std::path::PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
    let profiles = access.parent().unwrap().with_file_name("kubelet").join("seccomp");
    let profiles = profiles.exists().then(|| profiles.display().to_string());
    groups.lines().map(String::from).chain(profiles).collect()
}

/// A study under way, and what is known of it after its kill.
#[derive(Debug)]
struct Killed {
    victim: Victim,
    /// The last line of the command before the kill.
    last: String,
    /// What the command printed, up to its end.
    said: String,
    /// The runs of the node and of the command.
    runs: BTreeSet<String>,
}

pub(super) fn kill(pids: &[u32]) {
    for pid in pids {
        // It may have ended by itself.
        let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
    }
}

/// Starts the study and kills it at a moment.
fn start_and_kill(case: &Case, study: &str, victim: Victim, moment: Duration) -> Killed {
    let before = runs(Path::new(NODE_STATE));
    let errors = case.here.path().join("said");
    let mut command = case.command(&["weigh", study, "-o", "killed.tare"]);
    command.stdout(Stdio::null()).stderr(fs::File::create(&errors).unwrap());
    let mut child: Child = command.spawn().unwrap();
    std::thread::sleep(moment);
    let said = || fs::read_to_string(&errors).unwrap();
    let last = said().lines().last().unwrap_or("nothing yet").to_string();
    assert!(child.try_wait().unwrap().is_none(), "{}", said());
    let here = runs(&case.here.path().join("state/runs"));
    let mut there: BTreeSet<String> =
        runs(Path::new(NODE_STATE)).difference(&before).cloned().collect();
    let pids = harness(study);
    // Before the harness runs only the command can be killed.
    let victim = if pids.is_empty() { Victim::Command } else { victim };
    if victim != Victim::Command {
        kill(&pids);
    }
    if victim != Victim::Harness {
        child.kill().unwrap();
    }
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        assert!(began.elapsed() < PATIENCE, "the command ends after its harness");
        std::thread::sleep(Duration::from_millis(50));
    }
    there.extend(here);
    Killed { victim, last, said: said(), runs: there }
}

/// Cleans here and on the node, in one order or the other, until the run there has ended.
pub(super) fn clean(case: &Case, here_first: bool) {
    let here = || {
        let cleaned = case.run_here(&["clean"]);
        assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
    };
    if here_first {
        here();
    }
    let began = Instant::now();
    loop {
        let cleaned = case.run(&["clean"]);
        let text = stdout(&cleaned) + &stderr(&cleaned);
        if cleaned.status.success() && !text.contains("alive; tare attach") {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{text}");
        std::thread::sleep(Duration::from_secs(1));
    }
    if !here_first {
        here();
    }
}

/// Checks that what was measured is here, and takes it away.
fn assert_measured(case: &Case, said: &str) {
    let rounds = said.lines().filter(|line| line.starts_with("round")).count();
    let record = case.here.path().join("killed.tare");
    assert!(rounds == 0 || record.exists(), "{said}");
    // The first line of a round comes before its slices.
    if rounds > 1 {
        let record = case.record("killed.tare");
        assert!(!record["slices"].as_array().unwrap().is_empty(), "{said}");
    }
    let _ = fs::remove_file(record);
}

#[test]
fn kills_at_random_moments_leave_nothing() {
    let Some(case) = Case::start("kills::kills_at_random_moments_leave_nothing") else { return };
    let seed = variable("TARE_KILLS_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let times = variable("TARE_KILLS").unwrap_or(KILLS);
    let study = format!("killed-{}.toml", std::process::id());
    let text = STUDY.replace("ROUNDS", "100000").replace("[[workload]]", ENVIRONMENTS);
    let loader = second_node_if_any().map(|node| format!("[[loader]]\nhost = \"pod:{node}\"\n"));
    let text = text + &loader.unwrap_or_default();
    fs::write(case.here.path().join(&study), text).unwrap();
    let victims = [Victim::Harness, Victim::Harness, Victim::Command, Victim::Both];
    eprintln!("{times} kills, seed {seed}");
    for index in 0..times {
        let random = number(seed, index);
        let moment = Duration::from_millis(random % LATEST_MS);
        let killed =
            start_and_kill(&case, &study, victims[(random >> 32) as usize % victims.len()], moment);
        clean(&case, random >> 63 == 0);
        let Killed { victim, last, said, runs } = &killed;
        eprintln!("kill {index} after {moment:.1?}: {victim:?}, runs {runs:?}, it said: {last}");
        let left: Vec<String> = runs.iter().flat_map(|run| left_of_run(run)).collect();
        assert_eq!(left, Vec::<String>::new(), "{killed:?}");
        assert_eq!(left_by_pods(), Vec::<String>::new(), "{said}");
        let journals = self::runs(Path::new(NODE_STATE));
        assert!(runs.is_disjoint(&journals), "{runs:?} {journals:?}");
        case.assert_clean();
        assert_measured(&case, said);
    }
    case.run(&["clean", "--programs"]);
}
