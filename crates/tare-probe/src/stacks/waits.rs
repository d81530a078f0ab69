//! Stacks of waiting threads: from the moment a thread leaves its CPU until it gets one again.
//!
//! Method: `perf record` records the stack at every `sched:sched_switch` of the observed threads,
//! and the kernel's switch records show when a thread is back. The time between counts for the
//! stack at the switch. A thread that leaves while it is runnable waits for a CPU (it was
//! preempted, or its quota was used up). For all others the table gives the reason.
//!
//! Limits: the wait of a thread at the start of the window is unknown and left out, until the
//! thread first returns. A wait at the end counts up to the end. Over many slices the two are
//! equal. A thread that waits during a whole window is not seen.

use std::collections::{BTreeMap, HashMap};

use tare_lab::stacks::SampledStack;

use super::rule::{Rule, first_match};
use super::script::{Frame, Sample, frame};
use super::{folded, script};

/// The reason of a thread that is runnable.
pub const A_CPU: &str = "a CPU";
/// The reason of a stack that no rule matches.
pub const OTHER: &str = "something else";

/// The reasons to wait, by the kernel function in which a thread waits.
pub const ALL: &[Rule] = &[
    Rule::new(
        "locks",
        "another thread: a futex, or a lock inside the kernel",
        "futex_ do_futex mutex_ rwsem_ down_ percpu_down rt_mutex ww_mutex rwbase_",
    ),
    Rule::new(
        "events",
        "work: epoll, poll, select, the I/O ring",
        "ep_poll do_epoll do_poll do_select do_sys_poll io_cqring io_uring io_wq io_sq x64_sys_io_uring",
    ),
    Rule::new(
        "disk",
        "blocks, the page cache, the journal, a sync",
        "io_schedule bit_wait_io blk_ bio_ submit_bio blkdev_ rq_qos wbt_ wait_on_buffer wait_on_page \
         folio_wait filemap_ fdatawait jbd2_ ext4_ xfs_ xlog_ btrfs_ iomap_ vfs_fsync do_fsync \
         balance_dirty ovl_ fuse_ virtio_fs v9fs_ p9_ loop_",
    ),
    Rule::new(
        "network",
        "data from or room in a socket, a connection",
        "sk_wait sk_stream tcp_ inet_ unix_ sock_ skb_ wait_for_connect",
    ),
    Rule::new("a pipe", "data from or room in a pipe", "pipe_ anon_pipe"),
    Rule::new("a child", "the end of a child process", "do_wait kernel_wait wait_task"),
    Rule::new(
        "memory",
        "memory that must first be freed or read back",
        "do_try_to_free try_to_free shrink_ swap_ do_swap mem_cgroup throttle_direct",
    ),
    Rule::new(
        "the clock",
        "a time that the program set",
        "do_nanosleep hrtimer_nanosleep do_sigtimedwait",
    ),
];

/// A switch event of a thread.
#[derive(Clone, Debug, PartialEq)]
enum Event {
    /// The thread left its CPU in this stack.
    Left { sample: Sample, preempted: bool },
    /// The thread has a CPU again.
    Back,
}

/// The thread, the time in ns, and the event.
type Line = (u32, u64, Event);

/// Parses the output of `perf script --show-switch-events --ns -F
/// pid,tid,time,event,ip,sym,dso,trace`: ` PID/TID SECONDS: EVENT: ...`, with a line for each frame
/// below a sample.
fn events(text: &str) -> Vec<Line> {
    let mut events: Vec<Line> = Vec::new();
    for line in text.lines() {
        if line.starts_with('\t') {
            if let Some((_, _, Event::Left { sample, .. })) = events.last_mut() {
                sample.frames.extend(frame(line));
            }
            continue;
        }
        events.extend(header(line));
    }
    events
}

fn header(line: &str) -> Option<Line> {
    let (ids, rest) = line.trim_start().split_once(char::is_whitespace)?;
    let (pid, tid) = ids.split_once('/')?;
    let (time, rest) = rest.trim_start().split_once(':')?;
    let (seconds, ns) = time.split_once('.')?;
    let ns = seconds.parse::<u64>().ok()? * 1_000_000_000 + ns.parse::<u64>().ok()?;
    let (pid, tid) = (pid.parse().ok()?, tid.parse().ok()?);
    let rest = rest.trim();
    if rest.starts_with("PERF_RECORD_SWITCH") {
        return rest.contains(" IN").then_some((tid, ns, Event::Back));
    }
    let (_, state) = rest.rsplit_once(" prev_state=").filter(|_| rest.contains("sched_switch"))?;
    let sample = Sample { pid, frames: Vec::new() };
    Some((tid, ns, Event::Left { sample, preempted: state.starts_with('R') }))
}

