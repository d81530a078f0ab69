//! Seeded random numbers. Everything random in Tare derives from a recorded seed, so that an order,
//! a key or a row can be derived again from (seed, index).

/// Mixes a number with the 64-bit finaliser of SplitMix64: a bijection that spreads every input bit
/// over the output. Source: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators"
/// (OOPSLA 2014), with Stafford's variant 13 constants.
#[inline]
pub fn mix64(value: u64) -> u64 {
    let mut z = value;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A SplitMix64 generator: small, seedable from any number, and good enough for schedules, keys and
/// resampling, but not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns an independent generator for one purpose of a seed; `stream` numbers the purpose.
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self::new(mix64(seed ^ mix64(stream.wrapping_add(1).wrapping_mul(GOLDEN_GAMMA))))
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        mix64(self.state)
    }

    /// Returns a number that is uniform in [0, 1), with 53 random bits.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Returns a number that is uniform in [0, bound), by Lemire's multiplication; the bias is
    /// below bound / 2^64.
    ///
    /// # Panics
    /// If `bound` is 0.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below 0");
        let product = u128::from(self.next_u64()) * u128::from(bound);
        (product >> 64) as u64
    }

    /// Returns a standard normal number by the polar method of Marsaglia (one value of the pair is
    /// used).
    pub fn normal(&mut self) -> f64 {
        loop {
            let u = 2.0 * self.next_f64() - 1.0;
            let v = 2.0 * self.next_f64() - 1.0;
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                return u * (-2.0 * s.ln() / s).sqrt();
            }
        }
    }

    /// Shuffles in place (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            #[expect(clippy::cast_possible_truncation, reason = "below a slice's length")]
            let other = self.below(last as u64 + 1) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_gives_one_sequence_per_stream() {
        let take = |mut rng: Rng| (0..4).map(|_| rng.next_u64()).collect::<Vec<_>>();
        assert_eq!(take(Rng::new(7)), take(Rng::new(7)));
        assert_ne!(take(Rng::stream(7, 0)), take(Rng::stream(7, 1)));
    }

    #[test]
    fn uniform_and_normal_have_their_moments() {
        let mut rng = Rng::new(1);
        let n = 200_000;
        let mean = (0..n).map(|_| rng.next_f64()).sum::<f64>() / f64::from(n);
        assert!((mean - 0.5).abs() < 0.005, "{mean}");
        let normals: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let mean = normals.iter().sum::<f64>() / f64::from(n);
        let variance = normals.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.01 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn shuffling_reaches_every_order() {
        let mut rng = Rng::new(3);
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..500 {
            let mut items = [0, 1, 2, 3];
            rng.shuffle(&mut items);
            seen.insert(items);
        }
        assert_eq!(seen.len(), 24);
    }
}
