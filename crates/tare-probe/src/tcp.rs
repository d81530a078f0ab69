//! `tcp`: segments, retransmits and drops of TCP, in the network namespaces of the system and the
//! client.
//!
//! Source: `/proc/PID/net/snmp` and `/proc/PID/net/netstat`, which show the namespace of the
//! process (kernel: Documentation/networking/snmp_counter.rst). Several instances of a system have
//! a namespace each, which are summed.

use std::path::PathBuf;

use tare_lab::probe::{Counter, Scope};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::{CLIENT, SYSTEM};
use crate::source::Source;
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter, network_namespaces};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "tcp",
    help: "TCP segments, retransmits and drops in the namespaces of the system and of the client",
    needs: "/proc/PID/net/snmp and netstat",
    limits: "in the host's own namespace connections of other programs count too; a sentry's own \
             network stack is not seen; the client counts only if its namespace differs",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind { name: "{part}_tcp_segments_in", help: "segments received" },
        CounterKind { name: "{part}_tcp_segments_out", help: "segments sent, without retransmits" },
        CounterKind { name: "{part}_tcp_retransmits", help: "segments sent again" },
        CounterKind { name: "{part}_tcp_errors_in", help: "segments received in error" },
        CounterKind { name: "{part}_tcp_timeouts", help: "retransmission timers that ran out" },
        CounterKind { name: "{part}_tcp_delayed_acks", help: "acknowledgements sent by a timer" },
        CounterKind {
            name: "{part}_tcp_pure_acks",
            help: "acknowledgements received without data",
        },
        CounterKind {
            name: "{part}_tcp_listen_drops",
            help: "connections dropped before they were accepted",
        },
        CounterKind {
            name: "{part}_tcp_backlog_drops",
            help: "segments dropped because a socket's queues were full",
        },
    ],
    open: |roots, _| edge_probe(&KIND, Tcp { roots: roots.clone(), sides: Vec::new() }),
};

const COLUMNS: [(&str, &str, &str); 9] = [
    ("Tcp:", "InSegs", "segments_in"),
    ("Tcp:", "OutSegs", "segments_out"),
    ("Tcp:", "RetransSegs", "retransmits"),
    ("Tcp:", "InErrs", "errors_in"),
    ("TcpExt:", "TCPTimeouts", "timeouts"),
    ("TcpExt:", "DelayedACKs", "delayed_acks"),
    ("TcpExt:", "TCPPureAcks", "pure_acks"),
    ("TcpExt:", "ListenDrops", "listen_drops"),
    ("TcpExt:", "TCPBacklogDrop", "backlog_drops"),
];

struct Tcp {
    roots: Roots,
    sides: Vec<Side>,
}

struct Side {
    of: &'static str,
    snmp: Source,
    netstat: Source,
}

impl Side {
    fn open(of: &'static str, process: PathBuf) -> Result<Self, ProbeError> {
        let open = |file: &str| Source::open(&process.join("net").join(file), KIND.needs);
        Ok(Self { of, snmp: open("snmp")?, netstat: open("netstat")? })
    }

    fn read(&mut self) -> Result<[Option<u64>; COLUMNS.len()], ProbeError> {
        let mut numbers = [None; COLUMNS.len()];
        for (source, wanted) in [(&mut self.snmp, "Tcp:"), (&mut self.netstat, "TcpExt:")] {
            source.number("line of TCP", |text| {
                let mut lines = text.lines().filter(|line| line.split(' ').next() == Some(wanted));
                let (names, values) = (lines.next()?.split(' '), lines.next()?.split(' '));
                for (name, value) in names.zip(values) {
                    let at = COLUMNS.iter().position(|c| c.0 == wanted && c.1 == name);
                    if let Some(at) = at {
                        numbers[at] = value.parse().ok();
                    }
                }
                Some(())
            })?;
        }
        Ok(numbers)
    }
}

impl EdgeReader for Tcp {
    type Values = Vec<[Option<u64>; COLUMNS.len()]>;

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.sides.clear();
        let of_each =
            |pids: &[u32]| network_namespaces::one_process_of_each(&self.roots.proc, pids);
        let system = of_each(&scope.system);
        if system.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        let known: Vec<_> = system.iter().map(|one| network_namespaces::of(one)).collect();
        let is_other = |process: &PathBuf| {
            let own = network_namespaces::of(process);
            own.is_none() || !known.contains(&own)
        };
        let client = of_each(&scope.client).into_iter().filter(is_other);
        let sides =
            system.into_iter().map(|one| (SYSTEM, one)).chain(client.map(|one| (CLIENT, one)));
        self.sides =
            sides.map(|(of, process)| Side::open(of, process)).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        if self.sides.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        self.sides.iter_mut().map(Side::read).collect()
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let mut counters: Vec<Counter> = Vec::new();
        for ((side, begin), end) in self.sides.iter().zip(begin).zip(end) {
            for (at, (_, _, name)) in COLUMNS.iter().enumerate() {
                // Older kernels lack some columns.
                let Some((begin, end)) = begin[at].zip(end[at]) else { continue };
                let (name, grown) = (format!("{}_tcp_{name}", side.of), end.saturating_sub(begin));
                match counters.iter_mut().find(|one| one.name == name) {
                    Some(sum) => sum.value += grown as f64,
                    None => counters.push(counter(name, grown as f64)),
                }
            }
        }
        counters
    }
}