/// Sums the waiting time of each stack, in ns, for the part that each process belongs to. `window`
/// has the edges of the slice by `CLOCK_MONOTONIC`, in ns.
pub(super) fn fold(
    text: &str,
    parts: &HashMap<u32, &'static str>,
    window: (u64, u64),
) -> Vec<SampledStack> {
    let (begin, end) = window;
    let mut away: HashMap<u32, (u64, Sample, bool)> = HashMap::new();
    let mut waits: BTreeMap<(String, String, &'static str), u64> = BTreeMap::new();
    let mut add = |(left, mut sample, preempted): (u64, Sample, bool), back: u64| {
        let Some(part) = parts.get(&sample.pid) else { return };
        let ns = back.min(end).saturating_sub(left.max(begin));
        script::drop_unknown_roots(&mut sample.frames);
        let reason = reason(&sample.frames, preempted);
        drop_scheduler(&mut sample.frames);
        let key = (part.to_string(), folded(&sample.frames), reason);
        *waits.entry(key).or_default() += ns;
    };
    for (thread, ns, event) in events(text) {
        match event {
            Event::Left { sample, preempted } => {
                away.insert(thread, (ns, sample, preempted));
            }
            Event::Back => {
                if let Some(left) = away.remove(&thread) {
                    add(left, ns);
                }
            }
        }
    }
    for (_, left) in away {
        add(left, end);
    }
    let stack = |((part, folded, subsystem), samples): ((String, String, &str), u64)| {
        SampledStack { part, subsystem: subsystem.to_string(), folded, samples }
    };
    waits.into_iter().filter(|(_, ns)| *ns > 0).map(stack).collect()
}

/// Drops the scheduler's frames at the leaf. The function that called the scheduler is the one that
/// waits.
fn drop_scheduler(frames: &mut Vec<Frame>) {
    let scheduler = |frame: &Frame| {
        let name = frame.name.trim_start_matches('_');
        frame.kernel
            && ["schedule", "preempt_schedule", "cond_resched"]
                .iter()
                .any(|one| name.starts_with(one))
    };
    let depth = frames.iter().take_while(|frame| scheduler(frame)).count();
    frames.drain(..depth.min(frames.len().saturating_sub(1)));
}

/// The reason for which a thread waits.
fn reason(frames: &[Frame], preempted: bool) -> &'static str {
    if preempted {
        return A_CPU;
    }
    first_match(ALL, frames).unwrap_or(OTHER)
}

#[cfg(test)]
mod tests {
    use tare_lab::stacks::SYSTEM;

    use super::*;

    const TEXT: &str = "\
 7/8    10.000000100: PERF_RECORD_SWITCH IN         
 7/8    10.000001000: sched:sched_switch: prev_comm=db prev_pid=8 prev_prio=120 prev_state=S ==> next_comm=x next_pid=1 next_prio=120
\tffffffff821f8b58 __schedule ([kernel.kallsyms])
\tffffffff82200001 ep_poll ([kernel.kallsyms])
\t          a897a0 db::wait (/usr/bin/tare)
\t               0 [unknown] ([unknown])

 7/8    10.000001010: PERF_RECORD_SWITCH OUT        
 7/8    10.000004000: PERF_RECORD_SWITCH IN         
 7/8    10.000005000: sched:sched_switch: prev_comm=db prev_pid=8 prev_prio=120 prev_state=R+ ==> next_comm=x next_pid=1 next_prio=120
\tffffffff821f8b58 __schedule ([kernel.kallsyms])
\t          a897a0 db::work (/usr/bin/tare)

 7/8    10.000005010: PERF_RECORD_SWITCH OUT preempt        
 9/9    10.000006000: sched:sched_switch: prev_comm=z prev_pid=9 prev_prio=120 prev_state=D ==> next_comm=x next_pid=1 next_prio=120
\tffffffff82200001 jbd2_log_wait_commit ([kernel.kallsyms])

";

    #[test]
    fn counts_time_between_switches() {
        let parts = HashMap::from([(7, SYSTEM)]);
        let found = fold(TEXT, &parts, (10_000_000_000, 10_000_007_000));
        let seen: Vec<(&str, &str, u64)> =
            found.iter().map(|s| (s.subsystem.as_str(), s.folded.as_str(), s.samples)).collect();
        // A thread of another program does not count. An unfinished wait counts to the window's
        // end.
        assert_eq!(seen, [("events", "db::wait;ep_poll_[k]", 3000), (A_CPU, "db::work", 2000),]);
        // Time outside the window does not count.
        let found = fold(TEXT, &parts, (10_000_002_000, 10_000_003_000));
        assert_eq!(found.iter().map(|stack| stack.samples).sum::<u64>(), 1000);
    }

    #[test]
    fn innermost_known_function_gives_reason() {
        let frames = |names: &str| -> Vec<Frame> {
            names.split(' ').map(|name| Frame { name: name.into(), kernel: true }).collect()
        };
        let check = |names: &str, expected: &str| {
            assert_eq!(reason(&frames(names), false), expected, "{names}");
        };
        check("__schedule schedule futex_wait_queue do_futex", "locks");
        check("__schedule schedule jbd2_log_wait_commit ext4_sync_file do_fsync", "disk");
        check("__schedule __mutex_lock ext4_file_write_iter", "locks");
        check("__schedule wait_woken sk_wait_data tcp_recvmsg", "network");
        check("__schedule io_cqring_wait __do_sys_io_uring_enter", "events");
        check("__schedule schedule do_nanosleep", "the clock");
        check("__schedule schedule pipe_read", "a pipe");
        check("__schedule schedule never_heard_of", OTHER);
    }
}
