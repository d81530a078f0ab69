//! From the command line to what the planner understands.

use std::path::{Path, PathBuf};

use tare_tune::plan::{Mode, Options, Plan, PlanError};
use tare_tune::planner::plan;
use tare_tune::snapshot::Snapshot;

use crate::cli::{self, PlanOptions, WriteCache};
use crate::exit::{Exit, ExitWith, coded};

impl From<&PlanOptions> for Options {
    fn from(typed: &PlanOptions) -> Self {
        Self {
            nics: typed.nics.clone(),
            directories: typed.directories.iter().map(|path| absolute(path)).collect(),
            devices: typed.devices.iter().map(|path| device(path)).collect(),
            cpus: typed.cpus.clone(),
            irq_cpus: typed.irq_cpus.clone(),
            ratio: typed.ratio,
            mode: match typed.mode {
                cli::Mode::Auto => Mode::Auto,
                cli::Mode::Mq => Mode::Mq,
                cli::Mode::Sq => Mode::Sq,
                cli::Mode::SqSplit => Mode::SqSplit,
                cli::Mode::None => Mode::None,
            },
            like_perftune: typed.like.is_some(),
            rx_queues: typed.rx_queues,
            arfs: typed.arfs,
            write_back_cache: typed.write_cache.map(|cache| cache == WriteCache::Back),
            ring: typed.ring,
            coalesce_us: typed.coalesce,
            tcp_memory_share: typed.tcp_memory,
            clock: typed.clock,
            only: typed.only.clone(),
            except: typed.except.clone(),
        }
    }
}

/// Without links and `..` where it is there, so that it is found among the mounts.
fn absolute(path: &Path) -> String {
    let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
    absolute.unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// A device by its name, or by its path without links: `/dev/disk/by-id/...` is one.
fn device(path: &Path) -> String {
    if path.is_absolute() { absolute(path) } else { path.display().to_string() }
}

/// The host to plan for: the living one, or a recorded one.
pub(super) fn snapshot(recorded: Option<&PathBuf>) -> anyhow::Result<Snapshot> {
    match recorded {
        Some(directory) => Ok(Snapshot::load(directory).exit_with(Exit::Input)?),
        None => Ok(Snapshot::take(Path::new("/"))),
    }
}

/// Plans, with the exit code that fits what stands in the way.
pub(super) fn planned(snapshot: &Snapshot, options: &Options) -> anyhow::Result<Plan> {
    plan(snapshot, options).map_err(unplanned)
}

/// Why no plan was made, with its exit code.
pub(super) fn unplanned(error: PlanError) -> anyhow::Error {
    let exit = match error {
        PlanError::UnknownKnob { .. } => Exit::Usage,
        PlanError::Topology(_) => Exit::Host,
        _ => Exit::Failure,
    };
    coded(error, exit)
}
