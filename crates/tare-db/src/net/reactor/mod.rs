//! The reactor: one engine per shard that carries out the shard's network and file I/O and reports
//! what happened as [`Event`]s. An enum of two engines, not a trait object, so that the hot path
//! is inlined.

mod epoll;
mod helper;
mod read_batcher;
#[allow(unsafe_code, reason = "submission entries and provided buffers are raw memory")]
mod uring;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use epoll::Epoll;
use uring::Uring;
pub use uring::UringError;

use crate::node::config::IoChoice;
use crate::node::directory::{Done, Work};

/// Operations on files that one shard has under way at most. Beyond it the store keeps them.
pub(crate) const FILE_OPS_MAX: usize = 128;

/// A connection on one shard: slot in the low half, generation in the high one, so that an answer
/// that comes late never reaches the next connection in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    Accepted(OwnedFd),
    /// Bytes have come; fetch them with [`Engine::read`]: those of a socket before the next turn,
    /// those of a buffer in their order.
    Input(ConnId, Source),
    /// What was sent is with the kernel; the connection can send again.
    Sent(ConnId),
    /// The peer has gone, or the connection failed. The engine waits for [`Engine::close`].
    Hangup(ConnId),
    /// Another thread has put something into the shard's mailbox, or the server stops.
    Woken,
    /// An operation on a file has ended.
    File(Done),
}

/// Where the bytes of an [`Event::Input`] are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// In the socket.
    Socket,
    /// In a provided buffer.
    Buffer { id: u16, length: u32 },
}

/// Whether a turn may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Look, and come back at once.
    Poll,
    /// Sleep until something happens, at most so long.
    Sleep(Duration),
}

/// Which engine is in use, and why not the other.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) engine: &'static str,
    /// Why io_uring is not in use, with the errno where there is one.
    pub(crate) why: String,
}

pub(crate) enum Engine {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
}

impl Engine {
    /// Makes the engine that is asked for, on the thread that will use it.
    pub(crate) fn new(
        choice: IoChoice,
        wakeup: Arc<OwnedFd>,
    ) -> Result<(Self, Chosen), ReactorError> {
        let why = match choice {
            IoChoice::Epoll => "asked for".to_string(),
            IoChoice::Auto | IoChoice::Uring => match Uring::new(Arc::clone(&wakeup)) {
                Ok(uring) => {
                    let asked = choice == IoChoice::Uring;
                    let why = if asked { "asked for" } else { "io_uring is available" };
                    let chosen = Chosen { engine: "io_uring", why: why.into() };
                    return Ok((Self::Uring(Box::new(uring)), chosen));
                }
                Err(error) if choice == IoChoice::Uring => return Err(error.into()),
                Err(error) => error.explain(),
            },
        };
        let epoll = Epoll::new(wakeup).map_err(|source| ReactorError::Epoll { source })?;
        Ok((Self::Epoll(Box::new(epoll)), Chosen { engine: "epoll", why }))
    }
}

/// Why there is no reactor.
#[derive(Debug, thiserror::Error)]
pub enum ReactorError {
    #[error("cannot use io_uring, which was asked for; pass --io auto to fall back to epoll")]
    Uring(#[from] UringError),
    #[error("cannot set up epoll")]
    Epoll { source: io::Error },
    #[error("the reactor's wait failed")]
    Wait { source: io::Error },
}

macro_rules! delegate {
    ($($(#[$doc:meta])* fn $name:ident(&mut self $(, $arg:ident: $kind:ty)*) $(-> $out:ty)?;)*) => {
        impl Engine {
            $($(#[$doc])* #[inline]
            pub(crate) fn $name(&mut self $(, $arg: $kind)*) $(-> $out)? {
                match self {
                    Self::Uring(engine) => engine.$name($($arg),*),
                    Self::Epoll(engine) => engine.$name($($arg),*),
                }
            })*
        }
    };
}

delegate! {
    /// Starts to accept connections.
    fn listen(&mut self, listener: OwnedFd) -> io::Result<()>;
    /// Accepts again after there were no descriptors left for a while.
    fn accept_again(&mut self);
    /// Stops accepting.
    fn stop_listening(&mut self);
    /// Takes a connection over and starts to receive.
    fn add(&mut self, fd: OwnedFd) -> io::Result<ConnId>;
    /// Appends the bytes of an input event to `into`. False if the peer has gone.
    fn read(&mut self, conn: ConnId, source: Source, into: &mut Vec<u8>) -> bool;
    /// Sends `from` and leaves it empty, unless an earlier send is still under way: then it stays
    /// and [`Event::Sent`] says when to try again. False if the peer has gone.
    fn send(&mut self, conn: ConnId, from: &mut Vec<u8>) -> bool;
    /// Whether a part of what was sent is still to be handed to the kernel.
    fn is_sending(&mut self, conn: ConnId) -> bool;
    /// Gives back the buffer that a connection keeps for sending, unless it is in use.
    fn trim(&mut self, conn: ConnId);
    /// Stops receiving on a connection, so that the peer is held up.
    fn pause(&mut self, conn: ConnId);
    /// Receives again.
    fn resume(&mut self, conn: ConnId);
    /// Ends a connection. The shard forgets it at once; the engine waits for the kernel.
    fn close(&mut self, conn: ConnId);
    /// Whether fewer than [`FILE_OPS_MAX`] operations on files are under way.
    fn has_file_room(&mut self) -> bool;
    /// Carries out an operation on a file; one that cannot even be begun ends here.
    fn file(&mut self, work: Work) -> Option<Done>;
    /// Submits what is to be done and collects what has happened.
    fn turn(&mut self, wait: Wait, events: &mut Vec<Event>) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
