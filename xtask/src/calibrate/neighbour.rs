//! A neighbour process outside of the study that burns half of a CPU in bursts.
//!
//! It runs this program, pinned by `taskset`. It ends when its standard input closes, so that it
//! also ends if its parent is killed.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// The length of a burst, and of the pause after it. A slice of 200 ms holds five such pairs.
const BURST: Duration = Duration::from_millis(20);

/// The command of `xtask` that runs the neighbour.
pub(crate) const WORD: &str = "neighbour";

/// A running neighbour. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Neighbour(Child);

impl Neighbour {
    pub(crate) fn start(cpu: &str) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let child = Command::new("taskset")
            .args(["--cpu-list", cpu])
            .arg(program)
            .arg(WORD)
            .stdin(Stdio::piped())
            .spawn()
            .context("cannot start a neighbour with taskset (package util-linux)")?;
        Ok(Self(child))
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        // Both calls fail only if it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Burns CPU in bursts until standard input closes.
pub(crate) fn run() -> anyhow::Result<()> {
    let owner = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    while !owner.is_finished() {
        let end = Instant::now() + BURST;
        while Instant::now() < end {
            std::hint::spin_loop();
        }
        std::thread::sleep(BURST);
    }
    Ok(())
}
