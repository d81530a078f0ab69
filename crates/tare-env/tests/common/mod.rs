//! Helpers of the environment test suites.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use tare_env::inside::{Command, Guest, InsideError, Options, Status};
use tare_env::runtime::vm;
use tare_env::unavailable::Unavailable;
use tare_host::{clean, error_line};
use tare_lab::environment::EnvironmentSpec;
use tare_testkit::{EnvironmentBuilder, Machine, Reason, skip};

/// Tests that compare the state of the host before and after run one at a time.
static HOST: RwLock<()> = RwLock::new(());

/// Takes the lock of a test that compares the state of the host.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn host() -> RwLockWriteGuard<'static, ()> {
    HOST.write().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the lock of a test that checks only its own guest and run. Such tests may run at the same
/// time: an emulated guest keeps one CPU busy.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn own_guest() -> RwLockReadGuard<'static, ()> {
    HOST.read().unwrap_or_else(PoisonError::into_inner)
}

/// A state directory for one test. Dropping it cleans its runs and removes it.
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
        let _ = clean::clean(&self.0, tare_env::undo::KINDS);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the path of the test program (`examples/stand_in.rs`), which is built with the tests.
pub(crate) fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let program = folder.join("examples/stand_in");
    assert!(program.exists(), "{} is missing; build the tests with examples", program.display());
    program
}

/// Returns whether this machine cannot boot a QEMU guest with the host's root. The test is then
/// reported as skipped.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn skipped_inside(test: &str) -> bool {
    skipped_inside_of(test, "vm:qemu")
}

/// Returns whether this machine cannot boot this kind of guest with the host's root. The test is
/// then reported as skipped.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn skipped_inside_of(test: &str, guest: &str) -> bool {
    let state = State::new("inside-check");
    let missing = match tare_env::inside::check(&guest.parse().unwrap(), &state.0) {
        Ok(()) | Err(InsideError::NoRoot) => None,
        Err(InsideError::Needs(missing)) => Some(unavailable(&missing)),
        Err(error) => Some(reason(&error)),
    };
    skipped_for(test, missing)
}

/// Returns whether a runtime cannot be used here. The test is then reported as skipped.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn skipped_runtime(test: &str, runtime: &str) -> bool {
    let (kind, argument) = tare_env::runtime::find(runtime).unwrap();
    let missing = (kind.needs)(argument).and_then(|()| boots(runtime)).err();
    skipped_for(test, missing.as_ref().map(unavailable))
}

/// Returns whether an environment cannot run here. The test is then reported as skipped.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn skipped_spec(test: &str, spec: &EnvironmentSpec) -> bool {
    skipped_for(test, tare_env::runtime::check(spec).err().map(|error| reason(error.as_ref())))
}

fn skipped_for(test: &str, missing: Option<Reason>) -> bool {
    let missing = match skip::is_root() {
        true => missing,
        false => Some(Machine::NotRoot.into()),
    };
    let is_missing = missing.is_some();
    missing.into_iter().for_each(|reason| skip::skip(test, reason));
    is_missing
}

/// Checks that a user-mode kernel boots on this CPU, which only a boot can show.
fn boots(runtime: &str) -> Result<(), Unavailable> {
    match runtime.starts_with("vm:uml") {
        true => vm::check_user_mode(None, &State::new("boots").0),
        false => Ok(()),
    }
}

fn unavailable(missing: &Unavailable) -> Reason {
    Reason::unavailable(&missing.what, &missing.why)
}

/// Returns why an environment cannot run here.
pub(crate) fn reason(error: &(dyn std::error::Error + 'static)) -> Reason {
    match error.downcast_ref::<Unavailable>() {
        Some(missing) => unavailable(missing),
        None => Reason::Other(error_line(error)),
    }
}

/// Returns an environment of a process or container on a kind of storage, without other layers.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn on_storage(runtime: &str, kind: &str, options: &[(&str, &str)]) -> EnvironmentSpec {
    let mut spec = EnvironmentBuilder::new(runtime).storage(kind, options).build();
    spec.name = format!("{runtime} on {}", spec.storage);
    spec
}

/// Runs the tests of this binary inside a guest, except `but`, one at a time, and shows their
/// output. For suites of features that this kernel may lack.
#[allow(dead_code, reason = "each suite uses a part of this")]
#[expect(clippy::print_stderr, reason = "shows the guest's output")]
pub(crate) fn all_inside(guest: &str, limit: Duration, but: &[&str]) {
    let state = State::new("guest");
    let options: Options = guest.parse().unwrap();
    let booted = Guest::boot(&options, &state.0, &program());
    let mut guest = booted.unwrap_or_else(|error| panic!("{}", error_line(&error)));
    let test = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    let mut words = vec![test, "--test-threads=1".into(), "--nocapture".into()];
    words.extend(but.iter().flat_map(|name| ["--skip".into(), (*name).into()]));
    let (status, out, err) = guest.output(&in_guest(&words).limit(limit)).unwrap();
    take_over_skips(&guest);
    eprintln!("{out}\n{err}");
    assert_eq!(status, Status::Code(0), "{}", guest.console());
    assert!(guest.close().is_empty());
}

/// The file in which a test binary inside a guest reports its skips. It reaches the host.
const SKIPS: &str = "/run/tare/export/skips";

/// Returns a command that runs a test binary inside a guest.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn in_guest<S: AsRef<str>>(words: &[S]) -> Command {
    Command::new(words.iter().map(|word| word.as_ref().to_string())).variable(skip::VARIABLE, SKIPS)
}

/// Reports the skips of a test binary that ran inside a guest.
#[allow(dead_code, reason = "each suite uses a part of this")]
pub(crate) fn take_over_skips(guest: &Guest) {
    skip::take_over(&guest.export().join("skips"));
}
