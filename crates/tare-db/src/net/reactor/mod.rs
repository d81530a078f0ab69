//! The reactor: one engine per shard that carries out the shard's network and file I/O and reports
//! the results as [`Event`]s. The engine is an enum, not a trait object, so that the hot path is
//! inlined.

mod epoll;
mod file_threads;
mod read_batcher;
#[cfg(feature = "simulation")]
mod simulated;
#[allow(unsafe_code, reason = "submission entries and provided buffers are raw memory")]
mod uring;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use epoll::Epoll;
#[cfg(feature = "simulation")]
pub(crate) use simulated::Simulated;
#[cfg(feature = "simulation")]
pub use simulated::{Arrived, Broken, Delivery, Machine, Socket};
use uring::Uring;
pub use uring::UringError;

use crate::node::config::IoChoice;
use crate::node::directory::{FileDone, FileWork};

/// File operations that one shard may have under way. The store keeps the others.
pub(crate) const FILE_OPS_MAX: usize = 128;

/// A connection on one shard: a slot and its generation, so that a late answer never reaches the
/// next connection in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ConnId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A result that the engine reports.
#[derive(Debug)]
pub(crate) enum Event {
    Accepted(OwnedFd),
    /// Bytes have come. [`Engine::read`] fetches them: from a socket before the next iteration,
    /// from buffers in their order.
    Input(ConnId, Source),
    /// The kernel has all that was sent, so that the connection can send again.
    Sent(ConnId),
    /// The peer has closed the connection, or it failed. The engine waits for [`Engine::close`].
    Hangup(ConnId),
    /// Another thread has posted a message to the shard, or the server stops.
    Woken,
    /// An operation on a file has ended.
    File(FileDone),
}

/// The place of the bytes of an [`Event::Input`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// In the socket.
    Socket,
    /// In a provided buffer.
    Buffer { id: u16, length: u32 },
}

/// How long an iteration may wait for events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    Poll,
    /// Until an event comes, for at most this time.
    Sleep(Duration),
}

/// The engine in use, and why the other one is not.
#[derive(Debug)]
pub(crate) struct EngineChoice {
    pub(crate) engine: &'static str,
    /// Why io_uring is not in use, with the errno if there is one.
    pub(crate) why: String,
}

pub(crate) enum Engine {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
    #[cfg(feature = "simulation")]
    Simulated(Box<Simulated>),
}

impl Engine {
    /// Makes the engine that the configuration asks for, on the thread that will use it.
    pub(crate) fn new(
        choice: IoChoice,
        wakeup: Arc<OwnedFd>,
    ) -> Result<(Self, EngineChoice), ReactorError> {
        let why = match choice {
            IoChoice::Epoll => "asked for".to_string(),
            IoChoice::Auto | IoChoice::Uring => match Uring::new(Arc::clone(&wakeup)) {
                Ok(uring) => {
                    let asked = choice == IoChoice::Uring;
                    let why = if asked { "asked for" } else { "io_uring is available" };
                    let chosen = EngineChoice { engine: "io_uring", why: why.into() };
                    return Ok((Self::Uring(Box::new(uring)), chosen));
                }
                Err(error) if choice == IoChoice::Uring => return Err(error.into()),
                Err(error) => error.explain(),
            },
        };
        let epoll = Epoll::new(wakeup).map_err(|source| ReactorError::Epoll { source })?;
        Ok((Self::Epoll(Box::new(epoll)), EngineChoice { engine: "epoll", why }))
    }
}

/// Why a reactor cannot be made, or has failed.
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
                    #[cfg(feature = "simulation")]
                    Self::Simulated(engine) => engine.$name($($arg),*),
                }
            })*
        }
    };
}

delegate! {
    /// Starts to accept connections.
    fn listen(&mut self, listener: OwnedFd) -> io::Result<()>;
    /// Accepts again after the process had no descriptors left.
    fn accept_again(&mut self);
    /// Stops accepting.
    fn stop_listening(&mut self);
    /// Takes over a connection and starts to receive on it.
    fn add(&mut self, fd: OwnedFd) -> io::Result<ConnId>;
    /// Appends the bytes of an input event to `into`. Returns false if the peer has closed the
    /// connection.
    fn read(&mut self, conn: ConnId, source: Source, into: &mut Vec<u8>) -> bool;
    /// Sends `from` and leaves it empty. If an earlier send is still under way, `from` stays as it
    /// is, and [`Event::Sent`] reports when to try again. Returns false if the peer has closed the
    /// connection.
    fn send(&mut self, conn: ConnId, from: &mut Vec<u8>) -> bool;
    /// Whether a part of the bytes to send has not reached the kernel yet.
    fn is_sending(&mut self, conn: ConnId) -> bool;
    /// Frees the buffer that a connection keeps for sending, unless it is in use.
    fn trim(&mut self, conn: ConnId);
    /// Stops receiving on a connection, which holds up its peer.
    fn pause(&mut self, conn: ConnId);
    /// Receives again.
    fn resume(&mut self, conn: ConnId);
    /// Closes a connection. The shard forgets it at once; the engine waits for the kernel.
    fn close(&mut self, conn: ConnId);
    /// Whether fewer than [`FILE_OPS_MAX`] operations on files are under way.
    fn has_file_room(&mut self) -> bool;
    /// Carries out an operation on a file. An operation that cannot begin ends here.
    fn file(&mut self, work: FileWork) -> Option<FileDone>;
    /// Submits new operations and collects events.
    fn poll(&mut self, wait: Wait, events: &mut Vec<Event>) -> io::Result<()>;
}

#[cfg(test)]
mod tests;
