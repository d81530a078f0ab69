//! Reports tests that cannot run on this machine, with a reason.
//!
//! Every skip is printed. If the environment variable `TARE_SKIPS` names a file, every skip is also
//! appended to it as one line of five fields with tabs between them: test binary, test, class,
//! missing thing, reason. `cargo xtask ci` sets the variable, lists the skips at its end, and fails
//! for each skip that is not due to a known property of the machine.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// The missing thing if an engine has a different storage driver than requested.
const DRIVER: &str = "an engine with that storage driver";
/// The environment variable that names the file of skips.
pub const VARIABLE: &str = "TARE_SKIPS";

/// Why a test does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A known property of the machine, which no package changes.
    Machine(Machine),
    /// Something that `./test` installs or builds is missing.
    NotInstalled { what: String },
    /// The test needs a server or an installation that the environment variable names.
    Unset { variable: &'static str },
    /// The same assertions run elsewhere in the suite.
    RunsElsewhere { place: String },
    /// Anything else. It fails `cargo xtask ci`.
    Other(String),
}

/// The properties of a machine for which a test may be skipped. The list is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// The tests do not run as root.
    NotRoot,
    /// The machine has no KVM, or KVM does not work.
    NoKvm,
    /// The machine has no hardware performance counters.
    NoPmu,
    /// The kernel lacks a module, a file system or a system call.
    KernelLacks(String),
    /// The installed user-mode Linux does not run on this CPU.
    NoUserModeLinux(String),
    /// The process lacks a capability, such as `CAP_SYS_RESOURCE`.
    NoCapability(&'static str),
    /// The machine has no block device.
    NoBlockDevice,
    /// The host does not report its CPU topology.
    NoCpuTopology,
    /// Only one CPU is online.
    OneCpu,
    /// All directories that the test may write to are on one file system.
    OneFileSystem,
    /// No device has an interrupt that may be moved.
    NoInterrupts,
    /// No network card counts packets by queue.
    NoCardQueues,
    /// A daemon of the host uses a resource that the test needs, and no test may stop the daemon.
    DaemonOfHost(&'static str),
}

impl Machine {
    fn word(&self) -> &'static str {
        match self {
            Self::NotRoot => "not-root",
            Self::NoKvm => "no-kvm",
            Self::NoPmu => "no-pmu",
            Self::KernelLacks(_) => "kernel-lacks",
            Self::NoUserModeLinux(_) => "no-user-mode-linux",
            Self::NoCapability(_) => "no-capability",
            Self::NoBlockDevice => "no-block-device",
            Self::NoCpuTopology => "no-cpu-topology",
            Self::OneCpu => "one-cpu",
            Self::OneFileSystem => "one-file-system",
            Self::NoInterrupts => "no-interrupts",
            Self::NoCardQueues => "no-card-queues",
            Self::DaemonOfHost(_) => "daemon-of-host",
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => f.write_str("needs root"),
            Self::NoKvm => f.write_str("KVM does not work here"),
            Self::NoPmu => f.write_str("this machine has no hardware counters"),
            Self::KernelLacks(what) => f.write_str(what),
            Self::NoUserModeLinux(why) => {
                write!(f, "user-mode Linux does not run on this CPU: {why}")
            }
            Self::NoCapability(name) => write!(f, "needs {name}"),
            Self::NoBlockDevice => f.write_str("there is no block device"),
            Self::NoCpuTopology => f.write_str("the host does not report its CPU topology"),
            Self::OneCpu => f.write_str("only one CPU is online"),
            Self::OneFileSystem => f.write_str("there is no second file system to write to"),
            Self::NoInterrupts => f.write_str("no device has an interrupt that may be moved"),
            Self::NoCardQueues => f.write_str("no network card counts packets by queue"),
            Self::DaemonOfHost(name) => write!(f, "the host runs {name} itself"),
        }
    }
}

