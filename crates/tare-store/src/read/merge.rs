//! Merges the rows of several sources, for reads, flushes and compactions.
//!
//! There are few sources (a shard has some tens of tables at most, and most of them are excluded
//! before), so the least key is found by checking each.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::ops::Bound;

use super::ReadError;
use crate::cells::{self, Deletion};
use crate::entry::RangeTombstone;
use crate::row_source::{Source, Step};

/// The union of sources, partition by partition, row by row, with reconciled cells; it is a source
/// itself. It keeps dead data and does not apply range tombstones: see `Source::covering`.
/// Sources must be at their first row of a partition.
///
/// After [`Step::Missing`] only the same call may follow; it continues where the last one stopped.
#[derive(Debug)]
pub struct Merge<S, B> {
    sources: Vec<S>,
    /// The token of each source's partition, so that finding the least one reads no block.
    tokens: Vec<Option<i64>>,
    /// Sources that have the partition.
    inside: Vec<usize>,
    /// Sources that are at the row.
    at: Vec<usize>,
    /// Sources that still have to take the interrupted step.
    pending: Vec<usize>,
    /// The row's cells, if several sources have it.
    cells: Vec<u8>,
    spare: Vec<u8>,
    reversed: bool,
    blocks: PhantomData<fn(&mut B)>,
}

impl<S: Source<B>, B> Merge<S, B> {
    /// The union, at its first row.
    pub fn new(sources: Vec<S>) -> Self {
        let mut merge = Self {
            tokens: vec![None; sources.len()],
            // At first all of them have moved.
            inside: (0..sources.len()).collect(),
            sources,
            at: Vec::new(),
            pending: Vec::new(),
            cells: Vec::new(),
            spare: Vec::new(),
            reversed: false,
            blocks: PhantomData,
        };
        merge.enter();
        merge
    }

    /// Collects the range tombstones of the partition in all sources into `out`, which is cleared
    /// first.
    pub fn ranges_into(&self, out: &mut Ranges) {
        out.clear();
        for &index in &self.inside {
            self.sources[index].ranges(&mut |range| out.add(&range));
        }
    }

    /// Finds the sources that have the next partition. Those that had the one before have moved.
    fn enter(&mut self) {
        for index in self.inside.drain(..) {
            self.tokens[index] = self.sources[index].partition().map(|(token, _)| token);
        }
        self.reversed = false;
        let least = self.tokens.iter().flatten().min().copied();
        for (index, _) in self.tokens.iter().enumerate().filter(|(_, token)| **token == least) {
            let key = |index: usize| self.sources[index].partition().map(|(_, key)| key);
            let Some(found) = key(index) else { continue };
            let first = self.inside.first().and_then(|&first| key(first));
            match first.map_or(Ordering::Less, |first| found.cmp(first)) {
                Ordering::Less => {
                    self.inside.clear();
                    self.inside.push(index);
                }
                Ordering::Equal => self.inside.push(index),
                Ordering::Greater => {}
            }
        }
        self.gather();
    }

    /// Finds the sources that are at the next row, and merges their cells.
    fn gather(&mut self) {
        self.at.clear();
        let key = |index: usize| self.sources[index].row().map(|(clustering, _)| clustering);
        for &index in &self.inside {
            let Some(clustering) = key(index) else { continue };
            let order = match self.at.first().and_then(|&first| key(first)) {
                None => Ordering::Less,
                Some(first) if self.reversed => first.cmp(clustering),
                Some(first) => clustering.cmp(first),
            };
            match order {
                Ordering::Less => {
                    self.at.clear();
                    self.at.push(index);
                }
                Ordering::Equal => self.at.push(index),
                Ordering::Greater => {}
            }
        }
        if let [first, rest @ ..] = &self.at[..]
            && !rest.is_empty()
        {
            let cells = |index: usize| self.sources[index].row().map_or(&[][..], |(_, c)| c);
            self.cells.clear();
            self.cells.extend_from_slice(cells(*first));
            for &index in rest {
                cells::merge(&self.cells, cells(index), &mut self.spare);
                std::mem::swap(&mut self.cells, &mut self.spare);
            }
        }
    }
}

impl<S: Source<B>, B> Source<B> for Merge<S, B> {
    fn partition(&self) -> Option<(i64, &[u8])> {
        self.sources[*self.inside.first()?].partition()
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        let (clustering, cells) = self.sources[*self.at.first()?].row()?;
        Some((clustering, if self.at.len() == 1 { cells } else { &self.cells }))
    }

    fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        self.inside.iter().filter_map(|&index| self.sources[index].covering(clustering)).max()
    }

    fn ranges(&self, each: &mut dyn FnMut(RangeTombstone<'_>)) {
        let mut ranges = Ranges::default();
        self.ranges_into(&mut ranges);
        ranges.iter().for_each(each);
    }

    fn seek(
        &mut self,
        from: &[u8],
        to: Option<&[u8]>,
        reversed: bool,
        blocks: &mut B,
    ) -> Result<Step, ReadError> {
        if self.pending.is_empty() {
            self.pending.extend(&self.inside);
        }
        self.reversed = reversed;
        self.step(|source| source.seek(from, to, reversed, blocks), Self::gather)
    }

    fn next_row(&mut self, blocks: &mut B) -> Result<Step, ReadError> {
        if self.pending.is_empty() {
            self.pending.extend(&self.at);
        }
        self.step(|source| source.next_row(blocks), Self::gather)
    }

    fn next_partition(&mut self, blocks: &mut B) -> Result<Step, ReadError> {
        if self.pending.is_empty() {
            self.pending.extend(&self.inside);
        }
        self.step(|source| source.next_partition(blocks), Self::enter)
    }
}

impl<S, B> Merge<S, B> {
    /// Takes a step with each pending source, even if some miss a block, so that every missing
    /// block is noted at once. Calls `then` when all have taken it.
    fn step(
        &mut self,
        mut step: impl FnMut(&mut S) -> Result<Step, ReadError>,
        then: impl FnOnce(&mut Self),
    ) -> Result<Step, ReadError> {
        let Self { sources, pending, .. } = self;
        let mut failed = None;
        pending.retain(|&index| match step(&mut sources[index]) {
            Ok(step) => step == Step::Missing,
            Err(error) => {
                failed.get_or_insert(error);
                true
            }
        });
        match failed {
            Some(error) => Err(error),
            None if self.pending.is_empty() => {
                then(self);
                Ok(Step::Ready)
            }
            None => Ok(Step::Missing),
        }
    }
}

/// A set of range tombstones of one partition, in a form in which none overlap.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    /// The deletion from each boundary to the next.
    boundaries: BTreeMap<Box<[u8]>, Option<Deletion>>,
}

impl Ranges {
    pub fn clear(&mut self) {
        self.boundaries.clear();
    }

    pub fn is_empty(&self) -> bool {
        self.boundaries.is_empty()
    }

    /// Adds a range. Where ranges overlap, the stronger deletion counts.
    pub fn add(&mut self, range: &RangeTombstone<'_>) {
        if range.to.is_some_and(|to| to <= range.from) {
            return;
        }
        for bound in [Some(range.from), range.to].into_iter().flatten() {
            if !self.boundaries.contains_key(bound) {
                let in_force = self.covering(bound);
                self.boundaries.insert(bound.into(), in_force);
            }
        }
        let new = Some(range.deletion());
        for (bound, deletion) in
            self.boundaries.range_mut::<[u8], _>((Bound::Included(range.from), Bound::Unbounded))
        {
            if range.to.is_some_and(|to| **bound >= *to) {
                break;
            }
            *deletion = (*deletion).max(new);
        }
    }

    /// The strongest deletion over a clustering key.
    pub fn covering(&self, clustering: &[u8]) -> Option<Deletion> {
        let up_to = (Bound::Unbounded, Bound::Included(clustering));
        *self.boundaries.range::<[u8], _>(up_to).next_back()?.1
    }

    /// The ranges in order. None overlap, and neighbours with the same deletion are one range.
    pub fn iter(&self) -> impl Iterator<Item = RangeTombstone<'_>> {
        let mut boundaries = self.boundaries.iter().peekable();
        std::iter::from_fn(move || {
            loop {
                let (from, deletion) = boundaries.next()?;
                while boundaries.next_if(|(_, next)| *next == deletion).is_some() {}
                let to = boundaries.peek().map(|(to, _)| &***to);
                if let Some(Deletion { timestamp, deleted_s }) = *deletion {
                    return Some(RangeTombstone { from, to, timestamp, deleted_s });
                }
            }
        })
    }

    /// Removes the tombstones for which `keep` returns false.
    pub fn retain(&mut self, keep: impl Fn(Deletion) -> bool) {
        for deletion in self.boundaries.values_mut() {
            *deletion = deletion.filter(|deletion| keep(*deletion));
        }
    }
}
