//! A running `perf record`: its files in memory, its pipe for orders, and its end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{Pid, Signal, kill_process};

use super::{ORDER_TIMEOUT, StacksError};

/// A `perf record` that has been started.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) child: Child,
    pub(super) data: File,
    pub(super) stderr: File,
    pub(super) orders: PipeWriter,
    pub(super) answers: PipeReader,
    // perf opens the other ends by their path while these are open.
    pub(super) _far: (PipeReader, PipeWriter),
    pub(super) parts: HashMap<u32, &'static str>,
    /// The edges of the slice by `CLOCK_MONOTONIC`, in ns.
    pub(super) window: (u64, u64),
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both calls fail if the process has ended, which is the usual case.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// Sends an order to perf and waits until perf has executed it.
    pub(super) fn order(&mut self, order: &'static str) -> Result<(), StacksError> {
        let failed = |source| StacksError::Channel { step: "write an order", source };
        self.orders.write_all(format!("{order}\n").as_bytes()).map_err(failed)?;
        let until = Instant::now() + ORDER_TIMEOUT;
        let mut answer = [0; 16];
        loop {
            let step = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let mut polled = [PollFd::new(&self.answers, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&step)).unwrap_or(0);
            if ready > 0 {
                // The answer to an order is `ack`, a line break and a zero byte. Only one order is
                // in progress at a time.
                let failed = |source| StacksError::Channel { step: "read an answer", source };
                return self.answers.read(&mut answer).map(drop).map_err(failed);
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(StacksError::Ended { status, stderr: text_of(&mut self.stderr) });
            }
            if Instant::now() >= until {
                return Err(StacksError::Silent { order });
            }
        }
    }

    /// Ends `perf record` with SIGINT, so that it completes its file.
    pub(super) fn stop(&mut self) -> Result<(), StacksError> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // The wait below handles a process that has already ended.
            let _ = kill_process(pid, Signal::INT);
        }
        let spawn = |source| StacksError::Spawn { step: "record", source };
        match wait(&mut self.child, ORDER_TIMEOUT).map_err(spawn)? {
            None => Err(StacksError::Silent { order: "stop" }),
            // The exit status does not matter: the signal ended the process.
            Some(_) => Ok(()),
        }
    }
}

/// The path by which a child finds a descriptor of this process.
pub(super) fn path_of(fd: &impl AsRawFd) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd())
}

pub(super) fn memory_file(name: &'static str) -> Result<File, StacksError> {
    let made = memfd_create(name, MemfdFlags::CLOEXEC);
    let failed = |error: rustix::io::Errno| StacksError::Channel {
        step: "create a memory file",
        source: error.into(),
    };
    made.map(File::from).map_err(failed)
}

pub(super) fn channel() -> Result<(PipeReader, PipeWriter), StacksError> {
    io::pipe().map_err(|source| StacksError::Channel { step: "create a pipe", source })
}

pub(super) fn text_of(file: &mut File) -> String {
    let mut text = Vec::new();
    // A log that cannot be read is not shown.
    let _ = file.rewind().and_then(|()| file.read_to_end(&mut text));
    let text = String::from_utf8_lossy(&text);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" | ")
}

/// Waits until a child ends. `None` if it has not ended within `limit`.
pub(super) fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
