//! A disk in memory: files of 4 KiB pages, in two versions: as a running program sees them, and as
//! they would be after a power loss. It has no operations under way (see [`crate::device`]); it
//! only distinguishes synced data from unsynced.

use std::collections::BTreeMap;
use std::rc::Rc;

use tare_std::rng::Rng;

use crate::faults::PowerLoss;
use tare_store::FileId;

/// Size of a page, in bytes.
pub(crate) const PAGE: usize = 4096;
/// The unit that a disk writes as a whole, in bytes: the smallest logical block in common use.
pub(crate) const SECTOR: usize = 512;

/// The sparse contents of one file. Pages are shared between copies until one is written.
#[derive(Clone, Debug, Default)]
struct Pages {
    pages: BTreeMap<u64, Rc<[u8; PAGE]>>,
    length: u64,
}

/// A write that a power loss may still undo, in part.
#[derive(Clone, Debug)]
struct Unsynced {
    number: u64,
    offset: u64,
    bytes: Rc<[u8]>,
}

/// One file.
#[derive(Clone, Debug, Default)]
struct Inode {
    now: Pages,
    durable: Pages,
    unsynced: Vec<Unsynced>,
    /// Writes of a failed sync: no later sync makes them durable.
    limbo: Vec<Unsynced>,
    writes: u64,
}

/// The position of a flipped bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flip {
    pub(crate) file: FileId,
    pub(crate) offset: u64,
    mask: u8,
    inode: u64,
}

/// All files of one shard.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    inodes: BTreeMap<u64, Inode>,
    names: BTreeMap<FileId, u64>,
    next_inode: u64,
    capacity_bytes: u64,
}

impl Pages {
    fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let length = usize::try_from(self.length.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = length.min(out.len());
        let out = &mut out[..length];
        let mut at = 0;
        while at < length {
            let (page, inside) = split(offset + at as u64);
            let step = (PAGE - inside).min(length - at);
            match self.pages.get(&page) {
                Some(bytes) => {
                    out[at..at + step].copy_from_slice(&bytes[inside..inside + step]);
                }
                None => out[at..at + step].fill(0),
            }
            at += step;
        }
        length
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            let (page, inside) = split(offset + at as u64);
            let step = (PAGE - inside).min(bytes.len() - at);
            let target = self.pages.entry(page).or_insert_with(|| Rc::new([0; PAGE]));
            Rc::make_mut(target)[inside..inside + step].copy_from_slice(&bytes[at..at + step]);
            at += step;
        }
        self.length = self.length.max(offset + bytes.len() as u64);
    }

    fn truncate(&mut self, length: u64) {
        let (page, inside) = split(length);
        self.pages.split_off(&if inside == 0 { page } else { page + 1 });
        if inside > 0
            && let Some(bytes) = self.pages.get_mut(&page)
        {
            Rc::make_mut(bytes)[inside..].fill(0);
        }
        self.length = length;
    }
}

fn split(offset: u64) -> (u64, usize) {
    #[expect(clippy::cast_possible_truncation, reason = "below the size of a page")]
    let inside = (offset % PAGE as u64) as usize;
    (offset / PAGE as u64, inside)
}

impl Inode {
    /// Whether a power loss may change a page.
    fn is_moving(&self, page: u64) -> bool {
        let mut moving = self.unsynced.iter().chain(&self.limbo);
        moving.any(|write| {
            let end = write.offset + write.bytes.len() as u64;
            write.offset < (page + 1) * PAGE as u64 && page * (PAGE as u64) < end
        })
    }
}

impl Disk {
    pub(crate) fn new(capacity_bytes: u64) -> Self {
        Self { inodes: BTreeMap::new(), names: BTreeMap::new(), next_inode: 0, capacity_bytes }
    }

    /// Changes the capacity; existing files stay.
    pub(crate) fn set_capacity(&mut self, bytes: u64) {
        self.capacity_bytes = bytes;
    }

