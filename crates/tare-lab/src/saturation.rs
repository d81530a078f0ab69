//! Decides whether a closed loop was limited by its client, or by neither client nor system. Pure.
//!
//! A capacity is the highest rate of a system only if the system had enough to do. With too few
//! operations in flight both sides wait for each other, and the rate is that of a round trip.
//!
//! Limits: a system that waits for something else than a CPU is not short of load. So no doubt is
//! raised where a disk was busy, a thread of the system used up its CPU, a quota throttled it, or
//! others took the CPUs; nor where the busiest thread is not known. Locks are not seen: `load =
//! "saturate"` finds out whether more load helps.

use crate::doubt::Doubt;
use crate::probe::names;
use crate::record::Slice;

/// The client's use of its own CPUs above this share, in a closed loop, is a doubt, and so is the
/// use of one CPU by its busiest thread: a request that reaches a thread busy for 85 % of the time
/// finds 5 others before it on average (0.85 / 0.15), so that the client sets the throughput.
pub const CLIENT_SHARE: f64 = 0.85;
/// A system that used less than this share of its CPUs was mostly idle. One that is limited by its
/// CPUs uses nearly all of them; half leaves room for interrupts and for an uneven load.
pub const SYSTEM_SHARE: f64 = 0.5;
/// A disk that had I/O in flight for this share of the time, or tasks that waited for one, may be
/// what the system waited for.
pub const IO_SHARE: f64 = 0.2;

/// A system with fewer CPUs than this, because of a quota or of neighbours, counts as having these.
const CPUS_MIN: f64 = 0.05;

/// The CPUs of client and system in a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SliceCpus {
    pub(crate) client: usize,
    /// CPUs that the system can use in this environment.
    pub(crate) system: f64,
}

fn counter(slice: &Slice, name: &str) -> Option<f64> {
    slice.counters.iter().find(|one| one.name == name).map(|one| one.value)
}

/// Returns the doubt that the client was the bottleneck: all of its CPUs, or one of its threads,
/// which can use one CPU of many at most.
pub(crate) fn client_saturated(slice: &Slice, cpus: SliceCpus) -> Option<Doubt> {
    // An open loop polls while it waits for the next start, so its CPU time is meaningless. A
    // client that is too slow causes `RateNotReached`.
    if slice.rate_per_s.is_some() {
        return None;
    }
    let share = client_share(slice, cpus);
    let thread = counter(slice, &names::busiest_thread_share(names::CLIENT));
    match (share > CLIENT_SHARE, thread.filter(|thread| *thread > CLIENT_SHARE)) {
        (true, _) => Some(Doubt::ClientSaturated { share, busiest_thread_share: None }),
        (false, Some(thread)) => {
            Some(Doubt::ClientSaturated { share, busiest_thread_share: Some(thread) })
        }
        (false, None) => None,
    }
}

fn client_share(slice: &Slice, cpus: SliceCpus) -> f64 {
    slice.client_cpu_ns as f64 / (slice.window_ns as f64 * cpus.client.max(1) as f64)
}

/// Returns the doubt that neither client nor system was busy at capacity. `others` are the doubts
/// about the slice so far.
pub(crate) fn neither_saturated(slice: &Slice, cpus: SliceCpus, others: &[Doubt]) -> Option<Doubt> {
    // A load that runs inside the system (fio) has no client whose CPU time could be compared.
    if slice.rate_per_s.is_some() || slice.operations == 0 || slice.client_cpu_ns == 0 {
        return None;
    }
    let explains = |doubt: &Doubt| {
        matches!(
            doubt,
            Doubt::ClientSaturated { .. }
                | Doubt::LinkFilled { .. }
                | Doubt::Throttled { .. }
                | Doubt::Strangers { .. }
                | Doubt::Steal { .. }
        )
    };
    if others.iter().any(explains) || waits_for_disk(slice) {
        return None;
    }
    // A polling server burns its CPUs whether or not it works, so its own account counts, and its
    // threads are always busy. For any other, one thread can be the limit.
    let used_ns = match slice.busy_time {
        Some(time) => time.busy_ns.min(slice.system_cpu_ns),
        None => {
            let thread = counter(slice, &names::busiest_thread_share(names::SYSTEM))?;
            if thread > CLIENT_SHARE {
                return None;
            }
            slice.system_cpu_ns
        }
    };
    let layer_ns: u64 = slice.layer_cpu_ns.iter().map(|(_, ns)| ns).sum();
    // Interrupts may run on the CPUs of the system, and are in no account of its threads.
    let softirq_ns = counter(slice, names::SOFTIRQ_NS).unwrap_or(0.0);
    let used_ns = used_ns as f64 + layer_ns as f64 + softirq_ns;
    let system_share = used_ns / (slice.window_ns as f64 * cpus.system.max(CPUS_MIN));
    let client_share = client_share(slice, cpus);
    (system_share < SYSTEM_SHARE).then_some(Doubt::NeitherSaturated { system_share, client_share })
}

