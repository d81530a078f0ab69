//! The error of a runtime or layer that this host cannot run.

/// Why a runtime or a layer cannot be used on this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot run here: {why}; {remedy}")]
pub struct Unavailable {
    pub what: String,
    pub why: String,
    /// The command or step that makes it available.
    pub remedy: String,
}
