//! The records of a shard's client: the writes that it sent, their order, and which were
//! acknowledged. After a restart it finds the number of writes that explains the contents.
//!
//! A shard's log is one sequence, so a prefix of it survives: all acknowledged writes, and any
//! number of later ones, but none without its predecessors.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::model::{Model, Mutation, PartitionId, Row, difference};
use crate::violation::Violation;

/// All visible partitions of a shard.
pub(crate) type Contents = BTreeMap<PartitionId, Vec<Row>>;

/// Writes of one entry: after a restart all of them exist or none.
#[derive(Clone, Debug)]
struct Entry {
    ticket: u64,
    mutations: Vec<Mutation>,
}

/// The writes to one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    /// The contents at the last restart, without what damage of the log may still take away.
    base: Model,
    /// The writes since then, and before them the others that are in the log's last groups only.
    since: Vec<Entry>,
    /// The contents with all writes.
    now: Model,
    /// Tickets below this are acknowledged.
    acknowledged: u64,
}

impl History {
    /// The contents that a reader sees, with all writes.
    pub(crate) fn now(&self) -> &Model {
        &self.now
    }

    /// Notes a write that the store has accepted.
    pub(crate) fn wrote(&mut self, ticket: u64, mutations: Vec<Mutation>) {
        mutations.iter().for_each(|mutation| self.now.apply(mutation));
        self.since.push(Entry { ticket, mutations });
    }

    /// Notes that the writes below a ticket are acknowledged.
    pub(crate) fn acknowledge(&mut self, durable: u64) {
        self.acknowledged = self.acknowledged.max(durable);
    }

    /// The ticket of the newest write that is not part of the base.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.since.last().map(|entry| entry.ticket)
    }

    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Compares the contents after a restart with the writes. At least those with tickets below
    /// `certain` must exist. Continues from these contents, with tickets from the end of `unproven`
    /// on. Those in it are durable, but only their own groups of the log show it. Returns the
    /// writes without visible effect, which may or may not have survived: the client sends them
    /// again, which changes nothing if they did.
    pub(crate) fn restarted(
        &mut self,
        found: &Contents,
        certain: u64,
        unproven: Range<u64>,
        now_s: u32,
    ) -> Result<Vec<Vec<Mutation>>, Violation> {
        let since = std::mem::take(&mut self.since);
        let certain = since.iter().take_while(|entry| entry.ticket < certain).count();
        let (sure, open) = since.split_at(certain);
        let mut model = self.base.clone();
        sure.iter().flat_map(|entry| &entry.mutations).for_each(|mutation| model.apply(mutation));
        let changed = open.iter().flat_map(|entry| &entry.mutations).map(|m| &m.partition_id);
        let changed: BTreeSet<&PartitionId> = changed.collect();

        let empty = Vec::new();
        let differs = |model: &Model, partition_id: &PartitionId| -> Option<String> {
            let rows = found.get(partition_id).unwrap_or(&empty);
            let differs = difference(&model.read(partition_id, now_s), rows)?;
            Some(format!("table {} key {:02x?}: {differs}", partition_id.table, partition_id.key))
        };
        let fails = |best: usize, difference: String| Violation::NoSuchHistory {
            acknowledged: certain,
            written: since.len(),
            best,
            difference,
        };
        let unchanged = model
            .partition_ids()
            .chain(found.keys())
            .filter(|partition_id| !changed.contains(partition_id))
            .find_map(|partition_id| differs(&model, partition_id));
        if let Some(difference) = unchanged {
            return Err(fails(certain, difference));
        }
        let mut fitting: Option<(usize, usize, Model)> = None;
        let mut first_wrong = None;
        for taken in 0..=open.len() {
            if let Some(entry) = taken.checked_sub(1).map(|last| &open[last]) {
                entry.mutations.iter().for_each(|mutation| model.apply(mutation));
            }
            match changed.iter().find_map(|partition_id| differs(&model, partition_id)) {
                Some(difference) => {
                    first_wrong.get_or_insert(difference);
                }
                None => {
                    let first = fitting.as_ref().map_or(taken, |(first, _, _)| *first);
                    fitting = Some((first, taken, model.clone()));
                }
            }
        }
        let Some((first, last, model)) = fitting else {
            return Err(fails(certain, first_wrong.unwrap_or_default()));
        };
        let again = open[first..last].iter().map(|entry| entry.mutations.clone()).collect();
        let mut rest = since;
        rest.truncate(certain + last);
        let at = rest.iter().position(|entry| entry.ticket >= unproven.start);
        let kept = rest.split_off(at.unwrap_or(rest.len()));
        let proven = rest.iter().flat_map(|entry| &entry.mutations);
        proven.for_each(|mutation| self.base.apply(mutation));
        self.since = kept.into_iter().filter(|entry| unproven.contains(&entry.ticket)).collect();
        self.now = model;
        self.acknowledged = unproven.end;
        Ok(again)
    }
}
