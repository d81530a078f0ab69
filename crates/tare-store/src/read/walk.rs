//! Visits the rows of sources, without dead, expired or hidden ones.

use std::ops::ControlFlow;

use super::{End, Next, PartitionRead, ReadError, Row, Scan, Scratch};
use crate::cells::{self, Visibility};
use crate::row_source::{Source, Step};

/// Rows that one call of a read visits.
pub(super) const STEPS: u32 = 4096;

/// Visits the rows of the source's current partition.
#[inline]
pub(super) fn walk<B>(
    source: &mut impl Source<B>,
    blocks: &mut B,
    read: &PartitionRead<'_>,
    scratch: &mut Scratch,
    mut visit: impl FnMut(Row<'_>) -> ControlFlow<()>,
) -> Result<End, ReadError> {
    let PartitionRead { token, key, slices, reversed, after, now_s, .. } = *read;
    for index in 0..slices.len() {
        let slice = slices[if reversed { slices.len() - 1 - index } else { index }];
        let (mut from, mut to) = (slice.from, slice.to);
        match after {
            Some(after) if reversed && to.is_none_or(|to| after < to) => to = Some(after),
            Some(after) if !reversed && after > from => from = after,
            _ => {}
        }
        if to.is_some_and(|to| to <= from) {
            continue;
        }
        if source.seek(from, to, reversed, blocks)? == Step::Missing {
            return Ok(End::Missing);
        }
        while let Some((clustering, cells)) = source.row() {
            let is_outside = match reversed {
                false => to.is_some_and(|to| clustering >= to),
                true => clustering < from,
            };
            if is_outside {
                break;
            }
            if after != Some(clustering) {
                let covering = source.covering(clustering);
                let shown = match cells::visible(cells, covering, now_s, &mut scratch.part) {
                    Visibility::Full => cells,
                    Visibility::Partial => &scratch.part[..],
                    Visibility::Empty => &[],
                };
                let row = Row { token, key, clustering, cells: shown };
                if !shown.is_empty() && visit(row).is_break() {
                    return Ok(End::Stopped);
                }
                scratch.pass(clustering);
                if scratch.looked >= STEPS {
                    return Ok(End::Paused);
                }
            }
            if source.next_row(blocks)? == Step::Missing {
                return Ok(End::Missing);
            }
        }
    }
    Ok(End::Done)
}

/// Visits the rows of all partitions from the source's current one on.
pub(super) fn walk_all<B>(
    source: &mut impl Source<B>,
    blocks: &mut B,
    scan: &mut Scan,
    scratch: &mut Scratch,
    mut visit: impl FnMut(Row<'_>) -> Next,
) -> Result<End, ReadError> {
    let mut steps = scan.steps;
    let Scan { position, to_token, now_s, .. } = scan;
    loop {
        let Some((token, key)) = source.partition() else { return Ok(End::Done) };
        if token > *to_token {
            return Ok(End::Done);
        }
        let is_resumed =
            position.clustering.is_some() && (token, key) == (position.token, &position.key[..]);
        if !is_resumed {
            position.enter(token, key);
        }
        if let Some(after) = &position.clustering
            && source.seek(after, None, false, blocks)? == Step::Missing
        {
            return Ok(End::Missing);
        }
        while let Some((clustering, cells)) = source.row() {
            if steps == 0 {
                return Ok(End::Paused);
            }
            if position.clustering.as_deref() != Some(clustering) {
                steps -= 1;
                scratch.looked += 1;
                position.pass_row(clustering);
                let covering = source.covering(clustering);
                let shown = match cells::visible(cells, covering, *now_s, &mut scratch.part) {
                    Visibility::Full => cells,
                    Visibility::Partial => &scratch.part[..],
                    Visibility::Empty => &[],
                };
                let row =
                    Row { token: position.token, key: &position.key, clustering, cells: shown };
                let next = if shown.is_empty() { Next::Row } else { visit(row) };
                match next {
                    Next::Row => {}
                    Next::Partition => break,
                    Next::Stop => return Ok(End::Stopped),
                }
            }
            if source.next_row(blocks)? == Step::Missing {
                return Ok(End::Missing);
            }
        }
        position.pass_partition();
        if steps == 0 {
            return Ok(End::Paused);
        }
        steps -= 1;
        scratch.looked += 1;
        if source.next_partition(blocks)? == Step::Missing {
            return Ok(End::Missing);
        }
    }
}
