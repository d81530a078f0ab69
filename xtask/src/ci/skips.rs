//! Reads the skipped tests that `tare-testkit` and `tests/drivers` report, and decides which
//! reasons are allowed.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::{fmt, fs, io};

use anyhow::Context;

use crate::say;

/// The environment variable that names the file of skips.
pub(super) const VARIABLE: &str = "TARE_SKIPS";

/// A line of the file of skips.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skip {
    pub(super) binary: String,
    pub(super) test: String,
    class: String,
    what: String,
    reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.binary, self.test, self.reason)
    }
}

/// A reason that is allowed although it is no property of the machine.
struct Exception {
    class: &'static str,
    what: &'static str,
    why: &'static str,
    applies: fn() -> bool,
}

/// The exceptions. All other tests must run on every machine.
const EXCEPTIONS: &[Exception] = &[
    Exception {
        class: "unset",
        what: "TARE_TEST_CQL",
        why: "the test is for a CQL server that a person names",
        applies: always,
    },
    Exception {
        class: "not-installed",
        what: "runsc",
        why: "gVisor is built with Go 1.21 or newer, which this machine lacks",
        applies: no_go,
    },
    Exception {
        class: "not-installed",
        what: "runsc in the engine",
        why: "only the engine that ./test starts has this runtime",
        applies: always,
    },
    Exception {
        class: "not-installed",
        what: "runsc-ptrace in the engine",
        why: "only the engine that ./test starts has this runtime",
        applies: always,
    },
    Exception {
        class: "not-installed",
        what: "crun in the engine",
        why: "only the engine that ./test starts has this runtime",
        applies: always,
    },
    Exception {
        class: "not-installed",
        what: "an engine with that storage driver",
        why: "an engine has one storage driver, and ./test starts one engine of each kind",
        applies: always,
    },
    Exception {
        class: "not-installed",
        what: "a Kubernetes cluster that answers",
        why: "./test --kubernetes runs these tests afterwards, on a cluster of their own",
        applies: always,
    },
    Exception {
        class: "not-installed",
        what: "virtiofsd",
        why: "the distribution has it in one package or another, or not at all",
        applies: always,
    },
    Exception {
        class: "not-installed",
        what: "chromium",
        why: "Ubuntu has Chromium as a snap alone",
        applies: is_ubuntu,
    },
    Exception {
        class: "not-installed",
        what: "valkey-server",
        why: "the distribution has no such package: Debian 12 has it among its backports alone",
        applies: no_valkey,
    },
];

fn always() -> bool {
    true
}

/// Whether no installed Go can build gVisor. It needs Go 1.21 or newer, which downloads the version
/// that a module requires.
fn no_go() -> bool {
    let version = |program: &str| {
        let output = Command::new(program).arg("version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let minor = text.split("go1.").nth(1)?;
        minor.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    let programs = ["go", "/usr/local/go/bin/go", "/usr/lib/go/bin/go"];
    programs.into_iter().find_map(version).is_none_or(|minor| minor < 21)
}

/// Whether the package sources of this machine have no Valkey, as `./test` asks them.
fn no_valkey() -> bool {
    let shown = Command::new("apt-cache").args(["show", "valkey-server"]).output();
    !shown.is_ok_and(|output| output.status.success())
}

fn is_ubuntu() -> bool {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    text.lines().any(|line| line == "ID=ubuntu")
}

/// Reads the file of skips. A missing file is empty.
///
/// # Errors
/// If the file cannot be read, or a line does not have five fields.
pub(super) fn read(file: &Path) -> anyhow::Result<Vec<Skip>> {
    let text = match fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", file.display()))?,
    };
    text.lines().map(|line| parse(line).with_context(|| format!("no skip: {line:?}"))).collect()
}

fn parse(line: &str) -> Option<Skip> {
    let fields: Vec<String> = line.split('\t').map(String::from).collect();
    let [binary, test, class, what, reason] = <[String; 5]>::try_from(fields).ok()?;
    Some(Skip { binary, test, class, what, reason })
}

/// Returns the skips that neither a known property of the machine nor an exception allows.
pub(super) fn refused(skips: &[Skip]) -> Vec<&Skip> {
    skips.iter().filter(|skip| !is_good(skip)).collect()
}

fn is_good(skip: &Skip) -> bool {
    match skip.class.as_str() {
        // Properties of the machine are allowed, except that CI must run as root.
        "machine" => skip.what != "not-root",
        "elsewhere" => true,
        _ => exception(skip).is_some(),
    }
}

fn exception(skip: &Skip) -> Option<&'static Exception> {
    let same = |one: &&Exception| one.class == skip.class && one.what == skip.what;
    EXCEPTIONS.iter().filter(same).find(|one| (one.applies)())
}

/// Prints the skips by reason.
pub(super) fn print(skips: &[Skip]) {
    let mut by_reason: BTreeMap<&str, Vec<&Skip>> = BTreeMap::new();
    for skip in skips {
        by_reason.entry(&skip.reason).or_default().push(skip);
    }
    say(&format!("{} skipped tests and parts of tests, by reason:", skips.len()));
    for (reason, skips) in by_reason {
        let why = exception(skips[0]).map_or(String::new(), |one| format!(" ({})", one.why));
        say(&format!("{:>5}  {reason}{why}", skips.len()));
        let mut names: Vec<String> =
            skips.iter().map(|skip| format!("{}: {}", skip.binary, skip.test)).collect();
        names.sort();
        names.dedup();
        for name in names {
            say(&format!("         {name}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allows_only_known_reasons() {
        let check = |class: &str, what: &str, good: bool| {
            let skip = parse(&format!("suite\ttest\t{class}\t{what}\treason")).unwrap();
            assert_eq!(is_good(&skip), good, "{class} {what}");
        };
        check("machine", "no-kvm", true);
        check("machine", "not-root", false);
        check("elsewhere", "in a guest", true);
        check("not-installed", "runc", false);
        check("unset", "TARE_TEST_CQL", true);
        check("unset", "ANOTHER", false);
        check("other", "", false);
        assert!(parse("too\tfew").is_none());
    }
}
