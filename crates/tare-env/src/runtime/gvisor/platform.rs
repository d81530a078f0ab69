//! gVisor's platforms: how the calls of the system are caught. Which of them work on a host is
//! found out by starting a sandbox that does nothing, with a time limit.
//!
//! That /dev/kvm can be opened says little: on a host that is itself a guest a sandbox on `kvm` may
//! never come up, and would burn a CPU until somebody kills it. So each platform is tried once for
//! each boot of the host and each build of `runsc`; the outcome is kept in the state directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use tare_host::exec::{Command, ExecError};
use tare_host::{RUN_VARIABLE, error_line, process};

/// A sandbox is up within half a second on an idle host.
const TRY_LIMIT: Duration = Duration::from_secs(10);

/// How long what is left of a try may take to end when killed.
const KILL_LIMIT: Duration = Duration::from_secs(5);

/// How the system's calls are caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    Systrap,
    Ptrace,
    Kvm,
}

impl Platform {
    pub const ALL: [Self; 3] = [Self::Systrap, Self::Ptrace, Self::Kvm];

    /// As a study and `runsc --platform` write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Systrap => "systrap",
            Self::Ptrace => "ptrace",
            Self::Kvm => "kvm",
        }
    }
}

/// How a try ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub platform: Platform,
    pub usable: bool,
    /// `a sandbox runs after 180 ms`, or what went wrong.
    pub detail: String,
}

/// The outcomes that are kept, and for what they hold.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct CachedOutcomes {
    /// `/proc/sys/kernel/random/boot_id` of the host.
    boot: String,
    program: PathBuf,
    /// Size and time of change of the program: another build is another case.
    build: (u64, u64),
    outcomes: Vec<Outcome>,
}

impl CachedOutcomes {
    /// What holds for this program on this boot; no outcomes where nothing is known.
    fn read(state: &Path, program: &Path) -> Self {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let data = fs::metadata(program).ok();
        let changed = data.as_ref().and_then(|data| data.modified().ok());
        let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let size = data.map_or(0, |data| data.len());
        let build = (size, changed.map_or(0, |time| time.as_secs()));
        let (boot, program) = (boot.trim().to_string(), program.to_path_buf());
        let fresh = Self { boot, program, build, outcomes: Vec::new() };
        let text = fs::read_to_string(path(state)).unwrap_or_default();
        match serde_json::from_str::<Self>(&text) {
            Ok(kept)
                if (&kept.boot, &kept.program, kept.build)
                    == (&fresh.boot, &fresh.program, fresh.build) =>
            {
                kept
            }
            _ => fresh,
        }
    }
}

/// Where outcomes are kept.
fn path(state: &Path) -> PathBuf {
    state.join("gvisor.json")
}

/// Where a try is made: a directory of the run, which goes with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlatformTrial<'a> {
    /// The state directory, where outcomes are kept.
    pub(crate) state: &'a Path,
    /// A directory whose removal is in the run's journal.
    pub(crate) folder: &'a Path,
    /// The mark of the run's processes.
    pub(crate) run: &'a str,
}

impl PlatformTrial<'_> {
    /// The outcome that is known, or that of a try now.
    ///
    /// # Errors
    /// When the directory cannot be made, or what a try left cannot be killed.
    pub(crate) fn outcome(self, program: &Path, platform: Platform) -> io::Result<Outcome> {
        let mut kept = CachedOutcomes::read(self.state, program);
        if let Some(known) = kept.outcomes.iter().find(|known| known.platform == platform) {
            return Ok(known.clone());
        }
        let (usable, detail) = self.attempt(program, platform)?;
        let outcome = Outcome { platform, usable, detail };
        kept.outcomes.push(outcome.clone());
        // Should it not be kept, the next run tries again.
        if let Ok(text) = serde_json::to_string(&kept) {
            let _ = fs::write(path(self.state), text + "\n");
        }
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
            // `runsc do` keeps its state in a directory of its own there, and what it mounts in it
            // when it is killed.
            .variable("TMPDIR", &root.to_string_lossy())
            .time_limit(TRY_LIMIT)
            .run();
        let took = began.elapsed();
        // The sandbox and its gofer are children of their own.
        let left = process::kill(&processes_of(&root), KILL_LIMIT)?;
        if !left.is_empty() {
            let text = format!("sandbox processes {left:?} do not end when killed");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        Ok(match ended {
            Ok(_) => (true, format!("a sandbox runs after {} ms", took.as_millis())),
            Err(ExecError::TimedOut { .. }) => {
                (false, format!("a sandbox does not come up within {} s", TRY_LIMIT.as_secs()))
            }
            Err(error) => (false, error_line(&error)),
        })
    }
}

/// The processes that name a root directory at or below this one on their command lines.
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
    fn an_outcome_is_kept_until_the_program_changes() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("runsc");
        let write = |text: &str| {
            fs::write(&program, text).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        };
        let here = PlatformTrial { state: folder.path(), folder: folder.path(), run: "test" };
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
