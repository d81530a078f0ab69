//! Reasons to trust a measurement of a disk less, each with what to do.

use std::fmt;

use serde::Serialize;
use tare_stats::steady_state::SteadyWindow;

use crate::bursts::BURSTS_MIN;

/// A reason to trust the figures less, or to expect others from a database.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Doubt {
    Scheduler {
        device: String,
        scheduler: String,
    },
    WriteCache {
        device: String,
    },
    Rotational {
        device: String,
    },
    Throttled {
        file: String,
        limit: String,
    },
    Layered {
        stack: String,
    },
    /// The measurement ran in a guest, on the guest's disk.
    Inside {
        kernel: String,
        accelerator: String,
    },
    /// Other processes moved this many bytes through the device meanwhile.
    Busy {
        device: String,
        bytes: u64,
        share_percent: f64,
    },
    /// The device counted fewer bytes than were read or written.
    Unseen {
        what: &'static str,
        share_percent: f64,
    },
    NoCounters {
        device: String,
    },
    Cached {
        pages: u64,
    },
    /// The file became smaller than asked, because the time was too short.
    Cut {
        asked_bytes: u64,
        bytes: u64,
    },
    Unsteady {
        load: &'static str,
        slices: usize,
        of: usize,
    },
    /// Operations completed in bursts, which are counted whole.
    Bursty {
        load: &'static str,
        /// The time from one burst to the next, in ms, or the length of a slice without a whole
        /// burst.
        period_ms: f64,
        /// The fewest whole bursts in a slice.
        bursts: usize,
        slices: usize,
        of: usize,
    },
    ClientSaturated {
        load: &'static str,
        cpu_percent: f64,
    },
    /// The random writes began on a disk in any state.
    NotMadeSteady,
    /// The rounds of random writes did not reach the steady state.
    NotSteady {
        rounds: usize,
        last_rounds: Option<SteadyWindow>,
        /// The limit of bytes that ended them; `None`: there were as many rounds as may be.
        writes_max: Option<u64>,
    },
    /// The climb ended at the largest depth, and the rate still grew.
    NotSaturated {
        load: &'static str,
        depth: usize,
    },
    Behind {
        load: &'static str,
        share_percent: f64,
        unsent_percent: f64,
    },
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler { device, scheduler } => write!(
                f,
                "{device} has the scheduler {scheduler}: a database on a fast disk should use none \
                 (tare tune plan)"
            ),
            Self::WriteCache { device } => write!(
                f,
                "{device} has a write cache (write back): writes are acknowledged before they are \
                 durable, and a database that syncs gets less"
            ),
            Self::Rotational { device } => write!(
                f,
                "{device} reports that it rotates: if so, figures differ between its outer and inner \
                 tracks; many virtual disks report it wrongly"
            ),
            Self::Throttled { file, limit } => write!(
                f,
                "this process is throttled ({file}: {limit}): its limit was measured, not the disk"
            ),
            Self::Layered { stack } => write!(f, "the device is not the disk itself: {stack}"),
            Self::Inside { kernel, accelerator } => {
                let means = match accelerator.starts_with("kvm") {
                    true => "the disk is the guest's, not the host's",
                    false => "functional, not a measurement",
                };
                write!(f, "measured inside a guest (Linux {kernel} on {accelerator}): {means}")
            }
            Self::Busy { device, bytes, share_percent } => write!(
                f,
                "other processes moved {} MiB through {device} meanwhile ({share_percent:.0} % of \
                 ours): repeat the measurement on an idle disk",
                bytes >> 20
            ),
            Self::Unseen { what, share_percent } => write!(
                f,
                "the device counted only {share_percent:.0} % of the bytes {what}: a layer above it \
                 served the rest"
            ),
            Self::NoCounters { device } => write!(
                f,
                "{device} has no counters in /sys: whether it did the I/O could not be checked"
            ),
            Self::Cached { pages } => {
                write!(f, "{pages} pages of the file stayed in the page cache")
            }
            Self::Cut { asked_bytes, bytes } => write!(
                f,
                "the file has {} MiB instead of {} MiB, because writing took too long: a cache in \
                 the device may hold all of it; give a larger --budget",
                bytes >> 20,
                asked_bytes >> 20
            ),
            Self::Unsteady { load, slices, of } => write!(
                f,
                "{load}: the rate was not steady in {slices} of {of} slices: other processes use \
                 the disk, or its cache fills; give a larger --budget"
            ),
            Self::Bursty { load, period_ms, bursts, slices, of } => {
                write!(
                    f,
                    "{load}: in {slices} of {of} slices operations completed in bursts, one every \
                     {period_ms:.0} ms, as under a throttle: the rate is that of whole bursts, and \
                     an operation may wait for the next one"
                )?;
                match *bursts < BURSTS_MIN {
                    true => {
                        write!(f, "; a slice held only {bursts} of them: give a larger --budget")
                    }
                    false => Ok(()),
                }
            }
            Self::ClientSaturated { load, cpu_percent } => write!(
                f,
                "{load}: the loading thread used {cpu_percent:.0} % of a CPU: it may have limited \
                 the rate"
            ),
            Self::NotMadeSteady => write!(
                f,
                "random write: the disk was not made steady before: one that is used for hours may be \
                 slower; --steady writes it over until its rate stays"
            ),
            Self::NotSteady { rounds, last_rounds, writes_max } => {
                not_steady(f, *rounds, *last_rounds, *writes_max)
            }
            Self::NotSaturated { load, depth } => {
                write!(f, "{load}: the rate still grew at depth {depth}, the largest")
            }
            Self::Behind { load, share_percent, unsent_percent } => write!(
                f,
                "{load} at {share_percent:.0} %: {unsent_percent:.1} % of the operations were not \
                 started in time: the disk was slower than at saturation"
            ),
        }
    }
}

fn not_steady(
    f: &mut fmt::Formatter<'_>,
    rounds: usize,
    last_rounds: Option<SteadyWindow>,
    writes_max: Option<u64>,
) -> fmt::Result {
    write!(f, "random write: the disk did not become steady in {rounds} rounds")?;
    if let Some(last) = last_rounds {
        write!(f, " ({last})")?;
    }
    match writes_max {
        Some(bytes) => write!(
            f,
            ": more than {} MB would have been written; --yes allows that",
            bytes / 1_000_000
        ),
        None => write!(f, ": no rate of it lasts"),
    }
}
