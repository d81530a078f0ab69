//! Why a capture or a table gives no workload.

use std::io;

use tare_load::LoadError;
use tare_toml::TomlError;

/// Why a capture or a table gives no workload.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("cannot read the trace {file}")]
    Read { file: String, source: io::Error },
    #[error("the trace {file} is empty")]
    Empty { file: String },
    #[error("{file} is no packet capture: it begins neither as pcap nor as pcapng{hint}")]
    NotCapture { file: String, hint: &'static str },
    #[error("the trace {file} is damaged after {packets} packets")]
    Damaged { file: String, packets: u64 },
    #[error(
        "the trace {file} has packets of link type {number}; supported are Ethernet, Linux cooked \
         capture, loopback and raw IP"
    )]
    LinkType { file: String, number: i32 },
    #[error("the trace {file} has no TCP packets with data")]
    NoData { file: String },
    #[error(
        "the packets of {file} are cut: {cut} of {packets} lack bytes; capture whole packets \
         (tcpdump --snapshot-length=0)"
    )]
    Cut { file: String, cut: u64, packets: u64 },
    #[error("the trace {file} has neither CQL nor Redis's protocol: {found}")]
    Protocol { file: String, found: String },
    #[error(
        "the trace {file} is encrypted (TLS); capture where it is not, such as behind the proxy \
         that ends TLS, or on a port without TLS"
    )]
    Encrypted { file: String },
    #[error(
        "the trace {file} has CQL compressed with {algorithm}; only LZ4 can be read, or no \
         compression"
    )]
    Compression { file: String, algorithm: String },
    #[error("the trace {file} has no operation that a workload can repeat{left_out}")]
    NoOperations { file: String, left_out: String },
    #[error("the operations on {table} in {file} are no workload of tare load")]
    Spec { file: String, table: String, source: Box<TomlError> },
    #[error("{table} is no table of a workload: {why}")]
    Table { table: String, why: String },
    #[error("cannot sample {table}")]
    Sample { table: String, source: Box<LoadError> },
}
