//! Chooses the CPUs of the shards, and whether the shards poll.
//!
//! There are as many shards as CPUs, but never more than a quota pays for. A shard polls if its CPU
//! is its own and its time is not rationed. On CPUs that others may use, it sleeps in the kernel
//! and the scheduler places it; under a quota, polling would use up time that the work needs.

use tare_std::cpus::CpuSet;

use crate::node::config::{Choice, Config};
use crate::node::environment::{Environment, Line, Ownership};

/// The placement of the shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) shards: usize,
    /// The CPUs that the server may use.
    pub(crate) cpus: CpuSet,
    /// The CPU of each shard; empty if the kernel places them.
    pub(crate) pinned: Vec<u32>,
    pub(crate) polling: bool,
    pub(crate) why: String,
    /// The consequence of the quota, for the log.
    pub(crate) quota_effect: String,
}

/// Why shards cannot be placed.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
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

/// Shards that one server may have.
pub(crate) const SHARDS_MAX: usize = 256;

/// Places the shards on the CPUs that the environment gives.
pub(crate) fn place(
    config: &Config,
    environment: &Environment,
) -> Result<Placement, PlacementError> {
    let allowed = &environment.allowed_cpus;
    let cpus = match &config.cpus {
        Some(asked) if !asked.is_subset(allowed) => {
            let (asked, allowed) = (asked.clone(), allowed.clone());
            return Err(PlacementError::NotAllowed { asked, allowed });
        }
        Some(asked) => asked.clone(),
        None => allowed.clone(),
    };
    // A quota of more than these CPUs can give has no effect.
    let quota = environment.quota.as_ref().filter(|quota| quota.cpus() <= cpus.len() as f64);
    let most = quota.map_or(cpus.len(), |quota| quota.whole_cpus().min(cpus.len()));
    let shards = config.smp.unwrap_or(most);
    if shards == 0 || cpus.is_empty() {
        return Err(PlacementError::None);
    }
    if shards > SHARDS_MAX {
        return Err(PlacementError::TooMany { shards, limit: SHARDS_MAX });
    }
    let enough = cpus.len() >= shards;
    let (polling, why) = match config.overprovisioned {
        Choice::Yes => (false, "--overprovisioned yes".to_string()),
        Choice::No if !enough => return Err(PlacementError::TooFew { shards, cpus }),
        Choice::No => (true, "--overprovisioned no".to_string()),
        Choice::Auto if !enough => (false, format!("{shards} shards share CPUs {cpus}")),
        Choice::Auto => match (quota, environment.ownership) {
            (Some(quota), _) => (
                false,
                format!("polling would burn the quota of {} CPUs", two_decimals(quota.cpus())),
            ),
            (None, Ownership::Exclusive | Ownership::Presumed) => {
                (true, environment.ownership_why.clone())
            }
            // A part of the CPUs that others may use is not the server's own either; all of them
            // may be.
            (None, Ownership::Shared) if cpus.len() < allowed.len() => {
                (true, format!("CPUs {cpus} of {allowed} were given by --cpus"))
            }
            (None, Ownership::Shared) => (false, environment.ownership_why.clone()),
        },
    };
    let pinned = if polling { cpus.iter().take(shards).collect() } else { Vec::new() };
    let quota_effect = match (&environment.quota, quota) {
        (None, _) => "nothing is rationed".to_string(),
        (Some(_), None) => "more than these CPUs can give: it has no effect".to_string(),
        (Some(_), Some(quota)) => {
            let polling = if polling { "polling, as requested" } else { "no polling" };
            let short = shards as f64 > quota.cpus();
            let throttled = if short { "; it is too small: the kernel will throttle" } else { "" };
            format!("{}, {polling}{throttled}", plural(shards))
        }
    };
    Ok(Placement { shards, cpus, pinned, polling, why, quota_effect })
}