impl From<Machine> for Reason {
    fn from(machine: Machine) -> Self {
        Self::Machine(machine)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(machine) => machine.fmt(f),
            Self::NotInstalled { what } => write!(f, "{what} is not installed"),
            Self::Unset { variable } => write!(f, "{variable} is not set"),
            Self::RunsElsewhere { place } => write!(f, "runs {place}"),
            Self::Other(why) => f.write_str(why),
        }
    }
}

impl Reason {
    /// Something that `./test` installs is missing.
    pub fn not_installed(what: impl Into<String>) -> Self {
        Self::NotInstalled { what: what.into() }
    }

    /// A loop device could not be attached, and `losetup` printed `said`.
    pub fn no_loop_device(said: &str) -> Self {
        if !is_root() {
            Machine::NotRoot.into()
        } else if Need::Program("losetup").is_missing() {
            Self::not_installed("losetup")
        } else if !Path::new("/dev/loop-control").exists() {
            Machine::KernelLacks("this kernel has no loop devices".into()).into()
        } else {
            Self::Other(format!("no loop device can be attached: {}", said.trim()))
        }
    }

    /// A link of this kind could not be made, and `ip` printed `said`.
    pub fn no_link(kind: &str, said: &str) -> Self {
        match Path::new("/sys/module").join(kind).exists() {
            false => Machine::KernelLacks(format!("this kernel makes no {kind}: {said}")).into(),
            true => Self::Other(format!("no {kind} can be made: {said}")),
        }
    }

    /// A file system could not be mounted, although `mount` is there.
    pub fn no_mount(what: &str) -> Self {
        match is_root() {
            false => Machine::NotRoot.into(),
            true => Self::Other(format!("cannot mount {what}")),
        }
    }

    /// An I/O engine of the database did not start, and the database printed `said`.
    pub fn no_engine(engine: &str, said: &str) -> Self {
        let is_uring = matches!(engine, "uring" | "io_uring");
        match is_uring && said.contains("io_uring_setup failed") {
            true => Machine::KernelLacks(format!("this kernel refuses io_uring: {said}")).into(),
            false => Self::Other(format!("the engine {engine} does not start: {said}")),
        }
    }

    /// Why an environment is unavailable, from the fields `what` and `why` of `tare_env`'s error.
    pub fn unavailable(what: &str, why: &str) -> Self {
        let kernel = ["this kernel has no", "the device mapper has no target"];
        let engine_lacks = ["the engine has only the runtimes"];
        if !is_root() {
            Machine::NotRoot.into()
        } else if let Some(program) = why.strip_prefix("there is no program ") {
            Self::not_installed(program.split_whitespace().next().unwrap_or(program))
        } else if what == "vm:uml" && why.contains("cannot set the registers of this CPU") {
            Machine::NoUserModeLinux(why.to_string()).into()
        } else if why.contains("there is no kernel for guests") {
            Self::not_installed("a kernel for guests")
        } else if kernel.iter().any(|start| why.starts_with(start)) {
            Machine::KernelLacks(format!("{what}: {why}")).into()
        } else if matches!(what, "containerd" | "docker" | "podman") {
            Self::NotInstalled { what: format!("a {what} that answers") }
        } else if why.contains(" has the storage driver ") {
            Self::not_installed(DRIVER)
        } else if let Some(runtime) = what.strip_prefix("docker:").or(what.strip_prefix("podman:"))
            && engine_lacks.iter().any(|start| why.starts_with(start))
        {
            Self::NotInstalled { what: format!("{runtime} in the engine") }
        } else {
            Self::Other(format!("{what}: {why}"))
        }
    }

    /// The class and the missing thing, as `cargo xtask ci` reads them.
    fn class(&self) -> (&'static str, &str) {
        match self {
            Self::Machine(machine) => ("machine", machine.word()),
            Self::NotInstalled { what } => ("not-installed", what),
            Self::Unset { variable } => ("unset", variable),
            Self::RunsElsewhere { place } => ("elsewhere", place),
            Self::Other(_) => ("other", ""),
        }
    }
}

