//! The queues between shards: a bounded mailbox per shard, and a wakeup for a shard that sleeps.
//!
//! If a queue is full, the sender gets its message back and keeps it. The number of such messages
//! is bounded too, because the sender stops reading from its clients (see `siblings`).

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use rustix::event::{EventfdFlags, eventfd};

use crate::net::wakeup::signal;

/// Messages that may wait for a shard.
pub(crate) const MESSAGES_MAX: usize = 4096;

/// The senders' side of a shard's mailbox.
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

    /// Posts a message and wakes the shard if it sleeps. Returns the message if the queue is full
    /// or its shard has ended.
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

    /// Announces that the shard will sleep. The shard calls this before its last look into the
    /// queue.
    pub(crate) fn will_sleep(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Announces that the shard is awake again.
    pub(crate) fn is_awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// The descriptor that the shard's engine watches.
    pub(crate) fn wakeup(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wakeup)
    }
}
