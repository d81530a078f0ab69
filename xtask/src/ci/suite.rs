//! Builds the test binaries of the workspace with cargo and runs them like `cargo test`, with the
//! time of each binary and each test.
//!
//! First, two lanes run in parallel: the suites in emulated guests ([`IN_GUESTS`]), and those that
//! only compute ([`COMPUTING`]), followed by what only compiles. Then two more: the suites of load
//! tools ([`TOOLS`]), and those that sleep ([`SLEEPING`]). All others measure, or examine the state
//! of the whole host, so that each of them runs alone.
//!
//! libtest reports the time of a test only with an unstable option, which `RUSTC_BOOTSTRAP`
//! enables.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use serde_json::Value;
use tare_host::cpu_times::CpuTimes;

use super::libtest::{self, Counts, Show, Test};
use super::skips::{self, Skip};
use crate::cargo::cargo;
use crate::say;

/// The number of slowest binaries and tests that are printed.
const SLOWEST: usize = 20;

/// Suites that mostly wait for guests with an emulated CPU. They assert results and no speed, with
/// limits of minutes. One runs at a time, because they check the host for leftovers of their
/// guests.
const IN_GUESTS: &[(&str, &str)] = &[
    ("tare", "inside"),
    ("tare", "inside_cgroups"),
    ("tare", "inside_numa"),
    ("tare", "nic_guest"),
    ("tare-env", "conformance_vm"),
    ("tare-env", "inside"),
    ("tare-env", "limits"),
    ("tare-env", "nvme_of"),
    ("tare-env", "storage"),
];

/// Packages whose tests use only their own process and temporary files. They make no links, mounts,
/// cgroups or loop devices, measure nothing, and have no time limits.
const COMPUTING: &[&str] = &[
    "tare-cql",
    "tare-kube",
    "tare-sim",
    "tare-stats",
    "tare-std",
    "tare-store",
    "tare-testkit",
    "tare-trace",
    "xtask",
];

/// Suites of those packages that measure all the same, so that each of them runs alone.
const MEASURING: &[(&str, &str)] = &[("xtask", "calibrate")];

/// Suites that mostly wait, for the windows and starts of load tools. They assert what was measured
/// and not how fast, and nothing about the state of the whole host.
const TOOLS: &[(&str, &str)] =
    &[("tare", "drivers"), ("tare", "hosts"), ("tare", "loader_tools"), ("tare", "systems")];

/// Suites that assert no more than that, and leave the CPUs idle for most of their time.
const SLEEPING: &[(&str, &str)] = &[("tare", "fio"), ("tare", "loaders")];

/// Suites that run alone and mostly wait, for guests and containers to start.
const WAITING: &[(&str, &str)] = &[("tare-env", "confinement"), ("tare-env", "networks")];

/// The number of tests that run at once in a suite of load tools or one that waits: more than there
/// are CPUs.
const WAITING_TESTS: &str = "4";

/// The lane of a test binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    /// In the foreground, in parallel with the computing suites.
    Guests,
    /// In the background, in parallel with the suites in guests. Its output is shown at its end.
    Computing,
    /// In the foreground, in parallel with the sleeping suites.
    Tools,
    /// In the background. Its output is shown at its end.
    Sleeping,
    Alone,
}

/// A test binary that cargo has built.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Binary {
    package: String,
    /// Position in cargo's order: the library, programs, integration tests.
    order: usize,
    name: String,
    /// The folder of the package, in which cargo starts its tests.
    folder: PathBuf,
    executable: PathBuf,
}

impl Binary {
    /// The name of the executable without the hash that cargo appends.
    fn program(&self) -> String {
        let name = self.executable.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_string())
    }

    fn is_one_of(&self, suites: &[(&str, &str)]) -> bool {
        self.order == 2 && suites.contains(&(self.package.as_str(), self.name.as_str()))
    }

    fn lane(&self) -> Lane {
        if self.is_one_of(IN_GUESTS) {
            Lane::Guests
        } else if COMPUTING.contains(&self.package.as_str()) && !self.is_one_of(MEASURING) {
            Lane::Computing
        } else if self.is_one_of(TOOLS) {
            Lane::Tools
        } else if self.is_one_of(SLEEPING) {
            Lane::Sleeping
        } else {
            Lane::Alone
        }
    }

    fn title(&self) -> String {
        match self.order {
            0 => format!("{} (library)", self.package),
            1 => format!("{} (program {})", self.package, self.name),
            _ => format!("{}, tests/{}", self.package, self.name),
        }
    }
}