/// Returns whether the disk may be what the system waited for: the device below its data was busy,
/// or tasks waited for some disk, as for the image of a virtual machine.
fn waits_for_disk(slice: &Slice) -> bool {
    let busy = counter(slice, names::DISK_BUSY_SHARE).unwrap_or(0.0);
    let waited_ns = counter(slice, names::IO_PRESSURE_NS).unwrap_or(0.0);
    busy.max(waited_ns / slice.window_ns as f64) > IO_SHARE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::Counter;
    use crate::record::Phase;
    use crate::system::BusyTime;

    const CPUS: SliceCpus = SliceCpus { client: 32, system: 32.0 };
    const WINDOW_NS: u64 = 100_000_000;

    /// 100 ms at capacity on 32 CPUs each, of which the system uses 5 and the client 3.
    fn starved() -> Slice {
        let mut slice = crate::campaign::empty_slice(Phase::Capacity);
        (slice.window_ns, slice.operations) = (WINDOW_NS, 10_000);
        (slice.system_cpu_ns, slice.client_cpu_ns) = (5 * WINDOW_NS, 3 * WINDOW_NS);
        slice.counters = vec![thread(names::SYSTEM, 0.3), thread(names::CLIENT, 0.2)];
        slice
    }

    fn thread(part: &str, value: f64) -> Counter {
        Counter { name: names::busiest_thread_share(part), value }
    }

    fn of(change: impl FnOnce(&mut Slice)) -> Option<Doubt> {
        let mut slice = starved();
        change(&mut slice);
        neither_saturated(&slice, CPUS, &[])
    }

    #[test]
    fn idle_system_and_idle_client_are_doubted() {
        let Some(Doubt::NeitherSaturated { system_share, client_share }) = of(|_| {}) else {
            panic!("no doubt")
        };
        assert_eq!((system_share, client_share), (5.0 / 32.0, 3.0 / 32.0));
        assert_eq!(
            of(|_| {}).unwrap().text(),
            "16 % of the system's CPUs and 9.4 % of the client's were busy: too little load to \
             show a capacity"
        );
        // The same load fills a system of 4 CPUs.
        let small = SliceCpus { client: 32, system: 4.0 };
        assert_eq!(neither_saturated(&starved(), small, &[]), None);
    }

    #[test]
    fn polling_system_counts_by_its_own_account() {
        let polling = |busy: u64| {
            move |slice: &mut Slice| {
                slice.system_cpu_ns = 32 * WINDOW_NS;
                slice.counters[0].value = 1.0;
                let idle_poll_ns = slice.system_cpu_ns - busy * WINDOW_NS;
                slice.busy_time = Some(BusyTime { busy_ns: busy * WINDOW_NS, idle_poll_ns });
            }
        };
        assert!(of(polling(4)).is_some(), "28 of 32 shards poll for nothing");
        assert!(of(polling(20)).is_none());
    }

    #[test]
    fn what_else_limits_a_system_is_no_lack_of_load() {
        let none = |what: &str, change: &dyn Fn(&mut Slice)| {
            assert_eq!(of(change), None, "{what}");
        };
        let counter = |name: &str, value| Counter { name: name.into(), value };
        none("one thread does the work (Redis)", &|slice| slice.counters[0].value = 0.97);
        none("its threads are unknown", &|slice| slice.counters.clear());
        none("a fixed rate", &|slice| slice.rate_per_s = Some(1_000.0));
        none("nothing was measured", &|slice| slice.operations = 0);
        none("the load runs inside (fio)", &|slice| slice.client_cpu_ns = 0);
        none("its disk is busy", &|slice| {
            slice.counters.push(counter(names::DISK_BUSY_SHARE, 0.9));
        });
        none("tasks wait for a disk", &|slice| {
            slice.counters.push(counter(names::IO_PRESSURE_NS, 0.5 * WINDOW_NS as f64));
        });
        none("interrupts fill its CPUs", &|slice| {
            slice.counters.push(counter(names::SOFTIRQ_NS, 20.0 * WINDOW_NS as f64));
        });
        none("a proxy works for it", &|slice| {
            slice.layer_cpu_ns = vec![("userland proxy".into(), 20 * WINDOW_NS)];
        });
        for doubt in [
            Doubt::ClientSaturated { share: 0.1, busiest_thread_share: Some(0.99) },
            Doubt::Strangers { share: 0.6 },
            Doubt::Steal { share: 0.6 },
            Doubt::Throttled { share: 0.6 },
        ] {
            assert_eq!(neither_saturated(&starved(), CPUS, std::slice::from_ref(&doubt)), None);
        }
        let late = Doubt::ProbeFailed { probe: "p".into(), reason: "r".into() };
        assert!(neither_saturated(&starved(), CPUS, &[late]).is_some(), "explains nothing");
    }
}