    /// Bytes that the files occupy, including reserved space.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.inodes.values().map(|inode| inode.now.length).sum()
    }

    /// Whether so many more bytes fit.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.used_bytes() + bytes <= self.capacity_bytes
    }

    /// The names of all files, in order.
    pub(crate) fn names(&self) -> Vec<FileId> {
        self.names.keys().copied().collect()
    }

    pub(crate) fn exists(&self, file: FileId) -> bool {
        self.names.contains_key(&file)
    }

    /// Length in bytes; `None` if the file does not exist.
    pub(crate) fn length(&self, file: FileId) -> Option<u64> {
        Some(self.inode(file)?.now.length)
    }

    /// Reads the data that a running program sees; `None` if the file does not exist.
    pub(crate) fn read(&self, file: FileId, offset: u64, out: &mut [u8]) -> Option<usize> {
        Some(self.inode(file)?.now.read(offset, out))
    }

    /// The numbers of the pages of a file that were written.
    pub(crate) fn pages(&self, file: FileId) -> Vec<u64> {
        self.inode(file).map_or_else(Vec::new, |inode| inode.now.pages.keys().copied().collect())
    }

    /// Creates an empty file durably. It replaces a file of this name.
    pub(crate) fn create(&mut self, file: FileId, size_bytes: u64) {
        let mut inode = Inode::default();
        inode.now.length = size_bytes;
        inode.durable.length = size_bytes;
        let number = self.next_inode;
        self.next_inode += 1;
        self.inodes.insert(number, inode);
        self.names.insert(file, number);
        self.forget_nameless();
    }

    /// Removes a name durably. Returns whether it existed.
    pub(crate) fn remove(&mut self, file: FileId) -> bool {
        let was_there = self.names.remove(&file).is_some();
        self.forget_nameless();
        was_there
    }

    /// Renames durably, replacing the new name. Returns whether the old name existed.
    pub(crate) fn rename(&mut self, from: FileId, to: FileId) -> bool {
        let Some(inode) = self.names.remove(&from) else { return false };
        self.names.insert(to, inode);
        self.forget_nameless();
        true
    }

    /// Shortens a file durably, and with `sync` makes all of its data durable. Returns whether it
    /// existed.
    pub(crate) fn truncate(&mut self, file: FileId, length: u64, sync: bool) -> bool {
        let Some(inode) = self.inode_mut(file) else { return false };
        inode.now.truncate(length);
        if sync {
            inode.durable = inode.now.clone();
            inode.unsynced.clear();
        } else {
            inode.durable.truncate(length);
            inode.unsynced.retain(|write| write.offset < length);
            for write in &mut inode.unsynced {
                let kept = usize::try_from(length - write.offset).unwrap_or(usize::MAX);
                write.bytes = write.bytes[..kept.min(write.bytes.len())].into();
            }
        }
        true
    }

    /// Writes without durability. Returns the number of the write in its file, for [`Self::sync`].
    pub(crate) fn write(&mut self, file: FileId, offset: u64, bytes: &[u8]) -> Option<u64> {
        let inode = self.inode_mut(file)?;
        let number = inode.writes;
        inode.writes += 1;
        inode.now.write(offset, bytes);
        inode.unsynced.push(Unsynced { number, offset, bytes: bytes.into() });
        Some(number)
    }

    /// Number of writes to this file so far: a sync that starts now covers these.
    pub(crate) fn writes(&self, file: FileId) -> u64 {
        self.inode(file).map_or(0, |inode| inode.writes)
    }

    /// Makes the writes below a number durable.
    pub(crate) fn sync(&mut self, file: FileId, below: u64) {
        let Some(inode) = self.inode_mut(file) else { return };
        for write in &inode.unsynced {
            if write.number < below {
                inode.durable.write(write.offset, &write.bytes);
            }
        }
        inode.unsynced.retain(|write| write.number >= below);
        inode.durable.length = inode.durable.length.max(inode.now.length);
    }

    /// Fails a sync: whether its writes ever reach the disk is open, and no later sync reports it.
    pub(crate) fn fail_sync(&mut self, file: FileId, below: u64) {
        let Some(inode) = self.inode_mut(file) else { return };
        let (given_up, kept) = std::mem::take(&mut inode.unsynced)
            .into_iter()
            .partition::<Vec<_>, _>(|write| write.number < below);
        inode.unsynced = kept;
        inode.limbo.extend(given_up);
    }

    /// Cuts the power: of the unsynced writes, any sectors survive.
    pub(crate) fn lose_power(&mut self, rng: &mut Rng, how: PowerLoss) {
        for inode in self.inodes.values_mut() {
            let limbo = std::mem::take(&mut inode.limbo);
            let unsynced = std::mem::take(&mut inode.unsynced);
            for write in limbo.into_iter().chain(unsynced) {
                tear(&mut inode.durable, write.offset, &write.bytes, rng, how);
            }
            inode.now = inode.durable.clone();
        }
    }

    /// Tears a write: any of its sectors arrive. A power loss may still undo them.
    pub(crate) fn tear_write(&mut self, file: FileId, offset: u64, bytes: &[u8], rng: &mut Rng) {
        let Some(inode) = self.inode(file) else { return };
        let mut torn = vec![0; bytes.len()];
        let there = inode.now.read(offset, &mut torn);
        let longer = (offset + bytes.len() as u64).saturating_sub(inode.now.length);
        let mut kept = 0;
        for (index, sector) in bytes.chunks(SECTOR).enumerate() {
            if rng.below(2) == 0 {
                let from = index * SECTOR;
                torn[from..from + sector.len()].copy_from_slice(sector);
                kept = from + sector.len();
            }
        }
        // If the write was to extend the file, the file ends with the last sector that arrived.
        let length = if longer > 0 { kept.max(there) } else { bytes.len() };
        if length > 0 {
            self.write(file, offset, &torn[..length]);
        }
    }

    /// Flips one bit of stored data, somewhere in a page that was written.
    pub(crate) fn flip(&mut self, rng: &mut Rng) -> Option<Flip> {
        let written = self.names.iter().flat_map(|(&file, &inode)| {
            let contents = &self.inodes[&inode];
            // Unsynced data may still be overwritten.
            let at_rest = contents.durable.pages.keys().filter(|&&page| !contents.is_moving(page));
            at_rest.map(move |&page| (file, inode, page))
        });
        let places: Vec<_> = written.collect();
        if places.is_empty() {
            return None;
        }
        let pick = usize::try_from(rng.below(places.len() as u64)).unwrap_or(0);
        let (file, inode, page) = places[pick];
        // The start of a page often has the metadata that everything else depends on: half of all
        // flips hit its first bytes.
        let inside = if rng.below(2) == 0 { rng.below(64) } else { rng.below(PAGE as u64) };
        let flip =
            Flip { file, offset: page * PAGE as u64 + inside, mask: 1 << rng.below(8), inode };
        self.toggle(&flip);
        Some(flip)
    }

    /// Restores a flipped bit, if its file still exists.
    pub(crate) fn repair(&mut self, flip: &Flip) {
        self.toggle(flip);
    }

    fn toggle(&mut self, flip: &Flip) {
        let Some(inode) = self.inodes.get_mut(&flip.inode) else { return };
        for pages in [&mut inode.now, &mut inode.durable] {
            let (page, inside) = split(flip.offset);
            if let Some(bytes) = pages.pages.get_mut(&page) {
                Rc::make_mut(bytes)[inside] ^= flip.mask;
            }
        }
    }

    fn inode(&self, file: FileId) -> Option<&Inode> {
        self.inodes.get(self.names.get(&file)?)
    }

    fn inode_mut(&mut self, file: FileId) -> Option<&mut Inode> {
        self.inodes.get_mut(self.names.get(&file)?)
    }

    fn forget_nameless(&mut self) {
        let names = &self.names;
        self.inodes.retain(|number, _| names.values().any(|named| named == number));
    }
}

