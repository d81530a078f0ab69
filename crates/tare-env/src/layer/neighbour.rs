//! The neighbours layer: the command of each kind of neighbour, and the memory and disk that it may
//! use. `crate::neighbour` runs them.
//!
//! All kinds but `command` and `system` are stressors of stress-ng (stress-ng(1)). It starts one
//! process for each worker, and some stressors one more. `--timeout 0` runs it until it is killed.

use std::path::Path;

use tare_host::exec;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::{Neighbour, NeighbourKind};

use crate::unavailable::Unavailable;

/// The program of all kinds but `command` and `system`, and its package.
pub const PROGRAM: &str = "stress-ng";

/// Memory of a worker besides the memory that it is asked to use.
const WORKER_BYTES: u64 = 64 << 20;
/// Memory of stress-ng itself, and of the buffer that all its workers share, which is as large as
/// the last level cache.
const SHARED_BYTES: u64 = 1 << 30;

/// Checks whether this host has the programs of an environment's neighbours.
///
/// # Errors
/// Names the program that is missing.
pub fn check(spec: &EnvironmentSpec) -> Result<(), Unavailable> {
    for one in &spec.neighbours {
        let program = match one.kind {
            NeighbourKind::Command => one.command.first().map_or("", String::as_str),
            // Who runs a study knows the systems and drivers, and checks them.
            NeighbourKind::System => continue,
            _ => PROGRAM,
        };
        if exec::find(program).is_none() {
            let remedy = match one.kind {
                NeighbourKind::Command => "install it, or give its absolute path".to_string(),
                _ => format!("apt-get install {PROGRAM}"),
            };
            return Err(Unavailable {
                what: format!("neighbour {:?}", one.name),
                why: format!("{program} is not installed"),
                remedy,
            });
        }
    }
    Ok(())
}

/// The subcommand of Tare's program that runs another system and its load.
pub(crate) const SYSTEM_COMMAND: &str = "neighbour-system";

/// Returns the words of the command, after the program for another system, which is Tare's own.
/// `folder` is the neighbour's directory.
pub(crate) fn command(neighbour: &Neighbour, workers: u32, folder: &Path) -> Vec<String> {
    if neighbour.kind == NeighbourKind::Command {
        return neighbour.command.clone();
    }
    if let Some(system) = &neighbour.system {
        // Names and numbers are always JSON.
        let plan = serde_json::to_string(system).unwrap_or_default();
        let folder = folder.to_string_lossy().into_owned();
        return vec![SYSTEM_COMMAND.into(), "--folder".into(), folder, plan];
    }
    let workers = workers.to_string();
    let size = neighbour.size_bytes().unwrap_or(0).to_string();
    let mut words: Vec<String> = vec![PROGRAM.into()];
    let mut add = |more: &[&str]| words.extend(more.iter().map(|word| (*word).to_string()));
    match neighbour.kind {
        NeighbourKind::Cpu => {
            let percent = neighbour.load_percent.unwrap_or(100).to_string();
            add(&["--cpu", &workers, "--cpu-load", &percent]);
        }
        NeighbourKind::MemoryBandwidth => {
            add(&["--memrate", &workers, "--memrate-bytes", &size]);
            if let Some(bytes) = neighbour.rate_bytes {
                let megabytes = (bytes >> 20).max(1).to_string();
                add(&["--memrate-rd-mbs", &megabytes, "--memrate-wr-mbs", &megabytes]);
            }
        }
        // It would else choose its own CPUs.
        NeighbourKind::LastLevelCache => add(&["--cache", &workers, "--cache-no-affinity"]),
        NeighbourKind::Disk => {
            let options = "direct,wr-rnd,rd-rnd";
            add(&["--hdd", &workers, "--hdd-bytes", &size, "--hdd-opts", options]);
        }
        NeighbourKind::Network => add(&["--sock", &workers]),
        NeighbourKind::PageCache => {
            add(&["--readahead", &workers, "--readahead-bytes", &size]);
        }
        NeighbourKind::SystemCalls => add(&["--get", &workers]),
        NeighbourKind::Command | NeighbourKind::System => {}
    }
    let folder = folder.to_string_lossy();
    add(&["--timeout", "0", "--temp-path", &*folder, "--quiet"]);
    words
}

/// Returns the most memory that all processes of a neighbour may use, its page cache included;
/// `None` for no limit: the page cache of a neighbour that fills it is limited by its files.
pub(crate) fn memory_max(neighbour: &Neighbour, workers: u32) -> Option<u64> {
    let each = match neighbour.kind {
        NeighbourKind::Command | NeighbourKind::PageCache => return None,
        NeighbourKind::System => return neighbour.size_bytes(),
        NeighbourKind::MemoryBandwidth => 2 * neighbour.size_bytes().unwrap_or(0),
        _ => 0,
    };
    Some(SHARED_BYTES + u64::from(workers) * (each + WORKER_BYTES))
}

/// Returns the memory that it asks for, in bytes.
pub(crate) fn memory_bytes(neighbour: &Neighbour, workers: u32) -> u64 {
    match neighbour.kind {
        NeighbourKind::MemoryBandwidth | NeighbourKind::System => {
            u64::from(workers) * neighbour.size_bytes().unwrap_or(0)
        }
        _ => 0,
    }
}

/// Returns the size of its files, in bytes.
pub(crate) fn disk_bytes(neighbour: &Neighbour, workers: u32) -> u64 {
    match neighbour.kind.uses_disk() {
        true => u64::from(workers) * neighbour.size_bytes().unwrap_or(0),
        false => 0,
    }
}
