//! What the suites of environments share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use tare_env::inside::{Command, Guest, Options, Status};
use tare_host::{clean, error_line};
use tare_lab::environment::{EnvironmentSpec, Limits, StorageSpec};
use tare_lab::layer::{Cgroup, Cpu, Host, Inject, Network, Rootfs, Security};

/// The host's state is compared before and after, so one test at a time.
static HOST: Mutex<()> = Mutex::new(());

pub(crate) fn host() -> MutexGuard<'static, ()> {
    HOST.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// A state directory of the test's own, removed with what is in it.
pub(crate) struct State(pub(crate) PathBuf);

impl State {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tare-test-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        let _ = clean::clean(&self.0);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The stand-in for the program, which is built with the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let program = folder.join("examples/stand_in");
    assert!(program.exists(), "{} is built with the tests", program.display());
    program
}

/// True where no guest with the host's root can be had, after saying why.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn skipped_inside(test: &str) -> bool {
    skipped_inside_of(test, "vm:qemu")
}

/// The same of one kind of guest.
#[allow(dead_code, reason = "each suite uses a part of this")]
#[expect(clippy::print_stderr, reason = "tests that are skipped say so")]
pub(crate) fn skipped_inside_of(test: &str, guest: &str) -> bool {
    let missing = tare_env::inside::needs(&guest.parse().unwrap());
    let reason = match (rustix::process::geteuid().is_root(), missing) {
        (false, _) => "needs root".to_string(),
        (_, Err(missing)) => missing.to_string(),
        (true, Ok(())) => return false,
    };
    eprintln!("skipped: {test}: {reason}");
    true
}

/// An environment of a process or container on a kind of storage, with all other layers left out.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn on_storage(runtime: &str, kind: &str, options: &[(&str, &str)]) -> EnvironmentSpec {
    let pair = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    let storage = StorageSpec { kind: kind.into(), options: options.iter().map(pair).collect() };
    EnvironmentSpec {
        name: format!("{runtime} on {storage}"),
        runtime: runtime.into(),
        network: Network::Host,
        cpu: Cpu::Shared,
        security: Security::None,
        cgroup: Cgroup::Own,
        host: Host::AsIs,
        storage,
        vm: Vec::new(),
        sandbox: Vec::new(),
        rootfs: Rootfs::None,
        inject: Inject::default(),
        limits: Limits::default(),
        optional: false,
    }
}

/// Runs the tests of this binary inside a guest of ours, all but those named, one at a time, and
/// shows what they say. For a suite of what this kernel lacks.
#[allow(dead_code, reason = "each suite uses a part of this")]
#[expect(clippy::print_stderr, reason = "what the guest says is shown")]
pub(crate) fn all_inside(guest: &str, limit: Duration, but: &[&str]) {
    let state = State::new("guest");
    let options: Options = guest.parse().unwrap();
    let booted = Guest::boot(&options, &state.0, &program());
    let mut guest = booted.unwrap_or_else(|error| panic!("{}", error_line(&error)));
    let test = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    let mut words = vec![test, "--test-threads=1".into(), "--nocapture".into()];
    words.extend(but.iter().flat_map(|name| ["--skip".into(), (*name).into()]));
    let (status, out, err) = guest.output(&Command::new(words).limit(limit)).unwrap();
    eprintln!("{out}\n{err}");
    assert_eq!(status, Status::Code(0), "{}", guest.console());
    assert!(guest.close().is_empty());
}
