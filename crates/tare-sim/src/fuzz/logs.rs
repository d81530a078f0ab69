//! Commit logs: with any bytes in a segment, recovery ends with an error or with a store, and a
//! second recovery finds what the first one left. Valid entries before the damage are neither lost
//! nor changed.

use tare_store::entry::{ENTRY_HEAD_BYTES, GROUP_HEAD_BYTES, GroupHead};
use tare_store::{Durability, FileId, Now};

use crate::device::Device;
use crate::disk::PAGE;
use crate::engine::{self, Engine, PartialScan, Progress};
use crate::faults::Faults;
use crate::files::DeviceFiles;
use crate::history::Contents;
use crate::workload::TABLES;
use tare_std::rng::Rng;

/// Takes the bytes as a segment, unchanged and with corrected checksums.
pub(super) fn logs(bytes: &[u8]) {
    recover(bytes);
    let mut healed = bytes.to_vec();
    heal(&mut healed);
    recover(&healed);
}

fn recover(bytes: &[u8]) {
    let mut device = Device::new(Rng::new(0), Faults::none(), None, 1 << 30);
    device.disk.create(FileId::Log(0), 0);
    device.disk.write(FileId::Log(0), 0, bytes);
    device.disk.sync(FileId::Log(0), u64::MAX);
    let Some(first) = contents(&mut device) else { return };
    let second = contents(&mut device).expect("what was recovered once is recovered again");
    assert_eq!(first, second);
}

/// The contents of a store on this disk; `None` if it cannot be opened.
fn contents(device: &mut Device) -> Option<Contents> {
    let now = Now { monotonic_ns: 0, wall_s: 1_700_000_000 };
    let mut files = DeviceFiles::new(device, Rng::new(0), None);
    let mut engine =
        Engine::open(&mut files, engine::limits(Durability::Sync, 1 << 20), now).ok()?;
    let mut contents = Contents::new();
    for table in TABLES {
        let mut scanning = PartialScan::new(table, now.wall_s, u32::MAX);
        assert_eq!(engine.scan(&mut scanning), Progress::Done);
        contents.extend(scanning.partitions);
    }
    Some(contents)
}

/// Corrects the checksums of all groups' heads and entries, and the lengths in the heads.
fn heal(bytes: &mut [u8]) {
    for page in (0..bytes.len()).step_by(PAGE) {
        let Some(head) = bytes[page..].first_chunk_mut::<GROUP_HEAD_BYTES>() else { return };
        let number =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
        let length = u32::from_le_bytes(head[24..28].try_into().unwrap_or_default());
        if head[..8] != tare_store::entry::MAGIC {
            continue;
        }
        *head = GroupHead { sequence: number(8), durable: number(16), length }.encode();
        let entries = page + GROUP_HEAD_BYTES;
        let end = entries.saturating_add(usize::try_from(length).unwrap_or(usize::MAX));
        let end = end.min(bytes.len());
        heal_entries(&mut bytes[entries.min(end)..end]);
    }
}

fn heal_entries(mut bytes: &mut [u8]) {
    while bytes.len() > ENTRY_HEAD_BYTES {
        let (head, rest) = bytes.split_at_mut(ENTRY_HEAD_BYTES);
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(rest.len());
        let (payload, rest) = rest.split_at_mut(length);
        head[4..].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        bytes = rest;
    }
}
