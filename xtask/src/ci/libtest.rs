//! What a test binary prints: the verdict and the time of each test, and the counts at its end.

use std::io::{self, BufRead, BufReader};
use std::ops::AddAssign;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Counts of a `test result:` line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
    pub(super) ignored: u64,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// One test that has ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) passed: bool,
    /// `None` if the binary does not report it.
    pub(super) time: Option<Duration>,
}

/// What a run of a test binary printed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Output {
    pub(super) tests: Vec<Test>,
    pub(super) counts: Counts,
}

impl Output {
    fn take(&mut self, line: &str) {
        if let Some(test) = test(line) {
            self.tests.push(test);
        } else if let Some(counts) = counts(line) {
            self.counts += counts;
        }
    }
}

/// `test NAME ... ok <1.234s>`, with the time or without.
fn test(line: &str) -> Option<Test> {
    let (name, verdict) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let (verdict, time) = verdict.split_once(" <").map_or((verdict, None), |(verdict, time)| {
        let seconds = time.trim_end_matches('>').trim_end_matches('s').parse::<f64>();
        (verdict, seconds.ok().map(Duration::from_secs_f64))
    });
    let passed = match verdict.trim() {
        "ok" => true,
        "FAILED" => false,
        _ => return None,
    };
    Some(Test { name: name.into(), passed, time })
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; ...`.
fn counts(line: &str) -> Option<Counts> {
    let (_, numbers) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let number = |word: &str| {
        let part = numbers.split("; ").find_map(|part| part.strip_suffix(word))?;
        part.trim().parse().ok()
    };
    Some(Counts {
        passed: number("passed")?,
        failed: number("failed")?,
        ignored: number("ignored")?,
    })
}

/// When the output of a command is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// Each line when it comes.
    AtOnce,
    /// Everything when the command has ended, with its errors and below a title.
    AtTheEnd,
}

/// Runs a command, shows what it prints, and returns whether it ended well and what it printed.
///
/// # Errors
/// If it cannot be started or read.
pub(super) fn run(command: &mut Command, show: Show, title: &str) -> io::Result<(bool, Output)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut output = Output::default();
    if show == Show::AtTheEnd {
        let ended = command.stderr(Stdio::piped()).output()?;
        let text = String::from_utf8_lossy(&ended.stdout).into_owned();
        text.lines().for_each(|line| output.take(line));
        let errors = String::from_utf8_lossy(&ended.stderr);
        print(&format!("     Ran beside other tests: {title}\n{}{errors}", text.trim_start()));
        return Ok((ended.status.success(), output));
    }
    let mut child = command.spawn()?;
    if let Some(stdout) = child.stdout.take() {
        let mut stdout = BufReader::new(stdout);
        let mut line = Vec::new();
        while stdout.read_until(b'\n', &mut line)? > 0 {
            let text = String::from_utf8_lossy(&line).trim_end().to_string();
            print(&text);
            output.take(&text);
            line.clear();
        }
    }
    Ok((child.wait()?.success(), output))
}

#[expect(clippy::print_stdout, reason = "what the tests print is shown")]
fn print(line: &str) {
    println!("{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_and_time_of_a_test_are_read() {
        let check = |line: &str, expect: Option<(&str, bool, Option<u64>)>| {
            let found = test(line).map(|test| (test.name, test.passed, test.time));
            let expect = expect.map(|(name, passed, ms)| {
                (name.to_string(), passed, ms.map(Duration::from_millis))
            });
            assert_eq!(found, expect, "{line}");
        };
        check("test a::b ... ok <1.250s>", Some(("a::b", true, Some(1250))));
        check("test a ... FAILED <0.100s>", Some(("a", false, Some(100))));
        check("test a ... ok", Some(("a", true, None)));
        check("test src/lib.rs - f (line 3) ... ok", Some(("src/lib.rs - f (line 3)", true, None)));
        check("test a ... ignored", None);
        check("test result: ok. 1 passed; 0 failed", None);
    }

    #[test]
    fn counts_are_added() {
        let mut output = Output::default();
        for line in [
            "running 2 tests",
            "test a ... ok",
            "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
        ] {
            output.take(line);
        }
        assert_eq!(output.counts, Counts { passed: 3, failed: 1, ignored: 1 });
        assert_eq!(output.tests.len(), 1);
    }
}
