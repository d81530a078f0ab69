//! `net_devices`: bytes and packets through the network devices of the system's namespaces.
//!
//! Source: `/proc/PID/net/dev`, proc_pid_net(5), which shows the namespace of the process. Several
//! instances have one each, so that the file of one process in each namespace is read. The
//! devices that Tare creates have different names in each run and environment. Counters use only
//! the part of the name that gives the purpose, so that environments can be compared.

use std::path::PathBuf;

use tare_lab::probe::{Counter, Scope};

use crate::counter_names::{CounterNames, add, grown};
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::process_files::SYSTEM;
use crate::source::Source;
use crate::{CounterKind, ProbeError, ProbeKind, Roots, counter, name_part, network_namespaces};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "net_devices",
    help: "bytes and packets through the network devices of the system's namespaces",
    needs: "/proc/PID/net/dev",
    limits: "in the host's own namespace traffic of other programs counts too; by device only those \
             with traffic, at most 6",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind { name: "system_net_in_bytes", help: "received, over all devices" },
        CounterKind { name: "system_net_in_packets", help: "received, over all devices" },
        CounterKind { name: "system_net_in_drops", help: "received and dropped, over all devices" },
        CounterKind { name: "system_net_out_bytes", help: "sent, over all devices" },
        CounterKind { name: "system_net_out_packets", help: "sent, over all devices" },
        CounterKind { name: "system_net_out_drops", help: "dropped unsent, over all devices" },
        CounterKind { name: "system_net_{device}_in_bytes", help: "received by one device" },
        CounterKind { name: "system_net_{device}_in_packets", help: "received by one device" },
        CounterKind { name: "system_net_{device}_out_bytes", help: "sent by one device" },
        CounterKind { name: "system_net_{device}_out_packets", help: "sent by one device" },
    ],
    open: |roots, _| {
        let devices = CounterNames::new(4 * DEVICES_MAX);
        edge_probe(&KIND, NetDevices { roots: roots.clone(), sources: Vec::new(), devices })
    },
};

const DEVICES_MAX: usize = 6;

/// The reported values, each with its column after the device's name.
const COLUMNS: [(&str, usize); 6] = [
    ("in_bytes", 0),
    ("in_packets", 1),
    ("in_drops", 3),
    ("out_bytes", 8),
    ("out_packets", 9),
    ("out_drops", 11),
];

struct NetDevices {
    roots: Roots,
    /// One for each network namespace.
    sources: Vec<Source>,
    devices: CounterNames,
}

fn devices(text: &str) -> impl Iterator<Item = (&str, [u64; COLUMNS.len()])> {
    text.lines().skip(2).filter_map(|line| {
        let (name, rest) = line.split_once(':')?;
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let mut numbers = [0; COLUMNS.len()];
        for (number, (_, column)) in numbers.iter_mut().zip(COLUMNS) {
            *number = words.get(column)?.parse().ok()?;
        }
        Some((name.trim(), numbers))
    })
}

/// The name of a device in a counter's name. `tare-RUN-h3` becomes `tare_h`.
fn device(name: &str) -> String {
    let Some(own) = name.strip_prefix("tare-") else { return name_part(name) };
    let part = own.rsplit('-').next().unwrap_or(own);
    name_part(&format!("tare-{}", part.trim_end_matches(|c: char| c.is_ascii_digit())))
}

impl EdgeReader for NetDevices {
    /// The values over all devices, and by device.
    type Values = ([u64; COLUMNS.len()], Vec<(String, u64)>);

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        self.sources.clear();
        let processes = network_namespaces::one_process_of_each(&self.roots.proc, &scope.system);
        if processes.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        let open = |process: &PathBuf| Source::open(&process.join("net/dev"), KIND.needs);
        self.sources = processes.iter().map(open).collect::<Result<_, _>>()?;
        Ok(())
    }

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        if self.sources.is_empty() {
            return Err(ProbeError::NoProcess { of: SYSTEM });
        }
        let (mut all, mut each) = ([0; COLUMNS.len()], Vec::new());
        for source in &mut self.sources {
            source.number("line of a device", |text| {
                for (name, numbers) in devices(text) {
                    for ((sum, number), (what, _)) in all.iter_mut().zip(numbers).zip(COLUMNS) {
                        *sum += number;
                        if !what.ends_with("drops") {
                            add(&mut each, format!("system_net_{}_{what}", device(name)), number);
                        }
                    }
                }
                Some(())
            })?;
        }
        Ok((all, each))
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let all = COLUMNS.iter().zip(begin.0).zip(end.0);
        let mut counters: Vec<Counter> = all
            .map(|(((name, _), b), e)| {
                counter(format!("system_net_{name}"), e.saturating_sub(b) as f64)
            })
            .collect();
        counters.extend(self.devices.select(grown(&begin.1, end.1)));
        counters
    }
}
