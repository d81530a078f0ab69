//! Loaders: hosts that load one system together, and what each did in a slice.
//!
//! The harness and every loader open and close the window at times of clocks that were compared,
//! so how far they were apart is a figure of the slice.

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

use crate::doubt::Doubt;

/// A window whose edges, or whose clock, differ from the harness's by more than this share of it is
/// a doubt.
pub const APART_SHARE: f64 = 0.01;
/// A slice with an edge further away than this share of its window is void: its operations and its
/// CPU time are not of the same time.
pub const VOID_SHARE: f64 = 0.1;
/// Use of the loader's CPUs, or of one by its busiest thread, above this share is a doubt in a
/// closed loop.
pub const BUSY_SHARE: f64 = 0.85;
/// Load threads that waited for a CPU for more than this share of the window are a doubt.
pub const WAITED_SHARE: f64 = 0.1;

/// The name of this host as a loader.
pub const LOCAL: &str = "local";

/// A loader of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loader {
    /// The host as the user wrote it: `local`, `ssh:load1`.
    pub host: String,
    /// The CPUs of its load threads, one thread on each.
    pub cpus: CpuSet,
    pub kernel: String,
    pub architecture: String,
}

/// What one loader did in a slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoaderSlice {
    /// Its place among the loaders of the run.
    pub loader: u32,
    /// Length of its window, in ns.
    pub window_ns: u64,
    /// Operations that succeeded in it.
    pub operations: u64,
    /// CPU time of all its load threads, and of the busiest one.
    pub cpu_ns: u64,
    pub busiest_thread_ns: u64,
    /// How long its load threads waited for a CPU in all; `None` if its kernel does not tell.
    pub waited_ns: Option<u64>,
    /// How much later than the harness's its window opened and closed. Negative: earlier.
    pub begin_offset_ns: i64,
    pub end_offset_ns: i64,
    /// How wrong the comparison of its clock with the harness's can be.
    pub clock_error_ns: u64,
}

impl LoaderSlice {
    fn share(&self, ns: u64) -> f64 {
        ns as f64 / self.window_ns.max(1) as f64
    }

    /// Returns the larger distance of its edges from the harness's.
    pub fn apart_ns(&self) -> u64 {
        self.begin_offset_ns.unsigned_abs().max(self.end_offset_ns.unsigned_abs())
    }

    /// Returns the share of its CPUs that it used.
    pub fn cpu_share(&self, cpus: usize) -> f64 {
        self.share(self.cpu_ns) / cpus.max(1) as f64
    }

    /// Returns the share of one CPU that its busiest thread used.
    pub fn busiest_thread_share(&self) -> f64 {
        self.share(self.busiest_thread_ns)
    }

    /// Returns the share of the window for which its threads waited for a CPU, on average.
    pub fn waited_share(&self, cpus: usize) -> Option<f64> {
        Some(self.share(self.waited_ns?) / cpus.max(1) as f64)
    }
}

/// Returns the doubts about the loaders of a slice. `window_ns` is the planned window; in an open
/// loop threads poll, so their CPU time is no sign.
pub fn doubts(
    loaders: &[Loader],
    slices: &[LoaderSlice],
    window_ns: u64,
    is_open: bool,
) -> Vec<Doubt> {
    let mut doubts = Vec::new();
    let window = window_ns.max(1) as f64;
    for one in slices {
        let known = usize::try_from(one.loader).ok().and_then(|at| loaders.get(at));
        let Some(Loader { host, cpus, .. }) = known else { continue };
        let apart = one.apart_ns() as f64 / window;
        if apart > APART_SHARE {
            doubts.push(Doubt::LoaderLate { loader: host.clone(), share: apart });
        }
        let clock = one.clock_error_ns as f64 / window;
        if clock > APART_SHARE {
            doubts.push(Doubt::LoaderClock { loader: host.clone(), share: clock });
        }
        let share = one.cpu_share(cpus.len()).max(one.busiest_thread_share());
        let waited_share = one.waited_share(cpus.len()).filter(|share| *share > WAITED_SHARE);
        if waited_share.is_some() || (!is_open && share > BUSY_SHARE) {
            let loader = host.clone();
            doubts.push(Doubt::LoaderSaturated { loader, share, waited_share });
        }
    }
    doubts
}

/// Returns why a slice does not count, if the window of a loader was too far from the harness's.
pub fn void(loaders: &[Loader], slices: &[LoaderSlice], window_ns: u64) -> Option<String> {
    let worst = slices.iter().max_by_key(|one| one.apart_ns())?;
    let far = worst.apart_ns() as f64 > VOID_SHARE * window_ns as f64;
    let host = usize::try_from(worst.loader).ok().and_then(|at| loaders.get(at));
    let ms = worst.apart_ns() as f64 / 1e6;
    far.then(|| {
        let host = host.map_or("a loader", |loader| loader.host.as_str());
        format!("the window of {host} was {ms:.1} ms away from that of the accounts")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubts_loaders_beyond_thresholds() {
        let loaders = ["ssh:a", "ssh:b"].map(|host| Loader {
            host: host.into(),
            cpus: "0-1".parse().unwrap(),
            kernel: "6.1".into(),
            architecture: "x86_64".into(),
        });
        let window_ns = 100_000_000;
        let quiet = |loader| LoaderSlice {
            loader,
            window_ns,
            operations: 5,
            cpu_ns: 100_000_000,
            busiest_thread_ns: 60_000_000,
            waited_ns: Some(2_000_000),
            begin_offset_ns: -200_000,
            end_offset_ns: 900_000,
            clock_error_ns: 400_000,
        };
        let kinds = |is_open, change: &dyn Fn(&mut LoaderSlice)| {
            let mut other = quiet(1);
            change(&mut other);
            let all = [quiet(0), other];
            let doubts = doubts(&loaders, &all, window_ns, is_open);
            let names = doubts.iter().map(|doubt| {
                assert!(doubt.text().contains("ssh:b"), "{}", doubt.text());
                doubt.kind()
            });
            (names.collect::<Vec<_>>(), void(&loaders, &all, window_ns).is_some())
        };
        let none = Vec::<&str>::new();
        assert_eq!(kinds(false, &|_| {}), (none.clone(), false));
        assert_eq!(
            kinds(false, &|one| one.begin_offset_ns = -1_100_000),
            (vec!["loader_late"], false)
        );
        assert_eq!(
            kinds(false, &|one| one.end_offset_ns = 11_000_000),
            (vec!["loader_late"], true)
        );
        assert_eq!(
            kinds(false, &|one| one.clock_error_ns = 1_100_000),
            (vec!["loader_clock"], false)
        );
        let busy = |one: &mut LoaderSlice| one.busiest_thread_ns = 90_000_000;
        assert_eq!(kinds(false, &busy), (vec!["loader_saturated"], false));
        assert_eq!(kinds(true, &busy), (none, false));
        let waits = |one: &mut LoaderSlice| one.waited_ns = Some(30_000_000);
        assert_eq!(kinds(true, &waits), (vec!["loader_saturated"], false));
    }
}
