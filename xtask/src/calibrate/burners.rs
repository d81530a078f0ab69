//! Processes outside of the study that burn CPU without a pause, on any CPU: the neighbours of a
//! busy host.
//!
//! They run this program in a session of their own, and end when their standard input closes, so
//! that they also end if their parent is killed. A kill may leave the empty cgroup
//! `tare-burners-PID`.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use tare_host::cgroup::{Cgroup, Layout};

/// The command of `xtask` that runs one burner.
pub(crate) const WORD: &str = "burner";

/// Where burners run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a session of their own.
    Session,
    /// In a cgroup of their own.
    Cgroup,
    /// In a session of their own, at nice 10.
    Nice,
}

/// Running burners. Dropping them ends them.
#[derive(Debug, Default)]
pub(crate) struct Burners {
    children: Vec<Child>,
    group: Option<Cgroup>,
}

impl Burners {
    pub(crate) fn start(count: u32, place: Place) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut burners = Self::default();
        if place == Place::Cgroup {
            let layout = Layout::read(Path::new("/proc"))?;
            let group = layout.cpu_group(&format!("tare-burners-{}", std::process::id()));
            group.make_folders()?;
            burners.group = Some(group);
        }
        for _ in 0..count {
            let mut command = Command::new("setsid");
            if place == Place::Nice {
                command.args(["nice", "-n", "10"]);
            }
            // Started by this program, `setsid` is no group leader and so does not fork.
            let child = command.arg(&program).arg(WORD).stdin(Stdio::piped()).spawn();
            let child = child.context("cannot start a burner with setsid (package util-linux)")?;
            let pid = child.id();
            burners.children.push(child);
            burners.group.as_ref().map_or(Ok(()), |group| group.add(pid))?;
        }
        Ok(burners)
    }
}

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Both calls fail only if it has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Some(group) = &self.group {
            group.remove_empty();
        }
    }
}

/// Burns CPU until standard input closes.
pub(crate) fn run() -> anyhow::Result<()> {
    let owner = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    while !owner.is_finished() {
        (0..10_000).for_each(|_| std::hint::spin_loop());
    }
    Ok(())
}
