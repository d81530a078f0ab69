//! How shards talk: a bounded queue per shard, and a wakeup for a shard that sleeps.
//!
//! A sender that meets a full queue gets its message back and keeps it; how much a shard keeps is
//! bounded in turn, because it stops reading from its clients meanwhile (see `shard`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, eventfd};

/// Messages that wait for a shard at most.
pub(crate) const MESSAGES_MAX: usize = 4096;

/// The outer side of a shard's mailbox.
#[derive(Debug)]
pub(crate) struct Mailbox<M> {
    queue: SyncSender<M>,
    sleeping: AtomicBool,
    wakeup: Arc<OwnedFd>,
}

impl<M> Mailbox<M> {
    pub(crate) fn new() -> io::Result<(Self, Receiver<M>)> {
        let (queue, messages) = sync_channel(MESSAGES_MAX);
        let wakeup = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Self { queue, sleeping: AtomicBool::new(false), wakeup }, messages))
    }

    /// Puts a message in and wakes the shard if it sleeps. A full queue, or one whose shard has
    /// ended, returns the message.
    pub(crate) fn post(&self, message: M) -> Result<(), M> {
        match self.queue.try_send(message) {
            Ok(()) => {
                self.wake();
                Ok(())
            }
            Err(TrySendError::Full(message) | TrySendError::Disconnected(message)) => Err(message),
        }
    }

    /// Wakes the shard if it sleeps.
    pub(crate) fn wake(&self) {
        // Pairs with the fence in `will_sleep`: either this sees the flag, or the shard sees the
        // message before it sleeps.
        fence(Ordering::SeqCst);
        if self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed) {
            signal(&self.wakeup);
        }
    }

    /// Called by the shard before it looks into the queue for the last time and sleeps.
    pub(crate) fn will_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Called by the shard when it is awake again.
    pub(crate) fn is_awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// The descriptor that the shard's engine watches.
    pub(crate) fn wakeup(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wakeup)
    }
}

/// Makes an eventfd readable.
pub(crate) fn signal(wakeup: &OwnedFd) {
    // It fails only if the counter is full, and then the reader is awake anyway.
    let _ = rustix::io::write(wakeup, &1u64.to_ne_bytes());
}

/// Makes an eventfd unreadable again.
pub(crate) fn drain(wakeup: &OwnedFd) {
    // It fails if there was nothing, which is what is wanted.
    let _ = rustix::io::read(wakeup, &mut [0u8; 8]);
}
