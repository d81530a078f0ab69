//! Sizes of values, and which distribution of `tare load` is closest to them.

use lz4_flex::block;
use tare_load::value::Distribution;
use tare_std::rng::Rng;

/// The sizes that are kept for quantiles, and the values that are compressed, at most.
const KEPT_MAX: usize = 4096;
const COMPRESSED_MAX: u64 = 2000;
/// Shorter values say nothing about how well data compresses.
const COMPRESSED_BYTES_MIN: usize = 100;

/// Counts the sizes of values; the values are not kept.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    count: u64,
    least: u64,
    most: u64,
    sum: f64,
    squares: f64,
    kept: Vec<u64>,
    rng: Rng,
    compressed: u64,
    plain_bytes: u64,
    compressed_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            count: 0,
            least: u64::MAX,
            most: 0,
            sum: 0.0,
            squares: 0.0,
            kept: Vec::new(),
            rng: Rng::new(1),
            compressed: 0,
            plain_bytes: 0,
            compressed_bytes: 0,
        }
    }
}

impl Sizes {
    /// Counts a value.
    pub(crate) fn value(&mut self, value: &[u8]) {
        self.size(value.len() as u64);
        if value.len() >= COMPRESSED_BYTES_MIN && self.compressed < COMPRESSED_MAX {
            self.compressed += 1;
            self.plain_bytes += value.len() as u64;
            self.compressed_bytes += block::compress(value).len() as u64;
        }
    }

    /// Counts a size.
    pub(crate) fn size(&mut self, size: u64) {
        self.count += 1;
        self.least = self.least.min(size);
        self.most = self.most.max(size);
        self.sum += size as f64;
        self.squares += size as f64 * size as f64;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(size);
        } else if let Ok(place) = usize::try_from(self.rng.below(self.count))
            && let Some(kept) = self.kept.get_mut(place)
        {
            *kept = size;
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    pub(crate) fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// Returns a quantile of the kept sizes.
    fn quantile(&self, share: f64) -> u64 {
        let mut sorted = self.kept.clone();
        sorted.sort_unstable();
        let place = whole(share * sorted.len() as f64).min(sorted.len() as u64 - 1);
        usize::try_from(place).ok().and_then(|place| sorted.get(place)).copied().unwrap_or(0)
    }

    /// Returns the closest distribution. A normal one has its ends three deviations from the mean,
    /// a uniform one 1.73.
    pub(crate) fn distribution(&self) -> Distribution {
        if self.count == 0 || self.least == self.most {
            return Distribution::Fixed(if self.count == 0 { 0 } else { self.least });
        }
        let mean = self.mean();
        let deviation = (self.squares / self.count as f64 - mean * mean).max(0.0).sqrt();
        let range = (self.most - self.least) as f64;
        if deviation < 0.23 * range {
            let least = whole((mean - 3.0 * deviation).round()).max(self.least);
            let most = whole((2.0 * mean).round()).saturating_sub(least).max(least);
            return Distribution::Gaussian(least, most);
        }
        let half = 3f64.sqrt() * deviation;
        let least = whole((mean - half).round()).max(self.least);
        Distribution::Uniform(least, whole((mean + half).round()).max(least))
    }

    /// Says what the sizes are.
    pub(crate) fn describe(&self) -> String {
        if self.least == self.most {
            return format!("{} values of {} bytes", self.count, self.most);
        }
        format!(
            "{} values of {} to {} bytes, {:.0} on average, 99 % up to {}",
            self.count,
            self.least,
            self.most,
            self.mean(),
            self.quantile(0.99)
        )
    }

    /// Returns the size after LZ4 as a share; `None` without long values.
    pub(crate) fn compressed_share(&self) -> Option<f64> {
        (self.plain_bytes > 0).then(|| self.compressed_bytes as f64 / self.plain_bytes as f64)
    }
}

/// The sizes of the values of a column.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnSizes {
    pub(crate) written: Sizes,
    pub(crate) read: Sizes,
}

impl ColumnSizes {
    /// Returns the sizes written, or those read if nothing was written, and whether they were read.
    pub(crate) fn known(&self) -> (&Sizes, bool) {
        match self.written.count() {
            0 => (&self.read, true),
            _ => (&self.written, false),
        }
    }
}

/// Returns a number above 0 without its fraction.
pub(crate) fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast cuts the fraction and saturates, which is the definition"
    )]
    {
        number as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sizes: impl Iterator<Item = u64>) -> Distribution {
        let mut all = Sizes::default();
        sizes.for_each(|size| all.size(size));
        all.distribution()
    }

    #[test]
    fn distributions_are_recognised() {
        assert_eq!(of([64; 10].into_iter()), Distribution::Fixed(64));
        assert_eq!(of(std::iter::empty()), Distribution::Fixed(0));
        let Distribution::Uniform(least, most) = of(30..=90) else { panic!() };
        assert!((29..=32).contains(&least) && (88..=91).contains(&most), "{least} {most}");
        let mut rng = Rng::new(1);
        let normal = (0..20_000).map(|_| whole((60.0 + 10.0 * rng.normal()).clamp(30.0, 90.0)));
        let Distribution::Gaussian(least, most) = of(normal) else { panic!() };
        assert!((29..=32).contains(&least) && (87..=91).contains(&most), "{least} {most}");
        // A few large ones: the average stays.
        let skewed = of((0..1000).map(|one| if one % 100 == 0 { 10_000 } else { 100 }));
        assert_eq!(u64::midpoint(skewed.least(), skewed.most()), 199, "{skewed}");
    }

    #[test]
    fn compression_is_measured_on_long_values() {
        let mut sizes = Sizes::default();
        sizes.value(&[7; 99]);
        assert_eq!(sizes.compressed_share(), None);
        sizes.value(&[7; 1000]);
        assert!(sizes.compressed_share().unwrap() < 0.1);
        assert_eq!(
            sizes.describe(),
            "2 values of 99 to 1000 bytes, 550 on average, 99 % up to 1000"
        );
    }
}
