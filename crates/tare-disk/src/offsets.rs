//! Random offsets without early repeats: a permutation of all blocks. Each is used once before any
//! is used again, which avoids chance hits in caches.

use tare_std::rng::mix64;

/// Repeats the numbers below `count` in random order, each pass in another order.
///
/// Method: a four-round Feistel network over the next even power of two, walked until the result
/// is below `count` (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains").
#[derive(Clone, Debug)]
pub(crate) struct Permutation {
    count: u64,
    half_bits: u32,
    seed: u64,
    next: u64,
}

impl Permutation {
    /// Creates the permutation of `count` numbers.
    ///
    /// # Panics
    /// If `count` is 0.
    pub(crate) fn new(count: u64, seed: u64) -> Self {
        assert!(count > 0, "there is no block");
        let bits = 64 - (count - 1).leading_zeros();
        Self { count, half_bits: bits.div_ceil(2).max(1), seed, next: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        let (pass, index) = (self.next / self.count, self.next % self.count);
        self.next += 1;
        let mut value = self.feistel(index, pass);
        while value >= self.count {
            value = self.feistel(value, pass);
        }
        value
    }

    fn feistel(&self, value: u64, pass: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let (mut left, mut right) = (value >> self.half_bits, value & mask);
        for round in 0..4u64 {
            let key = self.seed ^ mix64(pass.wrapping_mul(4).wrapping_add(round));
            (left, right) = (right, left ^ (mix64(right ^ key) & mask));
        }
        (left << self.half_bits) | right
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_pass_visits_every_block_once(count in 1u64..3000, seed: u64) {
            let mut order = Permutation::new(count, seed);
            for _ in 0..2 {
                let mut seen: Vec<u64> = (0..count).map(|_| order.next()).collect();
                seen.sort_unstable();
                prop_assert!(seen.iter().copied().eq(0..count));
            }
        }
    }
}