impl Placement {
    /// The lines of the log about CPUs: what was found, and what follows.
    pub(crate) fn lines(&self, environment: &Environment) -> [Line; 3] {
        let Environment { allowed_cpus, online_cpus, quota, ownership, .. } = environment;
        let manner = if self.polling { "polling" } else { "sleeping when idle" };
        let pinned = match &self.pinned[..] {
            [] => "placed by the kernel".to_string(),
            cpus => format!("pinned to {}", cpus.iter().copied().collect::<CpuSet>()),
        };
        let found = format!("{allowed_cpus} of {online_cpus}");
        let quota = match quota {
            Some(quota) => {
                format!("{} CPUs ({})", two_decimals(quota.cpus()), quota.file.display())
            }
            None => "none".into(),
        };
        let owner = match ownership {
            Ownership::Exclusive => "exclusive",
            Ownership::Presumed => "presumed exclusive",
            Ownership::Shared => "shared",
        };
        [
            Line::new("CPUs", found, format!("{} on {}, {pinned}", plural(self.shards), self.cpus)),
            Line::new("CPU quota", quota, &self.quota_effect),
            Line::new("CPU ownership", owner, format!("{manner}: {}", self.why)),
        ]
    }
}

/// A number with two decimals, as quotas are written.
fn two_decimals(number: f64) -> String {
    format!("{number:.2}")
}

fn plural(shards: usize) -> String {
    if shards == 1 { "1 shard".into() } else { format!("{shards} shards") }
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

    fn environment(allowed: &str, quota: Option<f64>) -> Environment {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online", "0-3");
        let mount = "29 23 0:26 / /cg rw - cgroup2 none rw";
        write("proc/self/mountinfo", mount);
        write("proc/self/cgroup", "0::/");
        if let Some(cpus) = quota {
            write("cg/cpu.max", &format!("{:.0} 100000", cpus * 1e5));
        }
        Environment::below(root.path(), list(allowed))
    }

    #[test]
    fn shards_poll_on_exclusive_cpus() {
        let check = |allowed: &str, smp: Option<usize>, choice, expect: (usize, bool, &[u32])| {
            let config = Config { smp, overprovisioned: choice, ..Config::new("d") };
            let placement = place(&config, &environment(allowed, None)).unwrap();
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
    fn quota_bounds_the_shards_and_forbids_polling() {
        let check = |allowed: &str, quota, smp, expect: (usize, bool), effect: &str| {
            let config = Config { smp, ..Config::new("d") };
            let placement = place(&config, &environment(allowed, Some(quota))).unwrap();
            assert_eq!((placement.shards, placement.polling), expect, "{allowed} {quota}");
            assert_eq!(placement.quota_effect, effect, "{allowed} {quota}");
        };
        check("0-3", 1.5, None, (1, false), "1 shard, no polling");
        check("2-3", 1.5, None, (1, false), "1 shard, no polling");
        check(
            "2-3",
            0.5,
            None,
            (1, false),
            "1 shard, no polling; it is too small: the kernel will throttle",
        );
        check("0-3", 2.0, None, (2, false), "2 shards, no polling");
        check("2-3", 4.0, None, (2, true), "more than these CPUs can give: it has no effect");
        let effect = "2 shards, no polling; it is too small: the kernel will throttle";
        check("0-3", 1.5, Some(2), (2, false), effect);
    }

    #[test]
    fn table_shows_the_consequences() {
        let environment = environment("2-3", Some(1.5));
        let placement = place(&Config::new("d"), &environment).unwrap();
        let [cpus, quota, owner] = placement.lines(&environment);
        assert_eq!(
            (&*cpus.found, &*cpus.effect),
            ("2-3 of 0-3", "1 shard on 2-3, placed by the kernel")
        );
        assert!(quota.found.starts_with("1.50 CPUs (/") && quota.effect == "1 shard, no polling");
        let effect = "sleeping when idle: polling would burn the quota of 1.50 CPUs";
        assert_eq!((&*owner.found, &*owner.effect), ("presumed exclusive", effect));
    }

    #[test]
    fn impossible_placements_are_refused() {
        let environment = environment("0-1", None);
        let error = |config: Config| place(&config, &environment).unwrap_err();
        let cpus = Some(list("3"));
        let refused = error(Config { cpus, ..Config::new("d") });
        let PlacementError::NotAllowed { asked, allowed } = refused else { panic!("{refused}") };
        assert_eq!((asked, allowed), (list("3"), list("0-1")));
        let refused = error(Config { smp: Some(0), ..Config::new("d") });
        assert!(matches!(refused, PlacementError::None), "{refused}");
        let overprovisioned = Choice::No;
        let refused = error(Config { smp: Some(3), overprovisioned, ..Config::new("d") });
        let PlacementError::TooFew { shards, cpus } = refused else { panic!("{refused}") };
        assert_eq!((shards, cpus), (3, list("0-1")));
    }
}
