//! A disk in memory that knows which writes have been synced, and can crash.

use std::collections::BTreeMap;
use std::io;

use tare_std::rng::Rng;

use crate::io::{Completion, FileId, Files, Op, OpKind};

/// Size of the pieces in which writes are torn.
const SECTOR: usize = 512;

#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    /// The contents after a crash, without unsynced writes.
    files: BTreeMap<FileId, Vec<u8>>,
    /// Writes since the last sync; a crash may lose any part of them, in any order.
    unsynced: Vec<(FileId, usize, Vec<u8>)>,
    /// Whether the disk is full: no file can be created or grow.
    pub(super) full: bool,
    pub(super) carried_out: u64,
}

impl Disk {
    /// Leaves the contents after a power loss: of the unsynced writes, any sectors in any order.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        for (file, at, bytes) in std::mem::take(&mut self.unsynced) {
            for (index, sector) in bytes.chunks(SECTOR).enumerate() {
                if rng.below(3) > 0 {
                    self.put(file, at + index * SECTOR, sector);
                }
            }
        }
    }

    pub(super) fn bytes_mut(&mut self, file: FileId) -> &mut Vec<u8> {
        self.files.get_mut(&file).expect("the file exists")
    }

    pub(super) fn names(&self) -> Vec<FileId> {
        self.files.keys().copied().collect()
    }

    fn put(&mut self, file: FileId, at: usize, bytes: &[u8]) {
        let Some(file) = self.files.get_mut(&file) else { return };
        if file.len() < at + bytes.len() {
            file.resize(at + bytes.len(), 0);
        }
        file[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn sync(&mut self, file: FileId) {
        let (synced, rest) = self.unsynced.drain(..).partition(|(of, _, _)| *of == file);
        self.unsynced = rest;
        let synced: Vec<_> = synced;
        synced.iter().for_each(|(file, at, bytes)| self.put(*file, *at, bytes));
    }

    fn length_seen(&self, file: FileId) -> usize {
        let unsynced = self.unsynced.iter().filter(|(of, _, _)| *of == file);
        let end = unsynced.map(|(_, at, bytes)| at + bytes.len()).max().unwrap_or(0);
        self.files.get(&file).map_or(0, Vec::len).max(end)
    }

    fn read(&self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let bytes = self.files.get(&file).ok_or(io::ErrorKind::NotFound)?;
        let from = usize::try_from(offset).unwrap();
        let length = buffer.len().min(self.length_seen(file).saturating_sub(from));
        let buffer = &mut buffer[..length];
        buffer.fill(0);
        let old = bytes.get(from..).unwrap_or_default();
        let known = old.len().min(length);
        buffer[..known].copy_from_slice(&old[..known]);
        for (_, at, bytes) in self.unsynced.iter().filter(|(of, _, _)| *of == file) {
            let (start, end) = ((*at).max(from), (at + bytes.len()).min(from + length));
            if start < end {
                buffer[start - from..end - from].copy_from_slice(&bytes[start - at..end - at]);
            }
        }
        Ok(length)
    }

    fn run(&mut self, file: FileId, kind: &mut OpKind) -> io::Result<usize> {
        match kind {
            OpKind::Read { offset, chunk } => return self.read(file, *offset, chunk.bytes_mut()),
            OpKind::Write { offset, chunk, sync } => {
                let at = usize::try_from(*offset).unwrap();
                if self.full && at + chunk.len() > self.length_seen(file) {
                    return Err(io::ErrorKind::StorageFull.into());
                }
                self.unsynced.push((file, at, chunk.bytes().to_vec()));
                if *sync {
                    self.sync(file);
                }
                return Ok(chunk.len());
            }
            OpKind::Sync => self.sync(file),
            OpKind::Create { .. } if self.full => return Err(io::ErrorKind::StorageFull.into()),
            OpKind::Create { size_bytes } => {
                self.unsynced.retain(|(of, _, _)| *of != file);
                self.files.insert(file, vec![0; usize::try_from(*size_bytes).unwrap()]);
            }
            OpKind::Truncate { length } => {
                self.sync(file);
                self.bytes_mut(file).truncate(usize::try_from(*length).unwrap());
            }
            OpKind::Remove => {
                self.unsynced.retain(|(of, _, _)| *of != file);
                self.files.remove(&file).ok_or(io::ErrorKind::NotFound)?;
            }
            OpKind::Rename { to } => {
                self.unsynced.retain(|(of, _, _)| of != to);
                let bytes = self.files.remove(&file).ok_or(io::ErrorKind::NotFound)?;
                self.files.insert(*to, bytes);
                for (of, _, _) in self.unsynced.iter_mut().filter(|(of, _, _)| *of == file) {
                    *of = *to;
                }
            }
        }
        Ok(0)
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<FileId>> {
        Ok(self.names())
    }

    fn length(&self, file: FileId) -> io::Result<u64> {
        Ok(self.length_seen(file) as u64)
    }

    fn read_at(&self, file: FileId, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        // Reads may be short.
        let length = buffer.len().min(70_000);
        self.read(file, offset, &mut buffer[..length])
    }

    fn carry_out(&mut self, op: Op) -> Completion {
        self.carried_out += 1;
        let Op { id, file, mut kind } = op;
        let result = self.run(file, &mut kind);
        let chunk = match kind {
            OpKind::Read { chunk, .. } | OpKind::Write { chunk, .. } => Some(chunk),
            _ => None,
        };
        Completion { id, chunk, result }
    }

    fn name(&self, file: FileId) -> String {
        file.file_name()
    }
}
