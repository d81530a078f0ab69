//! What the suites of environments share.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use tare_host::clean;

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
#[expect(clippy::print_stderr, reason = "tests that are skipped say so")]
pub(crate) fn skipped_inside(test: &str) -> bool {
    let reason = match (rustix::process::geteuid().is_root(), tare_env::inside::needs()) {
        (false, _) => "needs root".to_string(),
        (_, Err(missing)) => missing.to_string(),
        (true, Ok(())) => return false,
    };
    eprintln!("skipped: {test}: {reason}");
    true
}
