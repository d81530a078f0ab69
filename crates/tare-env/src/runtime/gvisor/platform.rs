//! gVisor's platforms: how it intercepts the system calls of the sandboxed processes. A trial with
//! a time limit, a sandbox that does nothing, decides which of them work on a host.
//!
//! An open /dev/kvm proves little: on a host that is itself a guest, a sandbox on `kvm` may never
//! come up and use a whole CPU until it is killed. So each platform is tried once for each boot of
//! the host and each build of `runsc`. `outcome_cache` keeps the outcomes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tare_host::exec::{Command, ExecError};
use tare_host::{RUN_VARIABLE, error_line, process};

use crate::outcome_cache;

/// How long a sandbox may take to come up. It takes half a second on an idle host.
const TRIAL_LIMIT: Duration = Duration::from_secs(10);

/// How long the killed processes of a trial may take to end.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// The file of outcomes in the cache.
const CACHE_FILE: &str = "gvisor.json";

/// How gVisor intercepts system calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    Systrap,
    Ptrace,
    Kvm,
}

impl Platform {
    pub const ALL: [Self; 3] = [Self::Systrap, Self::Ptrace, Self::Kvm];

    /// Returns the name that studies and `runsc --platform` use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Systrap => "systrap",
            Self::Ptrace => "ptrace",
            Self::Kvm => "kvm",
        }
    }
}

/// How a trial ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub platform: Platform,
    pub usable: bool,
    /// Such as `a sandbox runs after 180 ms`, or what failed.
    pub detail: String,
}

/// The cached outcomes, and the host and program that they hold for.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CachedOutcomes {
    /// `/proc/sys/kernel/random/boot_id` of the host.
    boot: String,
    program: PathBuf,
    /// Size and modification time of the program, which differ between builds.
    build: (u64, u64),
    outcomes: Vec<Outcome>,
}

impl CachedOutcomes {
    /// Reads the outcomes for this program and this boot of the host; none if there are no others.
    fn read(cache: &Path, program: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let data = fs::metadata(program).ok();
        let changed = data.as_ref().and_then(|data| data.modified().ok());
        let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let size = data.map_or(0, |data| data.len());
        let build = (size, changed.map_or(0, |time| time.as_secs()));
        let (boot, program) = (boot.trim().to_string(), program.to_path_buf());
        let fresh = Self { boot, program, build, outcomes: Vec::new() };
        let same = |kept: &Self| {
            (&kept.boot, &kept.program, kept.build) == (&fresh.boot, &fresh.program, fresh.build)
        };
        outcome_cache::read(cache, CACHE_FILE).filter(same).unwrap_or(fresh)
    }
}

/// Where a trial runs, and where its outcome is cached.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlatformTrial<'a> {
    /// The directory of the outcome cache.
    pub(crate) cache: &'a Path,
    /// A directory whose removal is in the run's journal.
    pub(crate) folder: &'a Path,
    /// The mark of the run's processes.
    pub(crate) run: &'a str,
}

impl PlatformTrial<'_> {
    /// Returns the cached outcome, or runs a trial.
    ///
    /// # Errors
    /// Fails if the directory cannot be created, or if the processes of the trial do not end when
    /// killed.
    pub(crate) fn outcome(self, program: &Path, platform: Platform) -> io::Result<Outcome> {
        let mut kept = CachedOutcomes::read(self.cache, program);
        if let Some(known) = kept.outcomes.iter().find(|known| known.platform == platform) {
            return Ok(known.clone());
        }
        let (usable, detail) = self.attempt(program, platform)?;
        let outcome = Outcome { platform, usable, detail };
        kept.outcomes.push(outcome.clone());
        outcome_cache::write(self.cache, CACHE_FILE, &kept);
        Ok(outcome)
    }

    fn attempt(self, program: &Path, platform: Platform) -> io::Result<(bool, String)> {
        let root = self.folder.join(format!("try-{}", platform.word()));
        fs::create_dir_all(&root)?;
        let began = Instant::now();
        let ended = Command::new(program)
            .arg("--root")
            .arg(&root)
            .args([&format!("--platform={}", platform.word()), "--network=none"])
            .args(["--ignore-cgroups", "do", "true"])
            .variable(RUN_VARIABLE, self.run)
            // `runsc do` creates its state directory there, and leaves its mounts in it when it is
            // killed.
            .variable("TMPDIR", &root.to_string_lossy())
            .time_limit(TRIAL_LIMIT)
            .run();
        let took = began.elapsed();
        // The sandbox and its gofer are not descendants of `runsc`.
        let left = process::kill(&processes_of(&root), KILL_LIMIT)?;
        if !left.is_empty() {
            let text = format!("sandbox processes {left:?} do not end after SIGKILL");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(match ended {
            Ok(_) => (true, format!("a sandbox runs after {} ms", took.as_millis())),
            Err(ExecError::TimedOut { .. }) => {
                (false, format!("no sandbox came up within {} s", TRIAL_LIMIT.as_secs()))
            }
            Err(error) => (false, error_line(&error)),
        })
    }
}

/// Returns the processes whose command lines name this directory, or one below it, as their root.
fn processes_of(root: &Path) -> Vec<u32> {
    let root = root.to_string_lossy().into_owned();
    let names = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| {
            String::from_utf8_lossy(word).trim_start_matches("--root=").starts_with(&root)
        })
    };
    let own = std::process::id();
    process::all().into_iter().filter(|pid| *pid != own).filter(names).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn outcome_is_cached_until_the_program_changes() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("runsc");
        let write = |text: &str| {
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let here = PlatformTrial { cache: folder.path(), folder: folder.path(), run: "test" };
        let outcome = |platform| here.outcome(&program, platform).unwrap();
        write("#!/bin/sh\ncase $3 in *=ptrace) echo no ptrace here >&2; exit 1 ;; esac\n");
        assert!(outcome(Platform::Systrap).usable);
        let failed = outcome(Platform::Ptrace);
        assert!(!failed.usable && failed.detail.contains("no ptrace here"), "{failed:?}");
        assert_eq!(outcome(Platform::Ptrace), failed);
        write("#!/bin/sh\n# another build\n");
        assert!(outcome(Platform::Ptrace).usable);
    }
}
