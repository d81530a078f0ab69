//! A few threads that carry out file operations which block: all of them for the epoll engine,
//! those on names and sizes for io_uring. They are started with the first operation.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use crate::node::directory::{Done, Work};
use crate::shard::mailbox::signal;

/// The threads and what they are doing.
pub(super) struct Helper {
    threads: usize,
    wakeup: Arc<OwnedFd>,
    started: Option<(Sender<Work>, Receiver<Done>)>,
    in_flight: usize,
}

impl Helper {
    /// So many threads, which make `wakeup` readable after each operation.
    pub(super) fn new(threads: usize, wakeup: Arc<OwnedFd>) -> Self {
        Self { threads, wakeup, started: None, in_flight: 0 }
    }

    /// Has an operation carried out. Where no thread can be started it ends here, failed.
    pub(super) fn submit(&mut self, work: Work) -> Option<Done> {
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

    /// An operation that has ended.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Done> {
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

/// Starts the threads; one is enough to go on with.
fn start(threads: usize, wakeup: &Arc<OwnedFd>) -> io::Result<(Sender<Work>, Receiver<Done>)> {
    let (jobs, work) = channel::<Work>();
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
