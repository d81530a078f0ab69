//! Which key an operation touches and whether it writes: a pure function of (seed, index), so that
//! any operation of any run can be derived again.

use tare_lab::study::{KeyDistribution, WorkloadSpec};
use tare_std::rng::Rng;

/// One operation on one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Operation {
    /// Number of the row, from 0 to `rows - 1`.
    pub key: u64,
    pub write: bool,
}

/// Derives operations. The key distributions are those of cassandra-stress, moved down by one: it
/// numbers rows from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Operations {
    seed: u64,
    rows: u64,
    write_share: f64,
    keys: KeyDistribution,
}

impl Operations {
    /// # Panics
    /// If the workload has no rows.
    pub fn new(workload: &WorkloadSpec, seed: u64) -> Self {
        assert!(workload.rows > 0, "a workload needs at least one row to draw keys from");
        Self { seed, rows: workload.rows, write_share: workload.write_share, keys: workload.keys }
    }

    /// The operation with this index.
    #[inline]
    pub fn derive(&self, index: u64) -> Operation {
        let mut rng = Rng::stream(self.seed, index);
        let write = rng.next_f64() < self.write_share;
        let key = match self.keys {
            KeyDistribution::Uniform => rng.below(self.rows),
            KeyDistribution::Sequential => index % self.rows,
            KeyDistribution::Gaussian { mean_share, deviation_share } => {
                gaussian(&mut rng, self.rows, mean_share, deviation_share)
            }
        };
        Operation { key, write }
    }
}

/// cassandra-stress's `gaussian(1..N)`: mean (1 + N) / 2, deviation (N - 1) / 6 by default (three
/// deviations to the limit), the fraction cut off, samples outside moved to the nearest limit.
/// Source: apache/cassandra, tools/stress, `OptionDistribution.GaussianFactory` and
/// `DistributionBoundApache.bound`.
#[inline]
fn gaussian(rng: &mut Rng, rows: u64, mean_share: f64, deviation_share: f64) -> u64 {
    let range = (rows - 1) as f64;
    let sample = 1.0 + mean_share * range + rng.normal() * deviation_share * range;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast cuts the fraction and saturates, which is the definition"
    )]
    let row = sample as u64;
    row.clamp(1, rows) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::workload;
    use proptest::prelude::*;

    fn operations(keys: KeyDistribution, rows: u64, write_share: f64) -> Operations {
        Operations::new(&WorkloadSpec { keys, rows, write_share, ..workload() }, 7)
    }

    const STRESS: KeyDistribution =
        KeyDistribution::Gaussian { mean_share: 0.5, deviation_share: 1.0 / 6.0 };

    #[test]
    fn gaussian_has_the_moments_of_cassandra_stress() {
        let n = 100_000;
        let source = operations(STRESS, 1_000_000, 0.0);
        let keys: Vec<f64> = (0..n).map(|index| source.derive(index).key as f64).collect();
        let mean = keys.iter().sum::<f64>() / n as f64;
        let deviation = (keys.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        assert!((mean - 500_000.0).abs() < 2_000.0, "{mean}");
        assert!((deviation - 166_667.0).abs() < 1_500.0, "{deviation}");
        // 0.27 % of a normal distribution lie beyond three deviations; they pile up on the limits.
        let at_limits = keys.iter().filter(|&&x| x == 0.0 || x == 999_999.0).count();
        assert!((200..340).contains(&at_limits), "{at_limits}");
    }

    #[test]
    fn sequential_keys_visit_every_row() {
        let source = operations(KeyDistribution::Sequential, 5, 0.0);
        let keys: Vec<u64> = (0..7).map(|index| source.derive(index).key).collect();
        assert_eq!(keys, [0, 1, 2, 3, 4, 0, 1]);
    }

    #[test]
    fn uniform_keys_and_write_share_are_what_was_asked() {
        let source = operations(KeyDistribution::Uniform, 10, 0.3);
        let mut per_key = [0u32; 10];
        let mut writes = 0;
        for index in 0..100_000 {
            let operation = source.derive(index);
            per_key[usize::try_from(operation.key).unwrap()] += 1;
            writes += u32::from(operation.write);
        }
        assert!(per_key.iter().all(|&n| (9_600..10_400).contains(&n)), "{per_key:?}");
        assert!((29_300..30_700).contains(&writes), "{writes}");
        let all = operations(KeyDistribution::Uniform, 10, 1.0);
        assert!((0..1_000).all(|index| all.derive(index).write));
        let none = operations(KeyDistribution::Uniform, 10, 0.0);
        assert!((0..1_000).all(|index| !none.derive(index).write));
    }

    proptest! {
        #[test]
        fn keys_stay_in_range_and_repeat(
            rows in 1u64..=u64::MAX / 2,
            index: u64,
            mean_share in -1.0f64..2.0,
            deviation_share in 0.0f64..2.0,
        ) {
            let gaussian = KeyDistribution::Gaussian { mean_share, deviation_share };
            for keys in [KeyDistribution::Uniform, KeyDistribution::Sequential, gaussian] {
                let source = operations(keys, rows, 0.5);
                prop_assert!(source.derive(index).key < rows);
                prop_assert_eq!(source.derive(index), source.derive(index));
            }
        }
    }
}
