//! `disk`: I/O of the block device below the system's data directory.
//!
//! Source: `/proc/diskstats` (kernel: Documentation/admin-guide/iostats.rst), the line of the
//! device that holds the directory's file system. If a file system has several devices (btrfs), it
//! is the device from which it was mounted.
//!
//! Limits: times are in ms and summed over all I/O of the slice, so that there is only a mean.
//! `disk_latency` has the distribution and the longest. A directory in memory (tmpfs) or on
//! overlayfs has no device and no counter.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Instant;

use tare_lab::probe::{Counter, Scope};

use crate::edge_probe::{Edge, EdgeReader, edge_probe};
use crate::source::Source;
use crate::{CounterKind, ProbeError, ProbeKind, counter};

pub(crate) const KIND: ProbeKind = ProbeKind {
    name: "disk",
    help: "I/O of the block device below the data directory",
    needs: "/proc/diskstats",
    limits: "I/O of other programs on the device counts too; latency is a mean, from ms; no counters for a data directory in memory",
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
        CounterKind { name: "disk_busy_share", help: "share of the time with I/O in flight" },
        CounterKind { name: "disk_queue_mean", help: "mean number of I/Os in flight" },
    ],
    open: |roots, _| {
        let source = Source::open(&roots.proc.join("diskstats"), KIND.needs)?;
        edge_probe(&KIND, Disk { source, mounts: roots.proc.join("self/mountinfo"), device: None })
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
    mounts: std::path::PathBuf,
    /// Major and minor number; `None` where there is no device.
    device: Option<(u32, u32)>,
}

/// The file in a data directory that replaces the data if the system gets a block device.
const NODE: &str = "disk";

/// The device that holds a directory, or whose node the directory contains.
pub(crate) fn device_below(data: &Path, mounts: &Path) -> Option<(u32, u32)> {
    let numbers = |number| (rustix::fs::major(number), rustix::fs::minor(number));
    if let Ok(node) = fs::metadata(data.join(NODE))
        && node.file_type().is_block_device()
    {
        return Some(numbers(node.rdev()));
    }
    let number = fs::metadata(data).ok()?.dev();
    let (major, minor) = numbers(number);
    if major != 0 {
        return Some((major, minor));
    }
    // Major number 0 is not a block device. The mount table names the device behind it.
    let text = fs::read_to_string(mounts).ok()?;
    let wanted = format!("{major}:{minor}");
    let mount = tare_std::mountinfo::mounts(&text).find(|mount| mount.number == wanted)?;
    let found = fs::metadata(&mount.source).ok()?.rdev();
    (found != 0).then(|| numbers(found))
}

/// The columns of a device. Linux before 5.5 has no columns for flushes.
fn columns(text: &str, device: (u32, u32)) -> Option<[u64; COLUMNS]> {
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
    type Values = (Instant, Option<[u64; COLUMNS]>);

    fn prepare(&mut self, scope: &Scope) -> Result<(), ProbeError> {
        let data = scope.data.as_deref().ok_or(ProbeError::NoData)?;
        self.device = device_below(data, &self.mounts);
        // A file system in memory or over other file systems has a number without a block device.
        if let Some(device) = self.device
            && columns(self.source.read()?, device).is_none()
        {
            self.device = None;
        }
        Ok(())
    }

    fn read(&mut self, _: Edge) -> Result<Self::Values, ProbeError> {
        let now = Instant::now();
        let Some(device) = self.device else { return Ok((now, None)) };
        let found = self
            .source
            .number("line of the data directory's device", |text| columns(text, device))?;
        Ok((now, Some(found)))
    }

    fn counters(&mut self, begin: Self::Values, end: Self::Values) -> Vec<Counter> {
        let (Some(before), Some(after)) = (begin.1, end.1) else { return Vec::new() };
        let grown = |at: usize| after[at].saturating_sub(before[at]) as f64;
        let mut counters = vec![
            counter("disk_reads", grown(READS)),
            counter("disk_writes", grown(WRITES)),
            counter("disk_flushes", grown(FLUSHES)),
            counter("disk_read_bytes", grown(READ_SECTORS) * SECTOR_BYTES),
            counter("disk_written_bytes", grown(WRITTEN_SECTORS) * SECTOR_BYTES),
        ];
        let means = [
            ("disk_read_latency_ns_mean", READ_MS, READS),
            ("disk_write_latency_ns_mean", WRITE_MS, WRITES),
            ("disk_flush_latency_ns_mean", FLUSH_MS, FLUSHES),
        ];
        for (name, ms, count) in means {
            if grown(count) > 0.0 {
                counters.push(counter(name, grown(ms) * NS_PER_MS / grown(count)));
            }
        }
        let window_ms = end.0.duration_since(begin.0).as_secs_f64() * 1e3;
        if window_ms > 0.0 {
            // The kernel rounds to ms, and adds I/O in flight only at its next update.
            let busy = (grown(BUSY_MS) / window_ms).min(1.0);
            counters.push(counter("disk_busy_share", busy));
            counters.push(counter("disk_queue_mean", grown(WEIGHTED_MS) / window_ms));
        }
        counters
    }
}
