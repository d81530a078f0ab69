//! Why a load could not be made.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::pacing::ScheduleError;
use crate::rows::ShapeError;

/// Why a load could not be made. Operations that fail are counted, not errors of this kind.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("{address} did not answer within {waited_s:.1} s")]
    NotReady { address: SocketAddr, waited_s: f64, source: Box<LoadError> },
    #[error("cannot send {what} to {address} or read the answer")]
    Exchange { address: SocketAddr, what: &'static str, source: io::Error },
    #[error("{address} closed the connection instead of answering {what}")]
    Closed { address: SocketAddr, what: &'static str },
    #[error("{address} did not answer {what} with the CQL protocol, version 4: {reason}")]
    Protocol { address: SocketAddr, what: &'static str, reason: String },
    #[error("{address} asks for a login ({authenticator}), which tare load does not do")]
    Login { address: SocketAddr, authenticator: String },
    #[error("{address} refused {what}: {message} (error {code:#06x})")]
    Refused { address: SocketAddr, what: &'static str, code: i32, message: String },
    #[error("every connection to {address} broke during the load: {reason}")]
    NoConnection { address: SocketAddr, reason: String },
    #[error("cannot fill {table} at {address}: {count} of the writes failed, the first: {first}")]
    Populate { address: SocketAddr, table: String, count: u64, first: String },
    #[error("interrupted while {table} was filled")]
    PopulateInterrupted { table: String },
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error("the load has no CPU to run on; name at least one")]
    NoCpus,
    #[error("cannot run on CPU {cpu}; is it online and in this process's cpuset?")]
    Pin { cpu: u32, source: io::Error },
    #[error("cannot start a thread of the load")]
    Thread { source: io::Error },
    #[error("cannot make the thread's event queue or timer")]
    EventQueue { source: io::Error },
    #[error("the load's {what} is {value}; it must be {expected}")]
    Setting { what: &'static str, value: String, expected: &'static str },
    #[error("cannot write the histogram log {path}", path = path.display())]
    HistogramLog { path: PathBuf, source: io::Error },
    #[error("cannot write a line of progress")]
    Output { source: io::Error },
    #[error("cannot read orders")]
    Input { source: io::Error },
}