/// Whether the tests run as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Reports that a test, or a part of it, does not run, with the reason.
///
/// # Panics
/// If the file of skips cannot be written.
pub fn skip(test: &str, reason: impl Into<Reason>) {
    let reason = reason.into();
    // Writes to standard error directly, because libtest hides the output of a test that passes.
    let _ = writeln!(io::stderr(), "skipped: {test}: {}", one_line(&reason.to_string()));
    if let Some(file) = std::env::var_os(VARIABLE) {
        append(Path::new(&file), &line(&binary(), test, &reason)).unwrap();
    }
}

/// Copies the skips that a test binary reported elsewhere, such as inside a guest, into the file of
/// skips.
pub fn take_over(file: &Path) {
    let (Some(own), Ok(lines)) = (std::env::var_os(VARIABLE), fs::read_to_string(file)) else {
        return;
    };
    append(Path::new(&own), &lines).unwrap();
}

fn append(file: &Path, lines: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    // One write, so that the lines of tests that run at the same time do not mix.
    file.write_all(lines.as_bytes())
}

fn line(binary: &str, test: &str, reason: &Reason) -> String {
    let (class, what) = reason.class();
    let fields = [binary, test, class, what, &reason.to_string()];
    fields.map(one_line).join("\t") + "\n"
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The name of the test binary without the hash that cargo appends.
fn binary() -> String {
    let path = std::env::current_exe().unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    name.rsplit_once('-').map_or(name.clone(), |(name, _)| name.to_string())
}

/// A requirement of a test.
#[derive(Clone, Copy, Debug)]
pub enum Need {
    Root,
    Program(&'static str),
}

impl Need {
    fn is_missing(self) -> bool {
        match self {
            Self::Root => !is_root(),
            Self::Program(name) => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let usual = ["/usr/sbin", "/sbin"].map(Into::into);
                !std::env::split_paths(&path).chain(usual).any(|at| at.join(name).is_file())
            }
        }
    }

    fn reason(self) -> Reason {
        match self {
            Self::Root => Machine::NotRoot.into(),
            Self::Program(name) => Reason::not_installed(name),
        }
    }
}

/// Whether the host lacks one of `needs`. If so, reports the test as skipped.
pub fn skipped(test: &str, needs: &[Need]) -> bool {
    let missing = needs.iter().find(|need| need.is_missing());
    if let Some(need) = missing {
        skip(test, need.reason());
    }
    missing.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skip_is_one_line_of_five_fields() {
        let reason = Reason::Other("two\nlines\tand a tab".into());
        let text = line("suite", "a test", &reason);
        assert_eq!(text, "suite\ta test\tother\t\ttwo lines and a tab\n");
        let text = line("suite", "a test", &Machine::NoKvm.into());
        assert_eq!(text, "suite\ta test\tmachine\tno-kvm\tKVM does not work here\n");
    }

    #[test]
    fn missing_things_have_a_class() {
        if !is_root() {
            return skip("missing_things_have_a_class", Machine::NotRoot);
        }
        let check = |what: &str, why: &str, class: (&str, &str)| {
            assert_eq!(Reason::unavailable(what, why).class(), class, "{what}: {why}");
        };
        check("oci:crun", "there is no program crun", ("not-installed", "crun"));
        let why = "this kernel has no f2fs (neither built in nor as a module)";
        check("storage f2fs", why, ("machine", "kernel-lacks"));
        check("podman", "nothing listens", ("not-installed", "a podman that answers"));
        check("vm:qemu", "an unknown cause", ("other", ""));
    }

    #[test]
    fn skips_are_appended_and_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("skips");
        append(&file, "a\n").unwrap();
        append(&file, "b\n").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "a\nb\n");
    }
}
