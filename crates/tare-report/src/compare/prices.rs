//! Prices of records: `A=4.99/h`, by letter, position, file or host.

use std::path::Path;
use std::str::FromStr;

use super::{Side, host_name, letter};
use crate::fleet::{FleetError, Price};

/// A price and the record it is for, as `A=4.99/h` or `metal.tare=3600EUR/month`.
#[derive(Clone, Debug, PartialEq)]
pub struct PriceTag {
    /// Name, file name with or without `.tare`, host name, letter or position from 1.
    pub of: String,
    pub price: Price,
}

/// A price that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    #[error("{text:?} names no record; write it like A=4.99/h")]
    NoRecord { text: String },
    #[error(transparent)]
    Price(#[from] FleetError),
    #[error("{of:?} is none of the records; name one of {known}")]
    Unknown { of: String, known: String },
    #[error("{name} is given two prices; give it one")]
    Twice { name: String },
}

impl FromStr for PriceTag {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<PriceTag, PriceError> {
        // A name may contain `=`, a price does not.
        let (of, price) = text
            .rsplit_once('=')
            .filter(|(of, _)| !of.trim().is_empty())
            .ok_or_else(|| PriceError::NoRecord { text: text.to_string() })?;
        Ok(PriceTag { of: of.trim().to_string(), price: price.trim().parse()? })
    }
}

/// The price of each record, if given. A name precedes a letter and may match several records of
/// one host.
pub(super) fn assign(
    sides: &[Side<'_>],
    tags: &[PriceTag],
) -> Result<Vec<Option<Price>>, PriceError> {
    let mut prices: Vec<Option<Price>> = vec![None; sides.len()];
    for tag in tags {
        let by_name: Vec<usize> =
            (0..sides.len()).filter(|at| names(&sides[*at]).contains(&tag.of.as_str())).collect();
        let by_place = (0..sides.len()).filter(|at| {
            letter(*at).eq_ignore_ascii_case(&tag.of) || (at + 1).to_string() == tag.of
        });
        let found = if by_name.is_empty() { by_place.collect() } else { by_name };
        if found.is_empty() {
            let known = |(at, side): (usize, &Side<'_>)| format!("{} ({})", letter(at), side.name);
            let known: Vec<String> = sides.iter().enumerate().map(known).collect();
            return Err(PriceError::Unknown { of: tag.of.clone(), known: known.join(", ") });
        }
        for at in found {
            if prices[at].replace(tag.price.clone()).is_some() {
                return Err(PriceError::Twice { name: sides[at].name.to_string() });
            }
        }
    }
    Ok(prices)
}

fn names<'r>(side: &Side<'r>) -> Vec<&'r str> {
    let path = Path::new(side.name);
    let parts = [path.file_name(), path.file_stem()];
    let mut names: Vec<&str> =
        parts.into_iter().flatten().filter_map(|part| part.to_str()).collect();
    names.push(side.name);
    names.extend(host_name(side.record));
    names
}
