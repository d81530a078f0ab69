//! The violations that a simulation can find.

use std::fmt;

use tare_store::FileId;

/// A state that must never occur.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("an operation on {file:?} violates the contract: {why}")]
    Contract { file: FileId, why: &'static str },
    #[error("the store cannot be opened although nothing is damaged: {why}")]
    NotOpened { why: String },
    #[error("an intact file is reported as damaged: {why}; bits were flipped in [{flipped}]")]
    FalseAlarm { why: String, flipped: String },
    #[error(
        "after a restart the rows fit no number of the writes: {acknowledged} were acknowledged, \
         {written} written; with {best} of them {difference}"
    )]
    NoSuchHistory { acknowledged: usize, written: usize, best: usize, difference: String },
    #[error("a read of partition {partition} is wrong: {difference}")]
    WrongRead { partition: String, difference: String },
    #[error("a read failed without a fault: {why}")]
    FailedRead { why: String },
    #[error("a write was refused without a fault: {why}")]
    Refused { why: String },
    #[error("a write was acknowledged after the log had failed")]
    Forgiven,
    #[error("operations do not end: {under_way} under way after {turns} turns")]
    Livelock { under_way: usize, turns: usize },
    #[error("the store refused a completion: {why}")]
    Unexpected { why: String },
    #[error("an answer is wrong: {why}")]
    WrongAnswer { why: String },
    #[error("a read is wrong: {difference}")]
    WrongRow { difference: String },
    #[error("a request was refused below the limits: {message}")]
    Overloaded { message: String },
    #[error("the server closed a connection without a reason: {why}")]
    Closed { why: String },
    #[error("{waiting} requests have no answer, or a part of one")]
    NoAnswer { waiting: usize },
    #[error("{shards} shards do not stop")]
    NotStopped { shards: usize },
    #[error("a shard has ended: {why}")]
    Ended { why: String },
    #[error("all clients have left, and {connections} connections with {bytes} bytes are kept")]
    LeftOver { connections: u64, bytes: usize },
    #[error("the store panicked: {message}")]
    Panicked { message: String },
    #[error("two runs of one seed gave the hashes {first:016x} and {second:016x}")]
    NotDeterministic { first: u64, second: u64 },
}

/// A violation, with its place in the run and the command that repeats it.
#[derive(Clone, Debug)]
pub struct Failure {
    pub seed: u64,
    pub step: u64,
    pub shard: usize,
    /// The virtual time in ns.
    pub now_ns: u64,
    pub violation: Violation,
    /// The last events before it, oldest first.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "    {line}")?;
        }
        let Self { seed, step, shard, now_ns, violation, .. } = self;
        writeln!(f, "seed {seed}, step {step}, shard {shard}, {now_ns} ns: {violation}")?;
        write!(f, "repeat it: cargo xtask sim --seed {seed}")
    }
}

impl std::error::Error for Failure {}
