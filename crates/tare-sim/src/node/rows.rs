//! The model of the rows: for each row, the writes that may be its content. A write has a number
//! that is its timestamp, so the greatest number that was applied is what a reader sees.

use std::collections::BTreeMap;

use tare_std::rng::mix64;

/// Partition key and clustering key of a row.
pub(crate) type RowKey = (i32, i32);

/// What a write did to one row.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Length of the value; `None` for a deletion.
    length: Option<usize>,
    /// The server has said that it did not write it.
    is_refused: bool,
}

#[derive(Clone, Debug, Default)]
struct Row {
    writes: BTreeMap<i64, Entry>,
    /// The newest acknowledged write.
    acknowledged: i64,
    /// The newest write that a reader has seen since the last start.
    seen: i64,
    /// The newest write that a crash cannot take.
    durable: i64,
}

/// All rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    rows: BTreeMap<RowKey, Row>,
    written: i64,
}

/// A write of some rows.
#[derive(Clone, Debug)]
pub(crate) struct Write {
    pub(crate) number: i64,
    pub(crate) rows: Vec<RowKey>,
}

/// The value of a write: its number, then bytes that follow from it.
pub(crate) fn value(number: i64, length: usize) -> Vec<u8> {
    let mut value = number.to_be_bytes().to_vec();
    let mut filler = number.cast_unsigned();
    while value.len() < length {
        filler = mix64(filler);
        value.extend_from_slice(&filler.to_be_bytes());
    }
    value.truncate(length.max(8));
    value
}

impl Rows {
    /// Notes a write that is about to be sent: of a value of this length, or a deletion.
    pub(crate) fn begin(&mut self, rows: Vec<RowKey>, length: Option<usize>) -> Write {
        self.written += 1;
        let number = self.written;
        for key in &rows {
            let row = self.rows.entry(*key).or_default();
            let kept = row.acknowledged.min(row.durable).min(row.seen.max(1));
            row.writes = row.writes.split_off(&kept);
            row.writes.insert(number, Entry { length, is_refused: false });
        }
        Write { number, rows }
    }

    pub(crate) fn acknowledge(&mut self, write: &Write) {
        for key in &write.rows {
            if let Some(row) = self.rows.get_mut(key) {
                row.acknowledged = row.acknowledged.max(write.number);
            }
        }
    }

    /// Notes that the server has not written it, and never will.
    pub(crate) fn refuse(&mut self, write: &Write) {
        for key in &write.rows {
            let entry = self.rows.get_mut(key).and_then(|row| row.writes.get_mut(&write.number));
            if let Some(entry) = entry {
                entry.is_refused = true;
            }
        }
    }

    /// The oldest write that a read which is sent now may return.
    pub(crate) fn floor(&self, key: RowKey) -> i64 {
        self.rows.get(&key).map_or(0, |row| row.acknowledged.max(row.seen))
    }

    /// Checks what a read has returned for a row. `floor` was taken when the read was sent.
    pub(crate) fn check(
        &mut self,
        key: RowKey,
        found: Option<&[u8]>,
        floor: i64,
    ) -> Result<(), String> {
        let row = self.rows.entry(key).or_default();
        let wrong = |what: String| Err(format!("row {key:?} {what}; write {floor} was there"));
        let Some(found) = found else {
            // Without a write there is nothing that a deletion must explain.
            if floor == 0 {
                return Ok(());
            }
            let deletions =
                row.writes.range(floor..).filter(|(_, e)| e.length.is_none() && !e.is_refused);
            return match deletions.map(|(number, _)| *number).next() {
                Some(number) => {
                    row.seen = row.seen.max(number);
                    Ok(())
                }
                None => wrong("is missing".into()),
            };
        };
        let number = found.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
        match row.writes.get(&number) {
            _ if number < floor => wrong(format!("has the value of write {number}")),
            Some(Entry { is_refused: true, .. }) => {
                wrong(format!("has the value of write {number}, which was refused"))
            }
            Some(Entry { length: Some(length), .. }) if value(number, *length) == found => {
                row.seen = row.seen.max(number);
                Ok(())
            }
            _ => wrong("has a value that nobody wrote".into()),
        }
    }

    /// The server has crashed. A crash takes no acknowledged write if all of them are synced
    /// before they are acknowledged.
    pub(crate) fn crashed(&mut self, synced: bool) {
        for row in self.rows.values_mut() {
            if !synced {
                row.acknowledged = row.durable;
            }
            row.durable = row.acknowledged;
            row.seen = row.acknowledged;
        }
    }

    /// The server has stopped cleanly.
    pub(crate) fn stopped(&mut self) {
        for row in self.rows.values_mut() {
            row.durable = row.acknowledged;
            row.seen = row.acknowledged;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: RowKey = (1, 1);

    #[test]
    fn acknowledged_value_must_be_there_and_older_one_not() {
        let mut rows = Rows::default();
        let first = rows.begin(vec![KEY], Some(20));
        rows.acknowledge(&first);
        let second = rows.begin(vec![KEY], Some(30));
        let floor = rows.floor(KEY);
        assert!(rows.check(KEY, None, floor).is_err());
        assert!(rows.check(KEY, Some(&value(1, 20)), floor).is_ok());
        assert!(rows.check(KEY, Some(&value(1, 21)), floor).is_err());
        assert!(rows.check(KEY, Some(&value(2, 30)), floor).is_ok());
        assert!(rows.check(KEY, Some(&value(1, 20)), rows.floor(KEY)).is_err(), "it was newer");
        rows.refuse(&second);
        assert!(rows.check(KEY, Some(&value(2, 30)), floor).is_err());
    }

    #[test]
    fn crash_forgets_what_was_only_seen() {
        let mut rows = Rows::default();
        let write = rows.begin(vec![KEY], Some(20));
        assert!(rows.check(KEY, Some(&value(1, 20)), 0).is_ok());
        rows.crashed(true);
        assert!(rows.check(KEY, None, rows.floor(KEY)).is_ok());
        rows.acknowledge(&write);
        rows.crashed(false);
        assert!(rows.check(KEY, None, rows.floor(KEY)).is_ok(), "it was not synced");
        rows.acknowledge(&write);
        rows.stopped();
        rows.crashed(false);
        assert!(rows.check(KEY, None, rows.floor(KEY)).is_err());
    }

    #[test]
    fn deletion_explains_a_missing_row() {
        let mut rows = Rows::default();
        let write = rows.begin(vec![KEY], Some(20));
        rows.acknowledge(&write);
        rows.begin(vec![KEY], None);
        assert!(rows.check(KEY, None, rows.floor(KEY)).is_ok());
        assert!(rows.check(KEY, Some(&value(1, 20)), rows.floor(KEY)).is_err());
    }

    #[test]
    fn missing_row_does_not_prove_a_deletion() {
        let mut rows = Rows::default();
        rows.begin(vec![KEY], Some(20));
        let deletion = rows.begin(vec![KEY], None);
        assert!(rows.check(KEY, None, 0).is_ok());
        rows.refuse(&deletion);
        assert!(rows.check(KEY, Some(&value(1, 20)), rows.floor(KEY)).is_ok());
    }
}
