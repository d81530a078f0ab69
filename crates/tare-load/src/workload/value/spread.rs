//! Distributions of whole numbers: sizes of values, numbers in columns, limits of scans.

use std::fmt;
use std::str::FromStr;

use tare_std::rng::Rng;

use crate::workload::keys::cut;

/// A distribution of whole numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    Fixed(u64),
    Uniform(u64, u64),
    /// The mean is in the middle, three standard deviations reach the ends, and samples outside are
    /// moved to the ends.
    Gaussian(u64, u64),
}

/// A text that is not a distribution.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a whole number, uniform:LEAST:MOST or gaussian:LEAST:MOST")]
pub struct DistributionError;

impl Distribution {
    pub fn least(&self) -> u64 {
        match *self {
            Self::Fixed(number) | Self::Uniform(number, _) | Self::Gaussian(number, _) => number,
        }
    }

    pub fn most(&self) -> u64 {
        match *self {
            Self::Fixed(number) | Self::Uniform(_, number) | Self::Gaussian(_, number) => number,
        }
    }

    /// Draws a number from a seed.
    #[inline]
    pub(crate) fn draw(&self, seed: u64) -> u64 {
        match *self {
            Self::Fixed(number) => number,
            Self::Uniform(least, most) => {
                least + Rng::new(seed).below((most - least).saturating_add(1))
            }
            Self::Gaussian(least, most) => {
                let (middle, range) = ((least as f64 + most as f64) / 2.0, (most - least) as f64);
                let sample = middle + Rng::new(seed).normal() * range / 6.0;
                cut(sample + 0.5).clamp(least, most)
            }
        }
    }
}

impl FromStr for Distribution {
    type Err = DistributionError;

    fn from_str(text: &str) -> Result<Self, DistributionError> {
        let number = |text: &str| text.trim().parse().map_err(|_| DistributionError);
        let parts: Vec<&str> = text.split(':').collect();
        let spread = match parts.as_slice() {
            [one] => Self::Fixed(number(one)?),
            ["uniform", least, most] => Self::Uniform(number(least)?, number(most)?),
            ["gaussian", least, most] => Self::Gaussian(number(least)?, number(most)?),
            _ => return Err(DistributionError),
        };
        (spread.least() <= spread.most()).then_some(spread).ok_or(DistributionError)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(number) => write!(f, "{number}"),
            Self::Uniform(least, most) => write!(f, "uniform:{least}:{most}"),
            Self::Gaussian(least, most) => write!(f, "gaussian:{least}:{most}"),
        }
    }
}
