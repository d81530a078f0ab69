//! A neighbour that is no part of a study and burns half of a CPU, in bursts.
//!
//! It is this program again, pinned by `taskset`. It ends when its standard input does, so
//! also when its parent is killed.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Burns for this long, rests for as long. A slice of 200 ms holds five such pairs.
const BURST: Duration = Duration::from_millis(20);

/// The word by which this program is started as a neighbour.
pub(crate) const WORD: &str = "neighbour";

/// A running neighbour. Ends when dropped.
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
        // It has ended already if it cannot be killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Is the neighbour: burns until standard input ends.
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
