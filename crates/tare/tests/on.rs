//! `--on` on machines of a bed: a command runs there as it does here, its files come back, and
//! nothing stays there, however it ends.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::terminal::{ENDLESS, OnTerminal, endless, parts, render};
use common::{stderr, stdout, tare};
use rustix::process::{Pid, Signal, kill_process};
use tare_testkit::ssh_bed::{MachineSpec, SshBed, USER};
use tare_testkit::{Machine, Need, skip, skipped};
use tempfile::TempDir;

/// Long enough for a loaded machine; a hang fails this test instead of blocking the run.
const PATIENCE: Duration = Duration::from_secs(120);

/// Machines, and a directory here.
struct Case {
    bed: SshBed,
    here: TempDir,
}

impl Case {
    fn start(test: &str, names: &[&str]) -> Option<Self> {
        // Copying shares the sockets' directory with no other test.
        Some(Self { bed: SshBed::start(test, names)?, here: short_directory() })
    }

    fn start_with(test: &str, specs: &[MachineSpec]) -> Option<Self> {
        Some(Self { bed: SshBed::start_with(test, specs)?, here: short_directory() })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = tare();
        command.arg("--state").arg(self.state()).args(arguments).current_dir(self.here.path());
        command.env("TARE_SSH_CONFIG", self.bed.config()).stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn good(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn state(&self) -> std::path::PathBuf {
        self.here.path().join("state")
    }

    fn spawn(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// Returns what lies on a machine besides the copy of the program.
    fn left(&self, name: &str) -> Vec<String> {
        let files = "find /var/tmp /var/lib/tare -mindepth 1 ! -path /var/lib/tare/runs";
        let listed = self.bed.run(name, "sh", &["-c", files]);
        let is_copy =
            |line: &str| line.strip_prefix("/var/tmp/tare-").is_some_and(|h| h.len() == 16);
        listed.lines().filter(|line| !is_copy(line)).map(Into::into).collect()
    }

    /// Returns the processes of Tare on a machine: their numbers there, and their words.
    fn processes(&self, name: &str) -> Vec<(String, String)> {
        let listed = self.bed.run(name, "ps", &["-A", "-ww", "-o", "pid=,args="]);
        let lines = listed.lines().filter_map(|line| line.trim().split_once(' '));
        let ours = lines.filter(|(_, words)| words.starts_with("/var/tmp/tare-"));
        ours.map(|(pid, words)| (pid.into(), words.trim().into())).collect()
    }

    fn process(&self, name: &str, word: &str) -> Option<String> {
        let mut all = self.processes(name).into_iter();
        all.find(|(_, words)| words.contains(word)).map(|(pid, _)| pid)
    }

    /// Waits until the study on a machine has measured something.
    fn wait_for_slices(&self, name: &str) {
        wait("the study there measures", || {
            let size = "cat /var/tmp/tare-on-*/work/out.tare* 2>/dev/null | wc -c";
            let bytes = self.bed.run(name, "sh", &["-c", size]);
            bytes.trim().parse::<u64>().unwrap() > 150_000
        });
    }

    fn assert_readable(&self, record: &str) {
        let report = self.run(&["report", record]);
        assert!(report.status.success(), "{record}: {}", stderr(&report));
        assert!(stdout(&report).contains("nothing again"), "{}", stdout(&report));
    }

    /// Checks that neither side has anything of a run.
    fn assert_clean(&self, name: &str) {
        assert_eq!(self.left(name), Vec::<String>::new());
        assert_eq!(self.processes(name), []);
        let runs = fs::read_dir(self.state().join("runs")).unwrap().count();
        let sockets = fs::read_dir(self.state()).unwrap().count() - 1;
        assert_eq!((runs, sockets), (0, 0), "journals and sockets here");
    }
}

/// A directory whose path leaves room for the sockets of ssh.
fn short_directory() -> TempDir {
    tempfile::Builder::new().prefix("on").tempdir_in("/tmp").unwrap()
}

fn wait(what: &str, mut until: impl FnMut() -> bool) {
    let started = Instant::now();
    while !until() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn end(child: &mut Child) -> Option<i32> {
    wait("the command here ends", || child.try_wait().unwrap().is_some());
    child.wait().unwrap().code()
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn a_study_runs_there_and_its_record_comes_back() {
    let Some(case) = Case::start("a_study_runs_there_and_its_record_comes_back", &["one"]) else {
        return;
    };
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/fake.toml");
    let text = fs::read_to_string(text).unwrap().replacen("name = \"fake\"", "name = \"own\"", 1);
    fs::write(case.here.path().join("own study.toml"), text).unwrap();
    fs::create_dir(case.here.path().join("out")).unwrap();
    let study = ["weigh", "own study.toml", "--rounds", "2", "--seed", "7"];
    let shown = case.good(&[&study[..], &["--on", "ssh:root@one"]].concat());
    assert!(shown.contains("record: own.tare\npage:   own.html"), "{shown}");
    case.assert_readable("own.tare");
    assert!(case.here.path().join("own.html").exists());
    let report: serde_json::Value =
        serde_json::from_str(&case.good(&["report", "own.tare", "--json"])).unwrap();
    assert_eq!(report["header"]["seed"].as_u64(), Some(7));
    // The next record has a name that is free here, and a named one is where it was asked for.
    assert!(case.good(&[&study[..], &["--on", "one"]].concat()).contains("record: own-2.tare"));
    let elsewhere = short_directory();
    let record = elsewhere.path().join("x.tare");
    let record = record.to_str().unwrap();
    case.good(&[&study[..], &["--on", "one", "-o", record]].concat());
    case.assert_readable(record);
    case.good(&[&study[..], &["--on", "one", "-o", "out/y.tare", "--html", "z.html"]].concat());
    case.assert_readable("out/y.tare");
    assert!(case.here.path().join("z.html").exists());
    let refused = case.run(&[&study[..], &["--on", "one", "-o", "out/y.tare"]].concat());
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    // A record from there goes on there.
    let resume = ["weigh", "--resume", "own.tare", "--rounds", "4", "--on", "one"];
    case.good(&resume);
    let slices = |record: &str| case.good(&["report", record, "--csv"]).lines().count();
    assert!(slices("own.tare") > slices("own-2.tare"));
    case.assert_clean("one");
}

#[test]
fn commands_look_at_the_other_host() {
    let Some(case) = Case::start("commands_look_at_the_other_host", &["one", "two"]) else {
        return;
    };
    let doctor = case.good(&["doctor", "--json", "--on", "one"]);
    let doctor: serde_json::Value = serde_json::from_str(&doctor).unwrap();
    assert!(doctor["checks"].as_array().unwrap().len() > 5);
    // Each line of several hosts begins with its host.
    let both = case.good(&["doctor", "--on", "one,two"]);
    assert!(both.lines().filter(|line| line.starts_with("one: ")).count() > 5, "{both}");
    assert!(both.lines().all(|line| line.starts_with("one: ") || line.starts_with("two: ")));
    assert_eq!(case.run(&["doctor", "--json", "--on", "one,two"]).status.code(), Some(2));
    let none = case.run(&["weigh", "fake", "--serve", "--on", "one"]);
    assert!(stderr(&none).contains("--serve does not work with --on"), "{}", stderr(&none));
    case.good(&["host", "record", "snapshot", "--on", "one"]);
    assert!(case.here.path().join("snapshot/host.toml").exists());
    assert_eq!(case.run(&["host", "record", "snapshot", "--on", "one"]).status.code(), Some(2));
    case.good(&["tune", "plan", "--snapshot", "snapshot", "--on", "two"]);
    // A user without root's rights can look, and learns what needs them.
    case.good(&["tune", "plan", "--on", &format!("{USER}@two")]);
    let refused = case.run(&["weigh", "quick", "--on", &format!("{USER}@two")]);
    assert_eq!(refused.status.code(), Some(4), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("root"), "{}", stderr(&refused));
    // Records of several hosts are compared.
    let compared = case.good(&["weigh", "fake", "--rounds", "2", "--on", "one,two"]);
    assert!(compared.contains("A. fake-one.tare") && compared.contains("B. fake-two.tare"));
    let unknown = case.run(&["doctor", "--on", "one,no-such-host.invalid"]);
    assert_eq!(unknown.status.code(), Some(4));
    assert!(stderr(&unknown).contains("cannot connect to ssh:no-such-host.invalid"));
    for name in ["one", "two"] {
        case.assert_clean(name);
    }
    let kept = case.good(&["clean", "--on", "one"]);
    assert!(kept.contains("--programs removes it"), "{kept}");
    case.good(&["clean", "--programs", "--on", "one,two"]);
    assert_eq!(case.bed.run("one", "ls", &["/var/tmp"]), "");
}

#[test]
fn the_screen_of_a_study_there_is_shown_here() {
    let test = "the_screen_of_a_study_there_is_shown_here";
    if skipped(test, &common::terminal::NEEDS) {
        return;
    }
    let Some(case) = Case::start(test, &["one"]) else { return };
    endless(case.here.path());
    let (config, state) = (case.bed.config(), case.state());
    let environment = [("TARE_SSH_CONFIG", config.to_str().unwrap())];
    let on = ["--on", "one", "--state", state.to_str().unwrap()];
    let arguments = [&ENDLESS[..], &on].concat();
    for stop in ["q", "\x03"] {
        let _ = fs::remove_file(case.here.path().join("out.tare"));
        let mut run = OnTerminal::start(case.here.path(), &arguments, &environment);
        run.wait_for("Last slices");
        run.press("d");
        run.wait_for("Doubts: ");
        common::terminal::size(&run.slave, 100, 24);
        run.press(stop);
        let (status, shown) = run.end();
        assert_eq!(status.code(), Some(130), "{shown}");
        let (screen, normal) = parts(&shown);
        assert!(render(screen).contains("Server CPU") || render(screen).contains("Doubts"));
        assert!(normal.contains("record: out.tare"), "{normal}");
        case.assert_readable("out.tare");
        case.assert_clean("one");
    }
}

#[test]
fn a_detached_study_goes_on_and_is_attached() {
    let test = "a_detached_study_goes_on_and_is_attached";
    let Some(case) = Case::start(test, &["one"]) else { return };
    endless(case.here.path());
    let none = case.run(&["attach", "one"]);
    assert_eq!(none.status.code(), Some(2), "{}", stderr(&none));
    case.good(&[&ENDLESS[..], &["--on", "one", "--detach"]].concat());
    case.wait_for_slices("one");
    // An attached terminal that goes away changes nothing.
    let mut attached = case.spawn(&["attach", "one"]);
    wait("the relay there", || case.process("one", "run-server attach").is_some());
    attached.kill().unwrap();
    attached.wait().unwrap();
    wait("the relay there ends", || case.process("one", "run-server attach").is_none());
    assert!(case.process("one", "weigh").is_some());
    let mut attached = case.spawn(&["attach", "one"]);
    wait("the relay there", || case.process("one", "run-server attach").is_some());
    let busy = case.run(&["attach", "one"]);
    assert!(stderr(&busy).contains("is shown elsewhere"), "{}", stderr(&busy));
    signal(&attached, Signal::INT);
    assert_eq!(end(&mut attached), Some(130));
    case.assert_readable("out.tare");
    case.good(&["clean"]);
    case.assert_clean("one");
}

#[test]
fn nothing_stays_however_a_study_ends() {
    let test = "nothing_stays_however_a_study_ends";
    let Some(case) = Case::start(test, &["one"]) else { return };
    endless(case.here.path());
    let start = || {
        let _ = fs::remove_file(case.here.path().join("out.tare"));
        let child = case.spawn(&[&ENDLESS[..], &["--on", "one"]].concat());
        case.wait_for_slices("one");
        child
    };
    let over = || wait("the run there ends", || case.process("one", "weigh").is_none());

    // A signal here.
    let mut child = start();
    signal(&child, Signal::TERM);
    assert_eq!(end(&mut child), Some(130));
    case.assert_readable("out.tare");
    case.assert_clean("one");

    // The command here is killed: the run there ends, and its files wait.
    let mut child = start();
    child.kill().unwrap();
    child.wait().unwrap();
    over();
    assert!(!case.here.path().join("out.tare").exists());
    case.good(&["clean", "--on", "one"]);
    case.good(&["clean"]);
    case.assert_readable("out.tare");
    case.assert_clean("one");

    // ssh here is killed: the connection is made again, and the study goes on.
    let mut child = start();
    let before = children_of(child.id());
    for pid in &before {
        kill_process(*pid, Signal::KILL).unwrap();
    }
    wait("another connection", || {
        let now = children_of(child.id());
        !now.is_empty() && now.iter().all(|pid| !before.contains(pid))
    });
    assert!(case.process("one", " weigh").is_some());
    signal(&child, Signal::INT);
    assert_eq!(end(&mut child), Some(130));
    case.assert_readable("out.tare");
    case.assert_clean("one");

    // The command there is killed.
    let mut child = start();
    let pid = case.process("one", " weigh").unwrap();
    case.bed.run("one", "kill", &["-9", &pid]);
    assert_eq!(end(&mut child), Some(1));
    case.good(&["clean", "--on", "one"]);
    case.assert_readable("out.tare");
    case.assert_clean("one");

    // What watches over it there is killed.
    let mut child = start();
    let pid = case.process("one", "run-server supervise").unwrap();
    case.bed.run("one", "kill", &["-9", &pid]);
    assert_eq!(end(&mut child), Some(1));
    over();
    case.good(&["clean", "--on", "one"]);
    case.assert_readable("out.tare");
    case.assert_clean("one");
}

/// Returns the processes that a process here started.
fn children_of(pid: u32) -> Vec<Pid> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten();
    let read = |task: fs::DirEntry| fs::read_to_string(task.path().join("children"));
    let texts: Vec<String> = tasks.filter_map(|task| read(task).ok()).collect();
    let words = texts.iter().flat_map(|text| text.split_whitespace());
    words.filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

#[test]
fn a_study_on_real_runtimes_leaves_the_other_host_as_it_was() {
    let test = "a_study_on_real_runtimes_leaves_the_other_host_as_it_was";
    let needs = [Need::Root, Need::Program("runc"), Need::Program("nft"), Need::Program("ip")];
    if skipped(test, &needs) {
        return;
    }
    let Some(case) = Case::start(test, &["one"]) else { return };
    tare_testkit::tiny::write(case.here.path(), "slices", 3);
    let shown = case.good(&["weigh", "tiny.toml", "-o", "out.tare", "--on", "one"]);
    assert!(shown.contains("runc proxy") && shown.contains("record: out.tare"), "{shown}");
    // The machines of a bed have the cgroups of this host, on which other tests run.
    let leftovers = |run: &str| {
        let doctor = case.good(&["doctor", "--json", "--on", "one"]);
        let doctor: serde_json::Value = serde_json::from_str(&doctor).unwrap();
        let mut left = doctor["leftovers"].as_array().unwrap().clone();
        let of_run = |one: &serde_json::Value| one["name"].as_str().unwrap().contains(run);
        left.retain(|one| one["kind"] != "cgroup" || of_run(one));
        left
    };
    assert_eq!(leftovers("of no run"), Vec::<serde_json::Value>::new());
    case.assert_clean("one");
    // The harness there is killed in the middle.
    tare_testkit::tiny::write(case.here.path(), "slices", 2000);
    fs::remove_file(case.here.path().join("out.tare")).unwrap();
    let mut child = case.spawn(&["weigh", "tiny.toml", "-o", "out.tare", "--on", "one"]);
    case.wait_for_slices("one");
    let run = case.bed.run("one", "ls", &["/var/lib/tare/runs"]);
    let run = format!("tare-{}", run.trim().trim_end_matches(".journal"));
    let pid = case.process("one", " weigh").unwrap();
    case.bed.run("one", "kill", &["-9", &pid]);
    assert_eq!(end(&mut child), Some(1));
    assert!(!leftovers(&run).is_empty(), "a killed run leaves something");
    assert!(Path::new(&case.here.path().join("out.tare")).exists());
    case.good(&["clean", "--on", "one"]);
    assert_eq!(leftovers(&run), Vec::<serde_json::Value>::new());
    case.assert_clean("one");
}

/// A study without runtimes.
const NATIVE: &str = "name = \"n\"\nbaseline = \"native\"\n[schedule]\nwindow = \"100ms\"\n\
    lead_in = \"30ms\"\nrounds = 2\nrounds_min = 2\nbudget = \"2m\"\n\
    [[environment]]\nname = \"native\"\nruntime = \"process\"\ncgroup = \"none\"\n\
    [[environment]]\nname = \"own\"\nextends = \"native\"\ncgroup = \"own\"\n\
    [[workload]]\nname = \"w\"\nrows = 500\nlatency_share = 0\n";

/// Machines of a bed have the disks of this host.
const ON_A_DISK: &str = env!("CARGO_TARGET_TMPDIR");

#[test]
fn old_kernel_and_no_perf_are_one_line_each() {
    let test = "old_kernel_and_no_perf_are_one_line_each";
    let machines = [MachineSpec::new("old").old_kernel(), MachineSpec::new("bare")];
    let Some(case) = Case::start_with(test, &machines) else { return };
    let one = |text: &str, words: [&str; 2]| {
        let with = |line: &&str| words.iter().all(|word| line.contains(word));
        assert_eq!(text.lines().filter(with).count(), 1, "{words:?} in:\n{text}");
    };
    let doctor = stdout(&case.run(&["doctor", "--on", "old"]));
    one(&doctor, ["missing  io_uring", "this kernel has none"]);
    let disk = case.run(&["disk", ON_A_DISK, "--budget", "5s", "--on", "old"]);
    assert_ne!(disk.status.code(), Some(0), "{}", stdout(&disk));
    one(&stderr(&disk), ["tare: ", "io_uring"]);
    case.assert_clean("old");

    let hide = "mkdir /run/upper /run/work && mount -t overlay overlay \
        -o lowerdir=/usr/bin,upperdir=/run/upper,workdir=/run/work /usr/bin && rm -f /usr/bin/perf";
    if !case.bed.command("bare", "sh").args(["-c", hide]).status().unwrap().success() {
        return skip(test, Machine::KernelLacks("this kernel has no overlay file systems".into()));
    }
    let doctor = stdout(&case.run(&["doctor", "--on", "bare"]));
    one(&doctor, ["missing  stacks  ", "linux-perf"]);
    fs::write(case.here.path().join("n.toml"), NATIVE).unwrap();
    let weigh = case.run(&["weigh", "n.toml", "-o", "n.tare", "--stacks", "--on", "bare"]);
    assert!(weigh.status.success(), "{}", stderr(&weigh));
    one(&stderr(&weigh), ["tare: no stacks in this record", "linux-perf"]);
    let explain = ["explain", "n.toml", "--from", "native", "--to", "own", "-o", "e.tare"];
    let shown = case.good(&[&explain[..], &["--on", "bare"]].concat());
    assert!(shown.contains("cgroup"), "{shown}");
    case.assert_clean("bare");
}

#[test]
fn dry_run_plans_the_other_host() {
    let Some(case) = Case::start("dry_run_plans_the_other_host", &["one"]) else { return };
    // A runtime that only the other host has: /var/tmp there is its own.
    case.bed.run("one", "cp", &["/bin/true", "/var/tmp/own-runtime"]);
    let study = NATIVE.replacen(
        "[[workload]]",
        "[[environment]]\nname = \"there\"\nruntime = \"oci:/var/tmp/own-runtime\"\n[[workload]]",
        1,
    );
    fs::write(case.here.path().join("n.toml"), study).unwrap();
    let left_out = |more: &[&str]| {
        let output = case.run(&[&["weigh", "n.toml", "--dry-run", "--json"], more].concat());
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let all = plan["environments"].as_array().unwrap().clone();
        let found = all.into_iter().find(|one| one["name"] == "there").unwrap();
        found["left_out"].clone()
    };
    assert!(left_out(&[]).to_string().contains("own-runtime"), "{}", left_out(&[]));
    let there = left_out(&["--on", "one"]);
    assert!(there.is_null() || !there.to_string().contains("not found"), "{there}");
    case.bed.run("one", "rm", &["/var/tmp/own-runtime"]);
    case.assert_clean("one");
}

#[test]
fn other_architecture_runs_its_own_program() {
    let test = "other_architecture_runs_its_own_program";
    let Some(case) = Case::start(test, &["one"]) else { return };
    // It represents a machine of another architecture, and a script the program that runs there.
    let uname = case.here.path().join("uname");
    fs::write(&uname, "#!/bin/sh\necho sparc9\n").unwrap();
    let programs = case.here.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let own = env!("CARGO_BIN_EXE_tare");
    fs::write(programs.join("tare-sparc9"), format!("#!/bin/sh\nexec {own} \"$@\"\n")).unwrap();
    case.bed.run("one", "chmod", &["755", uname.to_str().unwrap()]);
    case.bed.run("one", "mount", &["--bind", uname.to_str().unwrap(), "/usr/bin/uname"]);
    let refused = stderr(&case.run(&["doctor", "--on", "one"]));
    assert!(refused.contains("put Tare ") && refused.contains("for sparc9 at "), "{refused}");
    assert_eq!(refused.lines().count(), 1, "{refused}");
    let with = |arguments: &[&str]| {
        let output = case.command(arguments).env("TARE_PROGRAMS", &programs).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    with(&["weigh", "fake", "--rounds", "2", "-o", "out.tare", "--on", "one"]);
    case.assert_readable("out.tare");
    with(&["clean", "--on", "one"]);
    case.assert_clean("one");
}
