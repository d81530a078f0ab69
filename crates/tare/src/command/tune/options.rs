//! Converts the command line into options of the planner.

use std::path::{Path, PathBuf};

use tare_tune::plan::{Mode, Options, Plan};
use tare_tune::planner::plan;
use tare_tune::snapshot::Snapshot;

use crate::cli::{self, PlanOptions, WriteCache};
use crate::exit::{Exit, ExitWith, plan_error};

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

/// Resolves links and `..` if the path exists, as the mount table has no links.
fn absolute(path: &Path) -> String {
    let absolute = path.canonicalize().or_else(|_| std::path::absolute(path));
    absolute.unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// Returns a device's name, or its path with links resolved (`/dev/disk/by-id/...` is a link).
fn device(path: &Path) -> String {
    if path.is_absolute() { absolute(path) } else { path.display().to_string() }
}

/// Returns the host to plan for: a recorded one, or this one.
pub(super) fn snapshot(recorded: Option<&PathBuf>) -> anyhow::Result<Snapshot> {
    match recorded {
        Some(directory) => Ok(Snapshot::load(directory).exit_with(Exit::Input)?),
        None => Ok(Snapshot::take(Path::new("/"))),
    }
}

/// Plans. Errors have their exit code.
pub(super) fn plan_host(snapshot: &Snapshot, options: &Options) -> anyhow::Result<Plan> {
    plan(snapshot, options).map_err(plan_error)
}
