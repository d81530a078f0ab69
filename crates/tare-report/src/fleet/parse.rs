//! Parses `nodes=60,price=4.99USD/h`.

use std::str::FromStr;

use super::{Fleet, Period, Price};

/// Letters or signs of a currency.
const CURRENCY: usize = 8;

/// Why a text is not a fleet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FleetError {
    #[error("{part:?} is no part of a fleet; write it like nodes=60,price=4.99/h")]
    Part { part: String },
    #[error("{name} is given twice; give it once")]
    Twice { name: &'static str },
    #[error("a fleet needs its nodes; write it like nodes=60,price=4.99/h")]
    NoNodes,
    #[error("{text:?} is no number of nodes; give a whole number from 1 to {}", u32::MAX)]
    Nodes { text: String },
    #[error(
        "{text:?} is no price of one node; write it like 4.99/h, 3600EUR/month or 40000USD/year"
    )]
    Price { text: String },
}

impl FromStr for Fleet {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Fleet, FleetError> {
        let (mut nodes, mut price) = (None, None);
        for part in text.split(',').map(str::trim) {
            match part.split_once('=') {
                Some(("nodes", _)) if nodes.is_some() => {
                    return Err(FleetError::Twice { name: "nodes" });
                }
                Some(("price", _)) if price.is_some() => {
                    return Err(FleetError::Twice { name: "price" });
                }
                Some(("nodes", number)) => nodes = Some(parse_nodes(number)?),
                Some(("price", text)) => price = Some(text.parse()?),
                _ => return Err(FleetError::Part { part: part.to_string() }),
            }
        }
        Ok(Fleet { nodes: nodes.ok_or(FleetError::NoNodes)?, price })
    }
}

fn parse_nodes(text: &str) -> Result<u32, FleetError> {
    let nodes = text.parse().ok().filter(|nodes| *nodes > 0);
    nodes.ok_or_else(|| FleetError::Nodes { text: text.to_string() })
}

impl FromStr for Price {
    type Err = FleetError;

    fn from_str(text: &str) -> Result<Price, FleetError> {
        let bad = || FleetError::Price { text: text.to_string() };
        let (amount, per) = text.split_once('/').ok_or_else(bad)?;
        let per = match per {
            "h" | "hour" => Period::Hour,
            "month" => Period::Month,
            "year" => Period::Year,
            _ => return Err(bad()),
        };
        let end = amount.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(amount.len());
        let (amount, currency) = amount.split_at(end);
        let amount: f64 = amount.parse().map_err(|_| bad())?;
        let currency = currency.trim();
        // A digit or sign after the number is another form of number: 4.99e3, 1'000.
        let strange = |c: char| !(c.is_alphabetic() || "$\u{20ac}\u{a3}\u{a5}\u{20b9}".contains(c));
        if amount <= 0.0 || !amount.is_finite() {
            return Err(bad());
        }
        if currency.chars().any(strange) || currency.chars().count() > CURRENCY {
            return Err(bad());
        }
        Ok(Price { amount, currency: currency.to_string(), per })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleets_are_read() {
        let price = |amount, currency: &str, per| {
            Some(Price { amount, currency: currency.to_string(), per })
        };
        for (text, nodes, expected) in [
            ("nodes=60", 60, None),
            ("nodes=60,price=4.99/h", 60, price(4.99, "", Period::Hour)),
            ("price=4.99USD/hour, nodes=1", 1, price(4.99, "USD", Period::Hour)),
            ("nodes=3,price=3600 EUR/month", 3, price(3600.0, "EUR", Period::Month)),
            ("nodes=3,price=40000\u{20ac}/year", 3, price(40_000.0, "\u{20ac}", Period::Year)),
        ] {
            assert_eq!(text.parse(), Ok(Fleet { nodes, price: expected }), "{text}");
        }
    }

    #[test]
    fn what_is_no_fleet_is_said_so() {
        for (text, part) in [
            ("", "no part"),
            ("60", "no part"),
            ("node=60", "no part"),
            ("price=1/h", "needs its nodes"),
            ("nodes=0", "whole number"),
            ("nodes=-3", "whole number"),
            ("nodes=1.5", "whole number"),
            ("nodes=1,nodes=2", "twice"),
            ("nodes=1,price=1/h,price=1/h", "twice"),
            ("nodes=1,price=4.99", "no price"),
            ("nodes=1,price=4.99/week", "no price"),
            ("nodes=1,price=/h", "no price"),
            ("nodes=1,price=0/h", "no price"),
            ("nodes=1,price=-1/h", "no price"),
            ("nodes=1,price=1.2.3/h", "no price"),
            ("nodes=1,price=4e3/h", "no price"),
            ("nodes=1,price=4\u{1b}[0m/h", "no price"),
            ("nodes=1,price=inf/h", "no price"),
        ] {
            let error = text.parse::<Fleet>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_year_of_each_price() {
        for (text, year) in [("2/h", 17_520.0), ("100/month", 1200.0), ("5000/year", 5000.0)] {
            let fleet: Fleet = format!("nodes=1,price={text}").parse().unwrap();
            assert_eq!(fleet.price.unwrap().per_year(), year);
        }
    }
}
