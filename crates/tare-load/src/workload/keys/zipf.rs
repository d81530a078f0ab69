//! Zipf distributions: the exact one, and the approximation that YCSB made common.

use tare_std::rng::Rng;

use super::cut;

/// Zipf's distribution over `n` ranks, rank r (from 0) with a weight of (r + 1)^-exponent, by
/// rejection-inversion: exact, without a table, about 1.1 draws of the random stream per rank.
///
/// Source: W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone
/// discrete distributions", ACM TOMACS 6 (3), 1996.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Zipfian {
    exponent: f64,
    n: f64,
    /// The integral of the hat of the weights at 1.5, less the weight of the first rank.
    low: f64,
    /// The integral at n + 0.5.
    high: f64,
    /// A rank is accepted without another check if the hat is closer to it than this.
    near: f64,
}

impl Zipfian {
    /// # Panics
    /// If there is no rank, or the exponent is not above 0.
    pub fn new(n: u64, exponent: f64) -> Self {
        assert!(n > 0 && exponent > 0.0, "{n} ranks with exponent {exponent}");
        let mut one = Self { exponent, n: n as f64, low: 0.0, high: 0.0, near: 0.0 };
        one.low = one.integral(1.5) - 1.0;
        one.high = one.integral(one.n + 0.5);
        one.near = 2.0 - one.integral_inverse(one.integral(2.5) - one.weight(2.0));
        one
    }

    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        loop {
            let u = self.high + rng.next_f64() * (self.low - self.high);
            let x = self.integral_inverse(u);
            let rank = (x + 0.5).floor().clamp(1.0, self.n);
            if rank - x <= self.near || u >= self.integral(rank + 0.5) - self.weight(rank) {
                return cut(rank) - 1;
            }
        }
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Returns the integral of the weight from 1 to x: (x^(1-e) - 1) / (1-e), which is ln x for e =
    /// 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        expm1_over((1.0 - self.exponent) * log) * log
    }

    fn integral_inverse(&self, y: f64) -> f64 {
        // Rounding may carry the argument of the logarithm to or below 0.
        let t = (y * (1.0 - self.exponent)).max(-1.0 + f64::EPSILON);
        (ln1p_over(t) * y).exp()
    }
}

/// (e^x - 1) / x, also near 0.
fn expm1_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.exp_m1() / x } else { 1.0 + x / 2.0 }
}

/// ln(1 + x) / x, also near 0.
fn ln1p_over(x: f64) -> f64 {
    if x.abs() > 1e-8 { x.ln_1p() / x } else { 1.0 - x / 2.0 }
}

/// The ranks below YCSB's `ScrambledZipfianGenerator`: Gray's approximation with the exponent 0.99
/// over 10^10 items, whatever the number of keys. Only ranks 0 and 1 have their exact weights.
///
/// Source: J. Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994);
/// constants as in brianfrankcooper/YCSB, `ZipfianGenerator`, `ScrambledZipfianGenerator`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YcsbZipfian {
    alpha: f64,
    eta: f64,
}

const ITEMS: f64 = 1e10;
const THETA: f64 = 0.99;
/// The sum of the weights of all items.
const ZETA: f64 = 26.469_028_201_783_02;

impl YcsbZipfian {
    #[expect(clippy::new_without_default, reason = "there is no neutral one")]
    pub fn new() -> Self {
        let zeta_two = 1.0 + 0.5f64.powf(THETA);
        let eta = (1.0 - (2.0 / ITEMS).powf(1.0 - THETA)) / (1.0 - zeta_two / ZETA);
        Self { alpha: 1.0 / (1.0 - THETA), eta }
    }

    /// Returns a rank below 10^10.
    #[inline]
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        let u = rng.next_f64();
        let mass = u * ZETA;
        if mass < 1.0 {
            0
        } else if mass < 1.0 + 0.5f64.powf(THETA) {
            1
        } else {
            cut(ITEMS * (self.eta * u - self.eta + 1.0).powf(self.alpha))
        }
    }

    /// Returns the share of draws below a rank above 1.
    pub fn share_below(&self, rank: u64) -> f64 {
        1.0 + ((rank as f64 / ITEMS).powf(1.0 / self.alpha) - 1.0) / self.eta
    }
}

/// YCSB's `Utils.fnvhash64`: FNV-1a over the eight bytes, lowest first, without its sign.
#[inline]
pub fn fnv_hash(value: u64) -> u64 {
    let hash = value.to_le_bytes().iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash.cast_signed().unsigned_abs()
}
