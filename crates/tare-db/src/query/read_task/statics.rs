//! Reads of tables with static columns. The store has the static columns of a partition in a row
//! with an empty clustering key, before all others. A read of slices reads that row first, by its
//! key; a scan comes across it. Its cells are joined to those of each row of the partition. A
//! partition without other rows is a row of the result, if the statement selects whole partitions.

use tare_store::cells;
use tare_store::read::{End, Next, ReadError, Row, Scan};
use tare_store::{Pins, RowRead, Store};

use super::{ReadOptions, ResultPage, Step};
use crate::query::filter::BoundTest;
use crate::query::plan::Select;
use crate::query::ring::owner;

/// The static columns of the partition that a task reads; no cells if it has none.
#[derive(Debug)]
pub(super) struct StaticRow {
    token: i64,
    key: Vec<u8>,
    cells: Vec<u8>,
}

impl StaticRow {
    fn of(row: &Row<'_>) -> Self {
        Self { token: row.token, key: row.key.to_vec(), cells: row.cells.to_vec() }
    }

    fn is_of(&self, token: i64, key: &[u8]) -> bool {
        (self.token, &self.key[..]) == (token, key)
    }
}

/// Loads the static columns of a partition, unless they are there already. Returns false if a
/// block is missing.
pub(super) fn load(
    statics: &mut Option<StaticRow>,
    store: &mut Store,
    pins: &mut Pins,
    (table, token, key): (u32, i64, &[u8]),
    now_s: u32,
) -> Result<bool, ReadError> {
    if statics.as_ref().is_some_and(|row| row.is_of(token, key)) {
        return Ok(true);
    }
    let read = RowRead { table, token, key, clustering: &[], columns: None, now_s };
    let mut cells = Vec::new();
    let end = store.read_row(&read, pins, |row| cells.extend_from_slice(row.cells))?;
    if end == End::Missing {
        return Ok(false);
    }
    *statics = Some(StaticRow { token, key: key.to_vec(), cells });
    Ok(true)
}

/// Goes on with a scan at the shard `here`.
pub(super) fn scan(
    (scan, statics): (&mut Scan, &mut Option<StaticRow>),
    (select, tests, options): (&Select, &[BoundTest], &ReadOptions),
    page: &mut ResultPage,
    (store, pins): (&mut Store, &mut Pins),
    (here, shards): (usize, usize),
) -> Result<Step, ReadError> {
    let position = &scan.position;
    // A scan that begins within a partition has not come across its static columns.
    if statics.is_none() && position.clustering.is_some() {
        let partition = (select.table.store, position.token, &position.key[..]);
        if !load(statics, store, pins, partition, options.now_s)? {
            return Ok(Step::Missing);
        }
    }
    let end = store.scan(scan, pins, |row| {
        let is_same = statics.as_ref().is_some_and(|known| known.is_of(row.token, row.key));
        if !is_same {
            // The partition before is complete.
            if page.take_alone((select, tests), options, statics.as_ref()) == Next::Stop {
                return Next::Stop;
            }
            *statics = None;
        }
        if row.clustering.is_empty() {
            *statics = Some(StaticRow::of(&row));
            return Next::Row;
        }
        page.take_joined((select, tests), options, &row, statics.as_ref())
    })?;
    Ok(match end {
        End::Missing => Step::Missing,
        End::Paused => Step::Yield,
        End::Stopped => Step::Answer,
        End::Done => {
            let next = page.take_alone((select, tests), options, statics.as_ref());
            *statics = None;
            match next != Next::Stop && here < owner(scan.to_token, shards) {
                true => Step::MoveTo(here + 1),
                false => Step::Answer,
            }
        }
    })
}

impl ResultPage {
    /// Takes a row with the static columns of its partition.
    pub(super) fn take_joined(
        &mut self,
        (select, tests): (&Select, &[BoundTest]),
        options: &ReadOptions,
        row: &Row<'_>,
        statics: Option<&StaticRow>,
    ) -> Next {
        // Its own cells decide whether it exists.
        if !select.table.has_row(row.cells) {
            return Next::Row;
        }
        let Some(StaticRow { cells, .. }) = statics.filter(|statics| !statics.cells.is_empty())
        else {
            return self.take((select, tests), options, row);
        };
        let mut joined = Vec::with_capacity(cells.len() + row.cells.len());
        cells::merge(cells, row.cells, &mut joined);
        self.take((select, tests), options, &Row { cells: &joined, ..*row })
    }

    /// Takes the static columns of a partition that has given no row, as one of their own. Returns
    /// where the walk goes next.
    pub(super) fn take_alone(
        &mut self,
        (select, tests): (&Select, &[BoundTest]),
        options: &ReadOptions,
        statics: Option<&StaticRow>,
    ) -> Next {
        let Some(StaticRow { token, key, cells }) = statics else { return Next::Row };
        let is_selected = select.statics.is_some_and(|statics| statics.alone);
        let has_row = self
            .last
            .as_ref()
            .is_some_and(|last| last.in_partition > 0 && (last.token, &last.key) == (*token, key));
        let exists = !cells.is_empty() && select.table.has_row(cells);
        if !is_selected || has_row || !exists {
            return Next::Row;
        }
        self.take((select, tests), options, &Row { token: *token, key, clustering: &[], cells })
    }
}
