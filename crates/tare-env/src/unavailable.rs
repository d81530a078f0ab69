//! What a host lacks, for every part that says so.

/// Why a runtime or a layer cannot be used on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot run here: {why}; {remedy}")]
pub struct Unavailable {
    pub what: String,
    pub why: String,
    /// How to get it.
    pub remedy: String,
}