impl Binary {
    fn run(&self, skips: &Path, show: Show) -> anyhow::Result<Ended> {
        let title = self.title();
        if show == Show::AtOnce {
            say(&format!("     Running {title}"));
        }
        // What computes runs with low priority, so that the guests get the CPU first.
        let mut command = if self.lane() == Lane::Computing {
            let mut nice = Command::new("nice");
            nice.args(["-n", "10"]).arg(&self.executable);
            nice
        } else {
            Command::new(&self.executable)
        };
        command
            .args(["-Zunstable-options", "--report-time"])
            .current_dir(&self.folder)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO", env!("CARGO"))
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .env("CARGO_PKG_NAME", &self.package)
            .env(skips::VARIABLE, skips);
        if self.is_one_of(TOOLS) || self.is_one_of(WAITING) {
            command.env("RUST_TEST_THREADS", WAITING_TESTS);
        }
        let (started, before) = (Instant::now(), CpuTimes::of_host()?);
        let (good, output) = libtest::run(&mut command, show, &title)
            .with_context(|| format!("cannot run {}", self.executable.display()))?;
        let time = started.elapsed();
        let busy = 1.0 - CpuTimes::of_host()?.idle_share_since(before);
        let program = self.program();
        Ok(Ended { title, program, time, busy, good, tests: output.tests, counts: output.counts })
    }
}

/// A test binary that has ended.
#[derive(Debug)]
struct Ended {
    title: String,
    /// The name under which its skips are reported.
    program: String,
    time: Duration,
    /// The share of the host's CPU time that was not idle meanwhile, 0 to 1.
    busy: f64,
    good: bool,
    tests: Vec<Test>,
    counts: Counts,
}

/// All test binaries that have ended.
#[derive(Debug, Default)]
pub(super) struct Suite {
    ended: Vec<Ended>,
    pub(super) doc_tests: Counts,
}

/// Builds all test binaries. `None` if they do not compile.
///
/// # Errors
/// If cargo cannot be started, or its messages differ from their documentation.
pub(super) fn build(root: &Path) -> anyhow::Result<Option<Vec<Binary>>> {
    let words = ["test", "--release", "--workspace", "--lib", "--bins", "--tests", "--no-run"];
    let mut cargo = cargo(root);
    cargo.args(words).arg("--message-format=json-render-diagnostics");
    let output = cargo.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        return Ok(None);
    }
    let messages = String::from_utf8(output.stdout).context("cargo's messages")?;
    let binaries: Option<Vec<Vec<Binary>>> = messages
        .lines()
        .map(|line| binary(line).map(|found| found.into_iter().collect()))
        .collect();
    let mut binaries = binaries.context("a message of cargo is not understood")?.concat();
    binaries.sort();
    Ok(Some(binaries))
}

/// Parses a message of cargo. Returns the test binary that it describes, if any. The outer `None`
/// means that the message is malformed.
fn binary(message: &str) -> Option<Option<Binary>> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool().unwrap_or(false);
    let Some(executable) = message["executable"].as_str().filter(|_| is_test) else {
        return Some(None);
    };
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let package = folder.file_name()?.to_string_lossy().into_owned();
    let order = match message["target"]["kind"][0].as_str()? {
        "lib" => 0,
        "bin" => 1,
        _ => 2,
    };
    let name = message["target"]["name"].as_str()?.to_string();
    Some(Some(Binary { package, order, name, folder, executable: executable.into() }))
}

