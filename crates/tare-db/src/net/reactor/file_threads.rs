//! Threads that carry out file operations that block: all of them for the epoll engine, those on
//! names and sizes for io_uring. The first operation starts the threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::net::wakeup::signal;
use crate::node::directory::{FileDone, FileWork};

/// The threads, and the number of their operations.
pub(super) struct FileThreads {
    threads: usize,
    wakeup: Arc<OwnedFd>,
    started: Option<(Sender<FileWork>, Receiver<FileDone>)>,
    in_flight: usize,
}

impl FileThreads {
    /// Prepares so many threads, which make `wakeup` readable after each operation.
    pub(super) fn new(threads: usize, wakeup: Arc<OwnedFd>) -> Self {
        Self { threads, wakeup, started: None, in_flight: 0 }
    }

    /// Submits an operation. If no thread can be started, the operation fails at once.
    pub(super) fn submit(&mut self, work: FileWork) -> Option<FileDone> {
        let (jobs, _) = match &mut self.started {
            Some(started) => started,
            none => match start(self.threads, &self.wakeup) {
                Ok(started) => none.insert(started),
                Err(error) => return Some(work.end(Err(error))),
            },
        };
        self.in_flight += 1;
        assert!(jobs.send(work).is_ok(), "the threads end only after the engine");
        None
    }

    /// An operation that has ended, if there is one.
    #[inline]
    pub(super) fn take(&mut self) -> Option<FileDone> {
        if self.in_flight == 0 {
            return None;
        }
        let done = self.started.as_ref()?.1.try_recv().ok()?;
        self.in_flight -= 1;
        Some(done)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }
}

/// Starts the threads. It succeeds if at least one of them has started.
fn start(
    threads: usize,
    wakeup: &Arc<OwnedFd>,
) -> io::Result<(Sender<FileWork>, Receiver<FileDone>)> {
    let (jobs, work) = channel::<FileWork>();
    let (done, results) = channel();
    let work = Arc::new(Mutex::new(work));
    for number in 0..threads {
        let (work, done, wakeup) = (Arc::clone(&work), done.clone(), Arc::clone(wakeup));
        let life = move || {
            loop {
                let next = work.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let Ok(work) = next else { return };
                if done.send(work.carry_out()).is_err() {
                    return;
                }
                signal(&wakeup);
            }
        };
        let started = std::thread::Builder::new().name("files".into()).spawn(life);
        if let (Err(error), 0) = (started, number) {
            return Err(error);
        }
    }
    Ok((jobs, results))
}
