//! The driver with tools that are scripts, and their failures.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tare_lab::access::ClientAccess;
use tare_lab::driver::{Driver, Edge, Pacing, SliceLoad};

use super::driver::rounded;
use super::follower::TimeLimits;
use super::*;
use crate::Client;
use crate::tests::cpus;
use tare_load::histogram::Histogram;

/// Returns a recorded output.
pub(crate) fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/load-tools").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Checks the quantiles of a histogram within a relative error.
pub(crate) fn near(histogram: &Histogram, points: &[(f64, f64)], share: f64) {
    for (quantile, ns) in points {
        let ours = histogram.value_at_quantile(*quantile) as f64;
        assert!((ours / ns - 1.0).abs() <= share, "p{}: {ours} against {ns}", quantile * 100.0);
    }
}

/// Returns the text cut off at 16 places, and with a byte changed at each.
pub(crate) fn mangled(text: &str) -> impl Iterator<Item = String> {
    let places = (0..16).map(|number| text.len() * number / 16);
    places.flat_map(|at| {
        let bytes = text.as_bytes();
        let mut changed = bytes.to_vec();
        changed[at] = b'#';
        [&bytes[..at], &changed].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    })
}

/// A tool that is a shell script. It prints `N` each 20 ms, and `done N` at its end.
#[derive(Clone, Debug)]
struct Script(String);

impl ToolOptions for () {
    fn read(_: &WorkloadSpec) -> Result<(), OptionError> {
        Ok(())
    }

    fn program(&self) -> &'static str {
        "script"
    }
}

impl Tool for Script {
    const INFO: ToolInfo = ToolInfo {
        name: "script",
        edges: EdgeSource::AtLines,
        greeting: &[],
        cuts_latency: false,
        divided: &[],
    };

    type Options = ();

    fn command(&self, (): &(), run: &SliceRun<'_>) -> ToolCommand {
        let seconds = (run.order.lead_in + run.order.window).as_secs_f64() * SPARE;
        let operations = rounded(run.seen.rate_per_s * seconds);
        let words = CommandLine::new(self.0.as_str()).arg(operations.to_string());
        ToolCommand { words, operations: Some(operations) }
    }

    fn populate(&self, at: &mut ToolTarget<'_>, (): &()) -> Result<(), ToolError> {
        at.complete(&CommandLine::new(self.0.as_str()).arg("1"), Duration::from_secs(20)).map(drop)
    }

    fn progress(&self, line: &str) -> Option<Progress> {
        Some(Progress { tool_s: None, count: Count::Total(line.parse().ok()?) })
    }

    fn read(&self, (): &(), report: &ToolReport<'_>) -> Result<Outcome, ToolError> {
        let done = report.printed.stdout.lines().find_map(|line| line.strip_prefix("done "));
        let missing = OutputError::Missing { what: "what was done" };
        let done = done.and_then(outcome::whole).ok_or(missing);
        let done = done.map_err(unusable("script", report.printed))?;
        Ok(Outcome {
            operations: vec![("any".into(), done)],
            errors: Vec::new(),
            elapsed_ns: 3_600_000_000_000,
            service: None,
            response: None,
        })
    }
}

/// Counts up by 1,000 each 20 ms to its argument.
const GOOD: &str =
    "n=0; while [ $n -lt $1 ]; do echo $n; n=$((n + 1000)); sleep 0.02; done; echo done $1";

/// Writes a script into a folder and returns its path.
fn write_script(folder: &Path, script: &str) -> String {
    let path = folder.join("script");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().into()
}

/// Returns the result of a slice with this script, and its edges.
fn slice(script: &str) -> (Result<SliceLoad, String>, Vec<Edge>) {
    let folder = tempfile::tempdir().unwrap();
    run(&write_script(folder.path(), script), folder.path())
}

fn run(program: &str, folder: &Path) -> (Result<SliceLoad, String>, Vec<Edge>) {
    let mut edges = Vec::new();
    let mut loads = slices(program, folder, [Duration::from_millis(150)], &mut edges);
    (loads.remove(0), edges)
}

/// Runs a slice for each of the windows, with one driver.
fn slices(
    program: &str,
    folder: &Path,
    windows: impl IntoIterator<Item = Duration>,
    edges: &mut Vec<Edge>,
) -> Vec<Result<SliceLoad, String>> {
    let cpus = cpus(64);
    let client = Client {
        program: Path::new("unused"),
        cpus: &cpus,
        namespace: None,
        scratch: folder,
        run: "ab12",
        speaks: "redis",
        access: &ClientAccess::default(),
    };
    let mut driver = ToolDriver::new(Script(program.into()), &client);
    driver.limits = TimeLimits {
        start: Duration::from_millis(700),
        silence: Duration::from_millis(700),
        end: Duration::from_secs(20),
    };
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = driver.open(&[server.local_addr().unwrap()], Duration::from_secs(5)).unwrap();
    let chain = |error: ToolError| {
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        format!("{error}{}", source.unwrap_or_default())
    };
    let one = |window| {
        let order = SliceOrder {
            workload: crate::tests::workload(),
            pacing: Pacing::Closed,
            lead_in: Duration::from_millis(50),
            window,
            seed: 1,
        };
        driver.slice(target, &order, &mut |edge| edges.push(edge)).map_err(chain)
    };
    windows.into_iter().map(one).collect()
}

