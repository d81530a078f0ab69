//! Parses the log's format independently of the store, to find how far the log proves its own
//! durability, and where to plant a forgery.

use tare_store::entry::{ENTRY_HEAD_BYTES, GROUP_HEAD_BYTES, GroupHead};

use crate::disk::{Disk, PAGE};
use tare_store::FileId;

/// Tickets below this are durable according to a later group of the log: if any of them is missing,
/// that is damage, and no torn tail.
pub(crate) fn vouched(disk: &Disk) -> u64 {
    groups(disk).iter().map(|(_, _, head)| head.durable).max().unwrap_or(0)
}

/// The first ticket that is durable, as far as the log tells, only by its own group.
pub(crate) fn unproven(disk: &Disk) -> Option<u64> {
    let vouched = vouched(disk);
    let sequences = groups(disk).into_iter().map(|(_, _, head)| head.sequence);
    sequences.filter(|sequence| *sequence >= vouched).min()
}

/// A description of every group of the log.
pub(crate) fn describe(disk: &Disk) -> Vec<String> {
    let line = |(file, offset, head): (FileId, u64, GroupHead)| {
        let GroupHead { sequence, durable, length } = head;
        let name = file.file_name();
        format!("{name} at {offset}: group {sequence}, {length} bytes, durable below {durable}")
    };
    groups(disk).into_iter().map(line).collect()
}

/// Changes the last byte of an entry in the newest group and corrects its checksum. Returns whether
/// there was such an entry.
pub(crate) fn forge(disk: &mut Disk) -> bool {
    let groups = groups(disk).into_iter().filter(|(_, _, head)| head.length > 0);
    let Some((file, offset, head)) = groups.max_by_key(|(_, _, head)| head.sequence) else {
        return false;
    };
    let mut entry = [0; ENTRY_HEAD_BYTES];
    let start = offset + GROUP_HEAD_BYTES as u64;
    disk.read(file, start, &mut entry);
    let length = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
    let mut payload = vec![0; usize::try_from(length.min(head.length)).unwrap_or(0)];
    disk.read(file, start + ENTRY_HEAD_BYTES as u64, &mut payload);
    let Some(last) = payload.last_mut() else { return false };
    *last ^= 1;
    entry[4..].copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
    disk.write(file, start, &entry);
    disk.write(file, start + ENTRY_HEAD_BYTES as u64, &payload);
    disk.sync(file, u64::MAX);
    true
}

/// Every readable group head in the log: file, offset, head.
fn groups(disk: &Disk) -> Vec<(FileId, u64, GroupHead)> {
    let mut groups = Vec::new();
    for file in disk.names().into_iter().filter(|file| matches!(file, FileId::Log(_))) {
        let mut head = [0; GROUP_HEAD_BYTES];
        for page in disk.pages(file) {
            disk.read(file, page * PAGE as u64, &mut head);
            let decoded = GroupHead::decode(&head);
            groups.extend(decoded.map(|head| (file, page * PAGE as u64, head)));
        }
    }
    groups
}