impl Suite {
    /// Runs all binaries, even after a failure, and `compile` beside the suites in guests. Returns
    /// whether all binaries succeeded.
    ///
    /// # Errors
    /// If a binary cannot be started, or `compile` fails.
    pub(super) fn run(
        &mut self,
        binaries: &[Binary],
        skips: &Path,
        compile: impl FnOnce() -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<bool> {
        let of = |lane: Lane| binaries.iter().filter(move |binary| binary.lane() == lane);
        let lane = |lane: Lane, show: Show| -> anyhow::Result<Vec<Ended>> {
            let started = Instant::now();
            let ended: anyhow::Result<Vec<Ended>> =
                of(lane).map(|binary| binary.run(skips, show)).collect();
            say(&format!("suites of the lane {lane:?}: {:.0} s", started.elapsed().as_secs_f64()));
            ended
        };
        self.ended.extend(side_by_side(
            || lane(Lane::Guests, Show::AtOnce),
            || {
                let ended = lane(Lane::Computing, Show::AtTheEnd);
                compile()?;
                ended
            },
        )?);
        self.ended.extend(side_by_side(
            || lane(Lane::Tools, Show::AtOnce),
            || lane(Lane::Sleeping, Show::AtTheEnd),
        )?);
        self.ended.extend(lane(Lane::Alone, Show::AtOnce)?);
        Ok(self.ended.iter().all(|one| one.good))
    }

    /// Returns the failed tests, and the binaries that failed without a failed test.
    pub(super) fn failed(&self) -> Vec<String> {
        let bad = self.ended.iter().filter(|one| !one.good);
        bad.flat_map(|one| {
            let tests = one.tests.iter().filter(|test| !test.passed);
            let tests: Vec<String> =
                tests.map(|test| format!("{}: {}", one.title, test.name)).collect();
            if tests.is_empty() { vec![one.title.clone()] } else { tests }
        })
        .collect()
    }

    /// Prints the slowest binaries and tests.
    pub(super) fn print_slowest(&self) {
        let binaries = self
            .ended
            .iter()
            .map(|one| (one.time, format!("{} (CPUs {:.0} % busy)", one.title, one.busy * 100.0)));
        print("slowest test binaries:", binaries.collect());
        let tests = self.ended.iter().flat_map(|one| {
            let timed = one.tests.iter().filter_map(|test| Some((test.time?, &test.name)));
            timed.map(|(time, name)| (time, format!("{}: {name}", one.title)))
        });
        print("slowest tests:", tests.collect());
    }

    /// Prints the numbers of passed, failed and skipped tests.
    pub(super) fn print_counts(&self, skips: &[Skip]) {
        let mut counts = self.doc_tests;
        self.ended.iter().for_each(|one| counts += one.counts);
        let skipped = self.skipped(skips);
        let passed = counts.passed.saturating_sub(skipped);
        let Counts { failed, ignored, .. } = counts;
        let verdict = if failed == 0 { "ok" } else { "FAILED" };
        say(&format!(
            "all tests: {verdict}. {passed} passed; {failed} failed; {skipped} skipped; \
             {ignored} ignored"
        ));
    }

    /// The number of tests that were skipped as a whole. libtest counts them as passed.
    fn skipped(&self, skips: &[Skip]) -> u64 {
        let of = |one: &Ended| {
            let was_skipped = |test: &&Test| {
                let name = test.name.rsplit("::").next().unwrap_or_default();
                let same = |skip: &Skip| skip.binary == one.program && skip.test == name;
                test.passed && skips.iter().any(same)
            };
            one.tests.iter().filter(was_skipped).count() as u64
        };
        self.ended.iter().map(of).sum()
    }
}

/// Runs two lanes at the same time, the second one on a thread of its own.
fn side_by_side(
    foreground: impl FnOnce() -> anyhow::Result<Vec<Ended>>,
    background: impl FnOnce() -> anyhow::Result<Vec<Ended>> + Send,
) -> anyhow::Result<Vec<Ended>> {
    thread::scope(|scope| {
        let background = scope.spawn(background);
        let mut ended = foreground();
        let others = background.join().map_err(|_| anyhow!("a lane of tests panicked"))??;
        if let Ok(ended) = &mut ended {
            ended.extend(others);
        }
        ended
    })
}

fn print(title: &str, mut found: Vec<(Duration, String)>) {
    found.sort_by_key(|(time, _)| std::cmp::Reverse(*time));
    say(title);
    for (time, name) in found.iter().take(SLOWEST) {
        say(&format!("{:>8.1} s  {name}", time.as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_messages_of_cargo_name_the_test_binaries() {
        let message = |kind: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/r/crates/tare/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"inside"}},"profile":{{"test":{test}}},
                "executable":"/t/inside-0123"}}"#
            )
        };
        let found = binary(&message("test", true)).unwrap().unwrap();
        assert_eq!((found.title().as_str(), found.order), ("tare, tests/inside", 2));
        assert_eq!(binary(&message("lib", true)).unwrap().unwrap().title(), "tare (library)");
        assert_eq!(binary(&message("bin", false)), Some(None));
        assert_eq!(binary(r#"{"reason":"build-finished","success":true}"#), Some(None));
        assert_eq!(binary("no message"), None);
    }
}
