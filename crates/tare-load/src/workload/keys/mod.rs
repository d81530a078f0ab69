//! Distributions of keys: numbers from 0 to n - 1.
//!
//! A draw is a pure function of a random stream, and memory does not grow with draws. `--keys` and
//! workload files write a distribution as `NAME` or `NAME:PARAMETER:..`.

mod zipf;

use std::fmt;
use std::str::FromStr;

use tare_std::rng::Rng;

pub use zipf::{YcsbZipfian, Zipfian, fnv_hash};

/// A distribution of keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Keys {
    Uniform,
    /// All keys in turn, by the index of the operation.
    Sequential,
    /// cassandra-stress's `gaussian(1..N)`; mean and deviation are shares of the keys.
    Gaussian {
        mean: f64,
        deviation: f64,
    },
    /// The exact Zipf distribution: key k has the weight (k + 1)^-exponent.
    Zipfian {
        exponent: f64,
    },
    /// YCSB's `zipfian`: its approximation of a Zipf distribution with exponent 0.99 over 10^10
    /// numbers, hashed onto the keys.
    YcsbZipfian,
    /// Zipfian from the newest key backwards (YCSB's `latest`).
    Latest {
        exponent: f64,
    },
    /// A share of the operations goes to a share of the keys, the first ones (YCSB's `hotspot`).
    Hotset {
        keys: f64,
        operations: f64,
    },
    /// Exponential, cut off at the last key: a share of the operations goes to the first share of
    /// the keys (YCSB's `exponential` has 0.95 and 0.857).
    Exponential {
        operations: f64,
        keys: f64,
    },
}

/// Why a text is not a distribution of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    #[error("unknown distribution of keys {name:?}; known: {known}", known = FORMS.join(", "))]
    Unknown { name: String },
    #[error("{text:?} is not a distribution of keys: write {form}, {why}")]
    Parameters { text: String, form: &'static str, why: &'static str },
}

/// All forms, for help and errors. Parameters may be left out from the right.
pub const FORMS: [&str; 8] = [
    "uniform",
    "sequential",
    "gaussian:MEAN:DEVIATION",
    "zipfian:EXPONENT",
    "ycsb-zipfian",
    "latest:EXPONENT",
    "hotset:KEYS:OPERATIONS",
    "exponential:OPERATIONS:KEYS",
];

/// YCSB's `ZipfianGenerator.ZIPFIAN_CONSTANT`.
const YCSB_EXPONENT: f64 = 0.99;

impl FromStr for Keys {
    type Err = KeysError;

    fn from_str(text: &str) -> Result<Self, KeysError> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let form = FORMS.iter().copied().find(|form| form.split(':').next() == Some(name));
        let form = form.ok_or_else(|| KeysError::Unknown { name: name.into() })?;
        let bad = |why| KeysError::Parameters { text: text.into(), form, why };
        let mut number = |default: f64| match parts.next() {
            None => Ok(default),
            Some(part) => part.trim().parse::<f64>().map_err(|_| bad("each a number")),
        };
        let keys = match name {
            "uniform" => Self::Uniform,
            "sequential" => Self::Sequential,
            "gaussian" => Self::Gaussian { mean: number(0.5)?, deviation: number(1.0 / 6.0)? },
            "zipfian" => Self::Zipfian { exponent: number(YCSB_EXPONENT)? },
            "ycsb-zipfian" => Self::YcsbZipfian,
            "latest" => Self::Latest { exponent: number(YCSB_EXPONENT)? },
            "hotset" => Self::Hotset { keys: number(0.2)?, operations: number(0.8)? },
            _ => Self::Exponential { operations: number(0.95)?, keys: number(0.8571428571)? },
        };
        if parts.next().is_some() {
            return Err(bad("with no more parameters"));
        }
        let inside = |share: f64| share > 0.0 && share < 1.0;
        let good = match keys {
            Self::Uniform | Self::Sequential | Self::YcsbZipfian => true,
            Self::Gaussian { mean, deviation } => {
                (0.0..=1.0).contains(&mean) && deviation > 0.0 && deviation <= 10.0
            }
            Self::Zipfian { exponent } | Self::Latest { exponent } => {
                exponent > 0.0 && exponent <= 100.0
            }
            Self::Hotset { keys, operations } => inside(keys) && (0.0..=1.0).contains(&operations),
            Self::Exponential { operations, keys } => {
                inside(operations) && keys > 0.0 && keys < 1e6
            }
        };
        good.then_some(keys).ok_or_else(|| bad("shares from 0 to 1, an exponent above 0"))
    }
}

impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Sequential => f.write_str("sequential"),
            Self::Gaussian { mean, deviation } => write!(f, "gaussian:{mean}:{deviation}"),
            Self::Zipfian { exponent } => write!(f, "zipfian:{exponent}"),
            Self::YcsbZipfian => f.write_str("ycsb-zipfian"),
            Self::Latest { exponent } => write!(f, "latest:{exponent}"),
            Self::Hotset { keys, operations } => write!(f, "hotset:{keys}:{operations}"),
            Self::Exponential { operations, keys } => write!(f, "exponential:{operations}:{keys}"),
        }
    }
}

/// A distribution over a number of keys, with its constants computed.
///
/// ```
/// use tare_load::keys::{Keys, Sampler};
/// use tare_std::rng::Rng;
///
/// let keys: Keys = "zipfian:1.2".parse()?;
/// let sampler = Sampler::new(keys, 1_000);
/// let mut rng = Rng::stream(42, 0);
/// assert!(sampler.draw(0, &mut rng, 0) < 1_000);
/// # Ok::<(), tare_load::keys::KeysError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    keys: u64,
    shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Uniform,
    Sequential,
    Gaussian { mean: f64, deviation: f64 },
    Zipfian(Zipfian),
    YcsbZipfian(YcsbZipfian),
    Latest(Zipfian),
    Hotset { hot: u64, operations: f64 },
    Exponential { gamma: f64, inside: f64 },
}

impl Sampler {
    /// # Panics
    /// If there is no key to draw.
    pub fn new(kind: Keys, keys: u64) -> Self {
        assert!(keys > 0, "there must be a key to draw");
        let range = (keys - 1) as f64;
        let shape = match kind {
            Keys::Uniform => Shape::Uniform,
            Keys::Sequential => Shape::Sequential,
            Keys::Gaussian { mean, deviation } => {
                Shape::Gaussian { mean: 1.0 + mean * range, deviation: deviation * range }
            }
            Keys::Zipfian { exponent } => Shape::Zipfian(Zipfian::new(keys, exponent)),
            Keys::YcsbZipfian => Shape::YcsbZipfian(YcsbZipfian::new()),
            Keys::Latest { exponent } => Shape::Latest(Zipfian::new(keys, exponent)),
            Keys::Hotset { keys: share, operations } => {
                let hot = cut(share * keys as f64).clamp(1, keys);
                Shape::Hotset { hot, operations }
            }
            Keys::Exponential { operations, keys: share } => {
                let gamma = -(1.0 - operations).ln() / (share * keys as f64);
                Shape::Exponential { gamma, inside: -(-gamma * keys as f64).exp_m1() }
            }
        };
        Self { keys, shape }
    }

    /// Returns the key of the operation with this index, below the number of keys. `rng` belongs to
    /// the operation. `newest` counts the keys added since the beginning, which `latest` sees.
    #[inline]
    pub fn draw(&self, index: u64, rng: &mut Rng, newest: u64) -> u64 {
        let last = self.keys - 1;
        match &self.shape {
            Shape::Uniform => rng.below(self.keys),
            Shape::Sequential => index % self.keys,
            Shape::Gaussian { mean, deviation } => {
                // Cuts off the fraction and moves samples outside to the nearest limit. Source:
                // apache/cassandra, tools/stress, `OptionDistribution.GaussianFactory` and
                // `DistributionBoundApache.bound`, which number keys from 1.
                cut(mean + rng.normal() * deviation).clamp(1, self.keys) - 1
            }
            Shape::Zipfian(zipfian) => zipfian.draw(rng),
            Shape::YcsbZipfian(zipfian) => fnv_hash(zipfian.draw(rng)) % self.keys,
            Shape::Latest(zipfian) => last + newest - zipfian.draw(rng),
            Shape::Hotset { hot, operations } => {
                if rng.next_f64() < *operations || *hot == self.keys {
                    rng.below(*hot)
                } else {
                    hot + rng.below(self.keys - hot)
                }
            }
            Shape::Exponential { gamma, inside } => {
                // Inversion of the distribution function of the part below the last key.
                cut(-(-rng.next_f64() * inside).ln_1p() / gamma).min(last)
            }
        }
    }
}

/// Returns the whole part of a number; 0 below 0.
#[inline]
pub(crate) fn cut(number: f64) -> u64 {
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
mod tests;
