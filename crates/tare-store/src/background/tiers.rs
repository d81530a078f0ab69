//! Chooses the tables to compact together: those of a similar size, as in Cassandra's
//! `SizeTieredCompactionStrategy` (`bucket_low`, `bucket_high`, `min_sstable_size` at their
//! defaults).

use std::rc::Rc;

use super::compaction::INPUTS_MAX;
use crate::options::TableOptions;
use crate::table::Table;

/// Tables smaller than this count as equal in size, in bytes.
const SMALL_BYTES: u64 = 50 << 20;

/// The tables of one size, smallest first, and the sum of their bytes.
#[derive(Debug, Default)]
struct Tier<T> {
    tables: Vec<(u64, T)>,
    bytes: u64,
}

impl<T> Tier<T> {
    fn average(&self) -> u64 {
        self.bytes / (self.tables.len() as u64).max(1)
    }

    /// A size is similar if it is half to one and a half times the average.
    fn takes(&self, bytes: u64) -> bool {
        let average = self.average();
        (average / 2 <= bytes && bytes <= average + average / 2)
            || (average < SMALL_BYTES && bytes < SMALL_BYTES)
    }
}

fn tiers<T>(mut tables: Vec<(u64, T)>) -> Vec<Tier<T>> {
    tables.sort_by_key(|(bytes, _)| *bytes);
    let mut tiers: Vec<Tier<T>> = Vec::new();
    for (bytes, table) in tables {
        match tiers.last_mut().filter(|tier| tier.takes(bytes)) {
            Some(tier) => {
                tier.bytes += bytes;
                tier.tables.push((bytes, table));
            }
            None => tiers.push(Tier { bytes, tables: vec![(bytes, table)] }),
        }
    }
    tiers
}

/// The tables to compact next, if there are any: those of the smallest tier that is full.
pub(crate) fn pick(tables: Vec<Rc<Table>>, options: &TableOptions) -> Option<Vec<Rc<Table>>> {
    let sized = tables.into_iter().map(|table| (table.file_bytes(), table)).collect();
    let least = options.compaction_least();
    let tier = tiers(sized).into_iter().find(|tier| tier.tables.len() >= least)?;
    let most = options.compaction_max.clamp(least, INPUTS_MAX.max(least));
    Some(tier.tables.into_iter().take(most).map(|(_, table)| table).collect())
}

/// The number of tables of each size, smallest size first.
pub(crate) fn sizes(tables: impl Iterator<Item = u64>) -> Vec<usize> {
    tiers(tables.map(|bytes| (bytes, ())).collect()).iter().map(|tier| tier.tables.len()).collect()
}

#[cfg(test)]
mod tests {

    #[test]
    fn tables_of_similar_size_form_a_tier() {
        let mib = |sizes: &[u64]| super::sizes(sizes.iter().map(|mib| mib << 20));
        assert_eq!(mib(&[]), []);
        assert_eq!(mib(&[1, 49, 3, 10]), [4], "small ones are alike");
        assert_eq!(mib(&[100, 120, 90, 400, 410, 2000]), [3, 2, 1]);
        assert_eq!(mib(&[60, 200, 60]), [2, 1]);
    }
}
