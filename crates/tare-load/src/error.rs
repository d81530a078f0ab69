//! Why a load could not be made.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::pacing::ScheduleError;
use crate::workload::TableDifference;

impl LoadError {
    /// Returns true if waiting and trying again may help: the server may not be up yet.
    pub(crate) fn may_pass(&self) -> bool {
        !matches!(
            self,
            Self::UnknownHost { .. }
                | Self::NoNode
                | Self::Login { .. }
                | Self::WrongLogin { .. }
                | Self::NoLz4 { .. }
                | Self::NoLogin { .. }
                | Self::Protocol { .. }
                | Self::OtherProtocol { .. }
                | Self::SpeaksTls { .. }
                | Self::Tls { .. }
                | Self::TlsAuthorities { .. }
                | Self::TlsPem { .. }
                | Self::TlsName { .. }
                | Self::TlsSetup { .. }
        )
    }

    /// Returns true if the attempt failed only because its time was over.
    pub(crate) fn is_time_out(&self) -> bool {
        match self {
            Self::Connect { source, .. } | Self::Exchange { source, .. } => {
                matches!(source.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
            }
            _ => false,
        }
    }
}

/// Why a load could not be made. Failed operations are counted and are not errors of this kind.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(
        "the nodes of the cluster have {versions} different schemas and do not agree on one; are all of them up?"
    )]
    Schema { versions: usize },
    #[error("cannot connect to {address}")]
    Connect { address: SocketAddr, source: io::Error },
    #[error("{address} did not answer within {waited_s:.1} s")]
    NotReady { address: SocketAddr, waited_s: f64, source: Box<LoadError> },
    #[error("cannot send {what} to {address} or read the answer")]
    Exchange { address: SocketAddr, what: &'static str, source: io::Error },
    #[error("{address} closed the connection instead of answering {what}{hint}")]
    Closed { address: SocketAddr, what: &'static str, hint: &'static str },
    #[error("{address} did not answer {what} with the CQL protocol, version {version}: {reason}")]
    Protocol { address: SocketAddr, what: &'static str, version: u8, reason: String },
    #[error("{address} answered {what} with {reason}; does it speak another protocol?")]
    OtherProtocol { address: SocketAddr, what: &'static str, reason: String },
    #[error("{address} does not serve yet: {message}")]
    NotServing { address: SocketAddr, message: String },
    #[error("the protocol of {address} has no login; leave out --user")]
    NoLogin { address: SocketAddr },
    #[error("cannot find the host {host}; is its name right?")]
    UnknownHost { host: String, source: io::Error },
    #[error("no node was named to connect to")]
    NoNode,
    #[error("{address} asks for a login ({authenticator}); give --user and --password-file")]
    Login { address: SocketAddr, authenticator: String },
    #[error("{address} refused the login of {user:?}: {message}")]
    WrongLogin { address: SocketAddr, user: String, message: String },
    #[error("{address} does not offer LZ4; load it without --lz4")]
    NoLz4 { address: SocketAddr },
    #[error(
        "the kernel does not give times of packets (SO_TIMESTAMPING); load without --kernel-times"
    )]
    KernelTimes { source: io::Error },
    #[error(
        "{address} speaks TLS; name the trusted authorities with --tls-ca, or accept any certificate with --tls-insecure"
    )]
    SpeaksTls { address: SocketAddr },
    #[error(
        "the TLS handshake with {address} failed: {reason}; does it speak TLS, and is its certificate trusted?"
    )]
    Tls { address: SocketAddr, reason: rustls::Error },
    #[error("cannot read the trusted authorities in {path}: {reason}", path = path.display())]
    TlsAuthorities { path: PathBuf, reason: String },
    #[error("cannot read the certificates of the trusted authorities: {reason}")]
    TlsPem { reason: String },
    #[error("{name:?} cannot be the name of a TLS server")]
    TlsName { name: String },
    #[error("cannot set up TLS")]
    TlsSetup { source: rustls::Error },
    #[error("{address} refused {what}: {message} (error {code:#06x})")]
    Refused { address: SocketAddr, what: &'static str, code: i32, message: String },
    #[error(
        "{address} refused to prepare {statement:?}: {message}; is the table there, and are its columns those of the workload? (error {code:#06x})"
    )]
    Prepare { address: SocketAddr, statement: String, code: i32, message: String },
    #[error("there is no table {table} at {address}; fill it first: --populate")]
    NoTable { address: SocketAddr, table: String },
    #[error(
        "the table {table} at {address} is not that of the workload: {difference}; drop it, or give the workload a table of another name"
    )]
    OtherTable { address: SocketAddr, table: String, difference: Box<TableDifference> },
    #[error("every connection to {address} broke during the load: {reason}")]
    NoConnection { address: SocketAddr, reason: String },
    #[error("cannot fill {table} at {address}: {count} of the writes failed, the first: {first}")]
    Populate { address: SocketAddr, table: String, count: u64, first: String },
    #[error("interrupted while {table} was filled")]
    PopulateInterrupted { table: String },
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
}
