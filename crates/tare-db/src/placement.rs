//! Which CPUs the shards run on, and whether they poll.
//!
//! A shard polls when its CPU is its own. That is taken to be so when the process was given a
//! strict part of the online CPUs (a cpuset or an affinity mask) and at least one per shard. On
//! CPUs that anyone may use it sleeps in the kernel and the scheduler places it.

use std::path::Path;

use tare_std::cpus::CpuSet;

use crate::config::{Choice, Config};

/// Where the shards run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) shards: usize,
    /// The CPUs that may be used.
    pub(crate) cpus: CpuSet,
    /// The CPU of each shard; empty if the kernel places them.
    pub(crate) pinned: Vec<u32>,
    pub(crate) polling: bool,
    pub(crate) why: String,
}

/// Why shards cannot be placed.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    #[error("cannot read which CPUs the process may use")]
    Affinity { source: std::io::Error },
    #[error("cannot use CPUs {asked}: the process may use {allowed} only")]
    NotAllowed { asked: CpuSet, allowed: CpuSet },
    #[error(
        "{shards} shards cannot each poll a CPU of {cpus}; ask for fewer shards or let them sleep (--overprovisioned yes)"
    )]
    TooFew { shards: usize, cpus: CpuSet },
    #[error("a server needs at least one shard and at least one CPU")]
    None,
    #[error("{shards} shards are more than the limit of {limit}")]
    TooMany { shards: usize, limit: usize },
}

/// Shards of one server at most.
pub(crate) const SHARDS_MAX: usize = 256;

/// Places the shards on the CPUs that the process may use and that are online.
pub(crate) fn place(
    config: &Config,
    allowed: &CpuSet,
    online: &CpuSet,
) -> Result<Placement, PlacementError> {
    let cpus = match &config.cpus {
        Some(asked) if !asked.is_subset(allowed) => {
            let (asked, allowed) = (asked.clone(), allowed.clone());
            return Err(PlacementError::NotAllowed { asked, allowed });
        }
        Some(asked) => asked.clone(),
        None => allowed.clone(),
    };
    let shards = config.smp.unwrap_or(cpus.len());
    if shards == 0 || cpus.is_empty() {
        return Err(PlacementError::None);
    }
    if shards > SHARDS_MAX {
        return Err(PlacementError::TooMany { shards, limit: SHARDS_MAX });
    }
    let own = cpus.len() < online.len() && cpus.is_subset(online);
    let enough = cpus.len() >= shards;
    let (polling, why) = match config.overprovisioned {
        Choice::Yes => (false, "--overprovisioned yes".to_string()),
        Choice::No if !enough => return Err(PlacementError::TooFew { shards, cpus }),
        Choice::No => (true, "--overprovisioned no".to_string()),
        Choice::Auto if !enough => (false, format!("{shards} shards share CPUs {cpus}")),
        Choice::Auto if own => {
            (true, format!("CPUs {cpus} of {online} were given to this process"))
        }
        Choice::Auto => (false, format!("CPUs {cpus} are all that are online: others use them")),
    };
    let pinned = if polling { cpus.iter().take(shards).collect() } else { Vec::new() };
    Ok(Placement { shards, cpus, pinned, polling, why })
}

/// The CPUs in the affinity mask of this process, which its cpuset bounds.
pub(crate) fn allowed() -> Result<CpuSet, PlacementError> {
    let mask = rustix::thread::sched_getaffinity(None)
        .map_err(|error| PlacementError::Affinity { source: error.into() })?;
    let highest = u32::try_from(rustix::thread::CpuSet::MAX_CPU).unwrap_or(u32::MAX);
    Ok((0..highest).filter(|&cpu| mask.is_set(cpu as usize)).collect())
}

/// The CPUs that are online; where the kernel does not say, those that the process may use.
pub(crate) fn online(allowed: &CpuSet) -> CpuSet {
    std::fs::read_to_string(Path::new("/sys/devices/system/cpu/online"))
        .ok()
        .and_then(|text| CpuSet::parse_list(&text).ok())
        .filter(|online| !online.is_empty())
        .unwrap_or_else(|| allowed.clone())
}

/// Binds the calling thread to one CPU.
pub(crate) fn pin(cpu: u32) -> std::io::Result<()> {
    let mut mask = rustix::thread::CpuSet::new();
    mask.set(cpu as usize);
    Ok(rustix::thread::sched_setaffinity(None, &mask)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuSet {
        CpuSet::parse_list(text).unwrap()
    }

    #[test]
    fn shards_poll_on_cpus_of_their_own() {
        let check = |allowed: &str, smp: Option<usize>, choice, expect: (usize, bool, &[u32])| {
            let config = Config { smp, overprovisioned: choice, ..Config::new("d") };
            let placement = place(&config, &list(allowed), &list("0-3")).unwrap();
            let got = (placement.shards, placement.polling, &placement.pinned[..]);
            assert_eq!(got, expect, "{allowed} {smp:?} {choice:?}");
        };
        check("0-3", None, Choice::Auto, (4, false, &[]));
        check("0-3", Some(1), Choice::Auto, (1, false, &[]));
        check("2-3", None, Choice::Auto, (2, true, &[2, 3]));
        check("2-3", Some(1), Choice::Auto, (1, true, &[2]));
        check("1", Some(2), Choice::Auto, (2, false, &[]));
        check("1", None, Choice::Yes, (1, false, &[]));
        check("0-3", Some(1), Choice::No, (1, true, &[0]));
    }

    #[test]
    fn what_cannot_be_placed_is_refused() {
        let error =
            |config: Config| place(&config, &list("0-1"), &list("0-3")).unwrap_err().to_string();
        let cpus = Some(list("3"));
        let refused = error(Config { cpus, ..Config::new("d") });
        assert_eq!(refused, "cannot use CPUs 3: the process may use 0-1 only");
        let refused = error(Config { smp: Some(0), ..Config::new("d") });
        assert!(refused.contains("at least one shard"), "{refused}");
        let overprovisioned = Choice::No;
        let refused = error(Config { smp: Some(3), overprovisioned, ..Config::new("d") });
        assert!(refused.starts_with("3 shards cannot each poll a CPU of 0-1"), "{refused}");
    }
}
