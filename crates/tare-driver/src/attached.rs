//! Why a driver cannot load an attached system: it must keep its rows apart from those of the user,
//! or write nothing.

/// Why a driver cannot load an attached system.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachedError {
    #[error(
        "the driver {driver} cannot keep its rows apart from yours in an attached system; write \
         driver = \"tare-load\" (CQL, Redis) or \"pgbench\""
    )]
    NotApart { driver: &'static str },
    #[error(
        "an attached memcached would drop items of yours for those of the load; Tare does not load it"
    )]
    Memcached,
    #[error(
        "read_only = true: Redis has no keys of yours that tare-load could read; leave it out, and the \
         load gets keys of its own, which are removed at the end"
    )]
    NoKeys,
    #[error(
        "read_only = true: workload {workload:?} has no table of yours; write workload = \"mine.toml\" \
         (docs/reference/load-spec.md), with reads only"
    )]
    NoTable { workload: String },
    #[error(
        "read_only = true: workload {workload:?} writes; leave only read, slice and scan in it"
    )]
    Writes { workload: String },
    #[error(
        "read_only = true: workload {workload:?} of pgbench needs a script of yours, and no setup"
    )]
    NoScript { workload: String },
    #[error(
        "workload {workload:?}: a script without setup reads tables of yours, which a database of \
         Tare's own does not have; set read_only = true, or write setup"
    )]
    NoSetup { workload: String },
}