/// Its rate, and so its length, is unknown at first.
#[test]
fn window_counts_operations_between_two_lines() {
    let (load, edges) = slice(GOOD);
    let load = load.unwrap();
    assert_eq!(edges, [Edge::Begin, Edge::End]);
    assert!(load.operations >= 1_000 && load.operations.is_multiple_of(1_000), "{load:?}");
    assert!(load.window_ns >= 20_000_000, "{load:?}");
}

/// A client that becomes faster in the window does all its operations too soon.
#[test]
fn tool_gets_more_operations_after_they_ran_out() {
    let folder = tempfile::tempdir().unwrap();
    let faster = "if [ ! -e ../tried ]; then n=0; \
                  while [ $n -lt $1 ] && [ $n -lt 5000 ]; do echo $n; n=$((n + 1000)); sleep 0.02; \
                  done; echo $1 > ../tried; echo done $1; exit; fi; echo $1 > ../asked";
    let script = write_script(folder.path(), &format!("{faster}\n{GOOD}"));
    let windows = [Duration::from_secs(1); 2];
    let loads = slices(&script, folder.path(), windows, &mut Vec::new());
    let error = loads[0].clone().unwrap_err();
    assert!(error.contains("ended before the window did (exit status: 0)"), "{error}");
    assert!(loads[1].is_ok(), "{loads:?}");
    let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
    let [tried, asked] = ["tried", "asked"].map(|name| read(name).trim().parse::<f64>().unwrap());
    assert!(asked >= tried * 1.4, "{asked} after {tried}");
}

/// A tool at a million operations a second ends before it prints its rate, until it gets enough.
#[test]
fn tool_too_fast_for_the_first_guesses_gets_more_operations() {
    let folder = tempfile::tempdir().unwrap();
    let fast = "if [ $1 -lt 300000 ]; then echo done $1; exit; fi; n=0; \
                while [ $n -lt $1 ]; do echo $n; n=$((n + 20000)); sleep 0.02; done; echo done $1";
    let script = write_script(folder.path(), fast);
    let windows = [Duration::from_millis(150); 2];
    let loads = slices(&script, folder.path(), windows, &mut Vec::new());
    assert!(loads.iter().all(Result::is_ok), "{loads:?}");
}

/// Its shell spins: one thread, so that the busiest is all of it, but for what one of the two
/// readings sees of a scheduler tick.
#[test]
fn busiest_thread_of_a_tool_is_counted() {
    let (load, _) =
        slice(&GOOD.replace("sleep 0.02", "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done"));
    let load = load.unwrap();
    let (busiest, all) = (load.busiest_thread_ns, load.client_cpu_ns);
    assert!(busiest > 0 && busiest.abs_diff(all) <= busiest.max(all) / 2, "{load:?}");
}

/// A Java tool does that when a busy system answers too late.
#[test]
fn tool_that_ends_early_is_restarted() {
    let (load, edges) = slice(&format!("[ -e ../tried ] || {{ : > ../tried; exit 1; }}; {GOOD}"));
    assert!(load.unwrap().operations >= 1_000);
    assert_eq!(edges, [Edge::Begin, Edge::End]);
}

#[test]
fn tool_failures_are_one_line_errors() {
    for (script, expect) in [
        (
            "echo no such host >&2; exit 3",
            "ended before its load started (exit status: 3); it printed: no such host",
        ),
        ("sleep 30", "started no load within 0 s; it printed nothing"),
        ("echo 1; echo 2; sleep 30", "has printed no figures for 0 s"),
        (
            "n=0; while [ $n -lt $1 ]; do echo $n; n=$((n + 1000)); sleep 0.02; done",
            "nothing of what was done",
        ),
        (
            "n=0; while [ $n -lt $1 ]; do echo $n; n=$((n + 1000)); sleep 0.02; done; echo done 5",
            "did 5 operations of",
        ),
        (
            "n=0; while [ $n -lt $1 ]; do echo $n; n=$((n + 1000)); sleep 0.02; done; echo done $1; echo lost >&2; exit 1",
            "(exit status: 1); it printed: lost",
        ),
    ] {
        let (load, _) = slice(script);
        let error = load.unwrap_err();
        assert!(error.contains(expect) && !error.contains('\n'), "{script}: {error}");
    }
    let folder = tempfile::tempdir().unwrap();
    let (load, _) = run("/nowhere/a-tool", folder.path());
    assert_eq!(load.unwrap_err(), "cannot find /nowhere/a-tool; `tare doctor` says how to get it");
}
