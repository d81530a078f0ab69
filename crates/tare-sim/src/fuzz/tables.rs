//! Table files and manifests: any bytes are opened or refused; a file that passes verification is
//! walked from end to end without an error.

use std::io;
use std::rc::Rc;

use tare_store::manifest::Manifest;
use tare_store::table::{Cursor, FileSource, Start, Step, Table, Verify};

use crate::disk::PAGE;

/// Bytes of a block before its contents.
const HEAD_BYTES: usize = 24;
/// Bounds on the findings and on the rows that are read.
const STEPS_MAX: usize = 10_000;

/// Takes the bytes as a table file, unchanged and with corrected checksums.
pub(super) fn tables(bytes: &[u8]) {
    walk(bytes);
    let mut healed = bytes.to_vec();
    healed.resize(bytes.len().next_multiple_of(PAGE), 0);
    heal(&mut healed);
    walk(&healed);
}

/// Takes the bytes as a manifest, unchanged and with a corrected checksum.
pub(super) fn manifests(bytes: &[u8]) {
    decode(bytes);
    let mut healed = bytes.to_vec();
    if let Some((head, contents)) = healed.split_first_chunk_mut::<16>() {
        let length = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        let length = usize::try_from(length).unwrap_or(usize::MAX).min(contents.len());
        head[12..].copy_from_slice(&crc32c::crc32c(&contents[..length]).to_le_bytes());
        decode(&healed);
    }
}

fn decode(bytes: &[u8]) {
    if let Ok(manifest) = Manifest::decode(bytes) {
        let again = Manifest::decode(manifest.encode().bytes());
        assert_eq!(again.as_ref(), Ok(&manifest), "what was read is written and read again");
    }
}

fn walk(bytes: &[u8]) {
    let read = |offset: u64, out: &mut [u8]| -> io::Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
        let length = out.len().min(bytes.len() - from);
        out[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    };
    let file_bytes = bytes.len() as u64;
    let Ok(verify) = Verify::open(0, file_bytes, read) else { return };
    let is_sound = verify.take(STEPS_MAX).count() == 0;
    let Ok(table) = Table::open(0, file_bytes, read) else { return };
    let mut source = FileSource::new(read);
    let mut cursor = Cursor::new(Rc::new(table));
    let walked = rows(&mut cursor, &mut source);
    assert!(walked.is_ok() || !is_sound, "what is sound can be read: {walked:?}");
}

fn rows<R: FnMut(u64, &mut [u8]) -> io::Result<usize>>(
    cursor: &mut Cursor,
    source: &mut FileSource<R>,
) -> Result<(), tare_store::table::TableError> {
    let mut steps = 0;
    let mut at = cursor.seek_partition(i64::MIN, &[], source)?;
    while at == Step::Ready && cursor.partition().is_some() && steps < STEPS_MAX {
        let _ = cursor.ranges().count();
        let mut at_row = cursor.seek_row(Start::From(&[]), source)?;
        while at_row == Step::Ready && cursor.row().is_some() && steps < STEPS_MAX {
            at_row = cursor.advance(source)?;
            steps += 1;
        }
        at = cursor.next_partition(source)?;
        steps += 1;
    }
    Ok(())
}

/// Corrects the checksum of every block whose length is plausible.
fn heal(bytes: &mut [u8]) {
    let mut from = 0;
    while from + PAGE <= bytes.len() {
        let stored = bytes[from + 16..from + 20].try_into().map_or(0, u32::from_le_bytes);
        let stored = usize::try_from(stored).unwrap_or(usize::MAX);
        let end = stored.saturating_add(HEAD_BYTES).div_ceil(PAGE).saturating_mul(PAGE);
        let end = from.saturating_add(end).min(bytes.len());
        let checksum = crc32c::crc32c(&bytes[from + 4..end]);
        bytes[from..from + 4].copy_from_slice(&checksum.to_le_bytes());
        from = end.max(from + PAGE);
    }
}
