//! `disk`: I/O of the disks below the system's data directories.
//!
//! Source: `/proc/diskstats` (kernel: Documentation/admin-guide/iostats.rst), the lines of the
//! disks and partitions below the file system ([`crate::block_stack`]), so that RAID and device
//! mapper show what they request from the disks: RAID 1 writes twice.
//!
//! Limits: times are in ms and summed over all I/O of the slice, so that there is only a mean.
//! `disk_latency` has the distribution and the longest. A directory in memory (tmpfs) or on
//! overlayfs has no device and no counter.

use std::time::Instant;

use tare_lab::probe::{Counter, Scope};

use crate::block_stack::{BlockStack, Device};
use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::source::Source;
use crate::{CounterKind, ProbeError, ProbeKind, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "disk",
    help: "I/O of the disks below the data directories, summed",
    needs: "/proc/diskstats",
    limits: "I/O of other programs on the disks counts too; below RAID and device mapper it is the I/O of the disks; a loop device \
             counts as a disk; latency is a mean, from ms; no counters for a data directory in memory",
    optional: false,
    disturbs: false,
    counters: &[
        CounterKind { name: "disk_reads", help: "completed reads" },
        CounterKind { name: "disk_writes", help: "completed writes" },
        CounterKind { name: "disk_flushes", help: "completed flushes" },
        CounterKind { name: "disk_read_bytes", help: "bytes read" },
        CounterKind { name: "disk_written_bytes", help: "bytes written" },
        CounterKind {
            name: "disk_read_latency_ns_mean",
            help: "time of a read from queueing to completion",
        },
        CounterKind {
            name: "disk_write_latency_ns_mean",
            help: "time of a write from queueing to completion",
        },
        CounterKind {
            name: "disk_flush_latency_ns_mean",
            help: "time of a flush from queueing to completion",
        },
        CounterKind {
            name: "disk_busy_share",
            help: "share of the time with I/O in flight, the mean over the disks",
        },
        CounterKind {
            name: "disk_queue_mean",
            help: "mean number of I/Os in flight, on all disks",
        },
        CounterKind {
            name: "disk_busiest_share",
            help: "share of the time with I/O in flight on the disk that has most, if there are several",
        },
        CounterKind {
            name: "disk_devices_at_end",
            help: "number of disks and partitions, if there are several",
        },
    ],
    open: |roots, _| {
        let source = Source::open(&roots.proc.join("diskstats"), KIND.needs)?;
        edge_probe(&KIND, Disk { source, stack: BlockStack::new(roots), devices: Vec::new() })
    },
};

/// Bytes in a sector of this file, independent of the device's sector size.
const SECTOR_BYTES: f64 = 512.0;
const NS_PER_MS: f64 = 1e6;

/// Columns behind the device's name.
const READS: usize = 0;
const READ_SECTORS: usize = 2;
const READ_MS: usize = 3;
const WRITES: usize = 4;
const WRITTEN_SECTORS: usize = 6;
const WRITE_MS: usize = 7;
const BUSY_MS: usize = 9;
const WEIGHTED_MS: usize = 10;
const FLUSHES: usize = 15;
const FLUSH_MS: usize = 16;
const COLUMNS: usize = 17;

struct Disk {
    source: Source,
    stack: BlockStack,
    devices: Vec<Device>,
}

/// The columns of a device. Linux before 5.5 has no columns for flushes.
fn columns(text: &str, device: Device) -> Option<[u64; COLUMNS]> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let major: u32 = words.next()?.parse().ok()?;
        let minor: u32 = words.next()?.parse().ok()?;
        if (major, minor) != device {
            return None;
        }
        let mut columns = [0; COLUMNS];
        for (column, word) in columns.iter_mut().zip(words.skip(1)) {
            *column = word.parse().ok()?;
        }
        Some(columns)
    })
}

impl EdgeReader for Disk {
    /// The columns of each device.
    type Values = (Instant, Vec<[u64; COLUMNS]>);

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        if scope.data.is_empty() {
            return Err(ProbeError::NoData);
        }
        self.devices = self.stack.disks_below(&scope.data);
        // A file system in memory or over other file systems has a number without a block device.
        let text = self.source.read()?;
        self.devices.retain(|device| columns(text, *device).is_some());
        Ok(())
    }

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let now = Instant::now();
        let devices = &self.devices;
        if devices.is_empty() {
            return Ok((now, Vec::new()));
        }
        let found = self.source.number("line of a device below the data directory", |text| {
            devices.iter().map(|device| columns(text, *device)).collect()
        })?;
        Ok((now, found))
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let devices = begin.1.iter().zip(&end.1);
        let grown: Vec<[f64; COLUMNS]> = devices
            .map(|(before, after)| {
                std::array::from_fn(|at| after[at].saturating_sub(before[at]) as f64)
            })
            .collect();
        if grown.is_empty() {
            return Vec::new();
        }
        let sum = |at: usize| grown.iter().map(|columns| columns[at]).sum::<f64>();
        let mut counters = vec![
            counter("disk_reads", sum(READS)),
            counter("disk_writes", sum(WRITES)),
            counter("disk_flushes", sum(FLUSHES)),
            counter("disk_read_bytes", sum(READ_SECTORS) * SECTOR_BYTES),
            counter("disk_written_bytes", sum(WRITTEN_SECTORS) * SECTOR_BYTES),
        ];
        let means = [
            ("disk_read_latency_ns_mean", READ_MS, READS),
            ("disk_write_latency_ns_mean", WRITE_MS, WRITES),
            ("disk_flush_latency_ns_mean", FLUSH_MS, FLUSHES),
        ];
        for (name, ms, count) in means {
            if sum(count) > 0.0 {
                counters.push(counter(name, sum(ms) * NS_PER_MS / sum(count)));
            }
        }
        let window_ms = end.0.duration_since(begin.0).as_secs_f64() * 1e3;
        if window_ms > 0.0 {
            // The kernel rounds to ms, and adds I/O in flight only at its next update.
            let busy: Vec<f64> =
                grown.iter().map(|columns| (columns[BUSY_MS] / window_ms).min(1.0)).collect();
            let mean = busy.iter().sum::<f64>() / busy.len() as f64;
            counters.push(counter("disk_busy_share", mean));
            counters.push(counter("disk_queue_mean", sum(WEIGHTED_MS) / window_ms));
            if busy.len() > 1 {
                let busiest = busy.iter().copied().fold(0.0, f64::max);
                counters.push(counter("disk_busiest_share", busiest));
                counters.push(counter("disk_devices_at_end", busy.len() as f64));
            }
        }
        counters
    }
}
