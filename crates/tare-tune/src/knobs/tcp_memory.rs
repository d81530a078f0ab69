//! Memory of TCP buffers.
//!
//! What: `net.ipv4.tcp_mem`, three counts of pages (low, pressure, hard limit) at 1/2, 2/3 and all
//! of a share of memory (3 % by default).
//! Why: the kernel's own limit is about 9 % of memory, and an engine such as Scylla takes 93 %.
//! Together that is more than all memory, so a burst of slow readers can end in an OOM kill.
//! Source: the kernel's Documentation/networking/ip-sysctl.rst (tcp_mem); seastar #2348.
//! Risk: with very many connections the limit is reached earlier and TCP shrinks its windows.
//! Engines that rely on the page cache gain little: unused buffers cost them nothing.

use crate::knobs::Context;
use crate::plan::{Group, Item, Key, ValueFormat};
use crate::snapshot::Snapshot;

use super::Knob;

#[derive(Debug)]
pub(super) struct TcpMemory;

const PATH: &str = "/proc/sys/net/ipv4/tcp_mem";

/// The default share of memory.
const SHARE: f64 = 0.03;

impl Knob for TcpMemory {
    fn name(&self) -> &'static str {
        "tcp_memory"
    }

    fn group(&self) -> Group {
        Group::Memory
    }

    fn help(&self) -> &'static str {
        "limit of the memory that TCP buffers may take"
    }

    fn why(&self) -> &'static str {
        "a burst of slow readers must not take the memory that the engine has planned for itself"
    }

    fn risk(&self) -> &'static str {
        "TCP shrinks its windows earlier with very many connections"
    }

    fn source(&self) -> &'static str {
        "Linux Documentation/networking/ip-sysctl.rst (tcp_mem); seastar #2348"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let perftune = context.options.like_perftune;
        // perftune.py sets it after the network devices, so only if there is one.
        if perftune && context.nics().is_empty() {
            return Vec::new();
        }
        let share = context.options.tcp_memory_share.unwrap_or(SHARE);
        let Some(memory_kib) = memory_kib(context.snapshot) else { return Vec::new() };
        let page = page_bytes(context.snapshot);
        let [low, pressure, high] = pages(memory_kib, page, share);
        let wanted = format!("{low} {pressure} {high}");
        let key = Key::file(PATH);
        let item = context.item(self, "host", "net.ipv4.tcp_mem", key, ValueFormat::Words, &wanted);
        let why = |mut item: Item| {
            item.why = format!(
                "{} % of {} MiB in pages of {page} bytes, from 1/2 over 2/3 to all of it; {}",
                share * 100.0,
                memory_kib / 1024,
                Knob::why(self)
            );
            item
        };
        item.map(why).into_iter().collect()
    }
}

/// Returns `MemTotal` in KiB.
fn memory_kib(snapshot: &Snapshot) -> Option<u64> {
    let text = snapshot.read("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the size of a page, in bytes; 4 KiB where the file is missing. A huge page is what one
/// page of 8-byte page table entries maps: page² / 8 bytes (2 MiB with 4 KiB pages, 512 MiB with
/// 64 KiB pages).
fn page_bytes(snapshot: &Snapshot) -> u64 {
    let huge = snapshot
        .read_number::<u64>("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
        .unwrap_or(2 << 20);
    huge.saturating_mul(8).isqrt()
}

/// Returns the three limits in pages, rounded up.
fn pages(memory_kib: u64, page_bytes: u64, share: f64) -> [u64; 3] {
    #[expect(clippy::cast_precision_loss, reason = "memory in KiB is far below 2^53")]
    let bytes = memory_kib as f64 * 1024.0 * share;
    #[expect(clippy::cast_precision_loss, reason = "a page is at most 64 KiB")]
    let page = page_bytes as f64;
    [bytes / 2.0, bytes * 2.0 / 3.0, bytes].map(|limit| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a page count")]
        let pages = (limit / page).ceil() as u64;
        pages
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_tcp_memory() {
        assert_eq!(pages(64 << 20, 4096, 0.03), [251_659, 335_545, 503_317]);
        assert_eq!(pages(64 << 20, 65_536, 0.03), [15_729, 20_972, 31_458]);
        assert_eq!(pages(64 << 20, 4096, 0.06), [503_317, 671_089, 1_006_633]);
    }

    #[test]
    fn page_size_of_a_host() {
        for (huge, page) in [("2097152", 4096), ("33554432", 16_384), ("536870912", 65_536)] {
            let mut snapshot = Snapshot::default();
            let path = "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size";
            snapshot.write(path, huge);
            assert_eq!(page_bytes(&snapshot), page);
        }
        assert_eq!(page_bytes(&Snapshot::default()), 4096);
    }
}