fn tear(pages: &mut Pages, offset: u64, bytes: &[u8], rng: &mut Rng, how: PowerLoss) {
    match how {
        PowerLoss::All => {}
        PowerLoss::Nothing => pages.write(offset, bytes),
        PowerLoss::Writes => {
            if rng.below(2) == 0 {
                pages.write(offset, bytes);
            }
        }
        PowerLoss::Sectors => {
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                if rng.below(2) == 0 {
                    pages.write(offset + (index * SECTOR) as u64, sector);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: FileId = FileId::Log(0);

    fn disk() -> Disk {
        let mut disk = Disk::new(1 << 30);
        disk.create(LOG, 3 * PAGE as u64);
        disk
    }

    fn contents(disk: &Disk) -> Vec<u8> {
        let mut out = vec![0; 3 * PAGE];
        assert_eq!(disk.read(LOG, 0, &mut out), Some(3 * PAGE));
        out
    }

    #[test]
    fn only_synced_writes_surely_survive() {
        let mut disk = disk();
        let first = disk.write(LOG, 0, &[1; PAGE]).unwrap();
        disk.sync(LOG, first + 1);
        disk.write(LOG, PAGE as u64, &[2; PAGE]).unwrap();
        assert_eq!(contents(&disk)[PAGE], 2, "a running program sees it");
        disk.lose_power(&mut Rng::new(1), PowerLoss::All);
        assert_eq!(contents(&disk)[..PAGE], [1; PAGE]);
        assert_eq!(contents(&disk)[PAGE..], [0; 2 * PAGE]);
    }

    #[test]
    fn power_loss_tears_writes() {
        let mut disk = disk();
        disk.write(LOG, 0, &[1; 2 * PAGE]).unwrap();
        disk.lose_power(&mut Rng::new(1), PowerLoss::Sectors);
        let bytes = contents(&disk);
        let sectors: Vec<u8> = bytes.chunks(SECTOR).map(|sector| sector[0]).collect();
        assert!(sectors.contains(&0) && sectors.contains(&1), "{sectors:?}");
        assert!(bytes.chunks(SECTOR).all(|s| s.iter().all(|&byte| byte == s[0])));
    }

    #[test]
    fn later_sync_does_not_repair_a_failed_one() {
        let mut disk = disk();
        let number = disk.write(LOG, 0, &[1; PAGE]).unwrap();
        disk.fail_sync(LOG, number + 1);
        disk.sync(LOG, u64::MAX);
        disk.lose_power(&mut Rng::new(1), PowerLoss::All);
        assert_eq!(contents(&disk)[0], 0);
    }

    #[test]
    fn flip_changes_one_bit_and_can_be_restored() {
        let mut disk = disk();
        disk.write(LOG, 0, &[1; PAGE]).unwrap();
        disk.sync(LOG, u64::MAX);
        let before = contents(&disk);
        let flip = disk.flip(&mut Rng::new(1)).unwrap();
        let changed = |disk: &Disk| -> u32 {
            let after = contents(disk);
            before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum()
        };
        assert_eq!(changed(&disk), 1);
        disk.repair(&flip);
        assert_eq!(changed(&disk), 0);
    }

    #[test]
    fn renamed_files_move_and_replaced_ones_disappear() {
        let mut disk = disk();
        disk.create(FileId::ManifestDraft, 10);
        assert!(disk.rename(FileId::ManifestDraft, FileId::Manifest));
        assert_eq!(disk.names(), [LOG, FileId::Manifest]);
        assert!(disk.remove(LOG) && !disk.remove(LOG));
        assert_eq!(disk.used_bytes(), 10);
    }
}
