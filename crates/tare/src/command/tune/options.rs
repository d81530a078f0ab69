//! Converts the command line into options of the planner.

use std::path::{Path, PathBuf};

use tare_tune::plan::{Mode, Options, Plan};
use tare_tune::planner::plan;
use tare_tune::snapshot::Snapshot;

use crate::cli::{self, PlanOptions, WriteCache};
use crate::exit::{Exit, ExitWith, plan_error};

impl From<&PlanOptions> for Options {
    fn from(arguments: &PlanOptions) -> Self {
        Self {
            nics: arguments.nics.clone(),
            directories: arguments.directories.iter().map(|path| absolute(path)).collect(),
            devices: arguments.devices.iter().map(|path| device(path)).collect(),
            cpus: arguments.cpus.clone(),
            irq_cpus: arguments.irq_cpus.clone(),
            ratio: arguments.ratio,
            mode: match arguments.mode {
                cli::Mode::Auto => Mode::Auto,
                cli::Mode::Mq => Mode::Mq,
                cli::Mode::Sq => Mode::Sq,
                cli::Mode::SqSplit => Mode::SqSplit,
                cli::Mode::None => Mode::None,
            },
            like_perftune: arguments.like.is_some(),
            rx_queues: arguments.rx_queues,
            arfs: arguments.arfs,
            write_back_cache: arguments.write_cache.map(|cache| cache == WriteCache::Back),
            ring: arguments.ring,
            coalesce_us: arguments.coalesce,
            tcp_memory_share: arguments.tcp_memory,
            clock: arguments.clock,
            only: arguments.only.clone(),
            except: arguments.except.clone(),
            request: Vec::new(),
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
