//! Quantities as people write them: durations, percentages and shares.

use std::time::Duration;

/// Parses a duration: a number with `ns`, `us`, `ms`, `s`, `m` or `h`, such as `400ms` or `1.5s`.
/// Several may follow each other: `1m30s`.
pub fn parse_duration(text: &str) -> Result<Duration, ValueError> {
    let bad = || ValueError::Duration;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let number: f64 = number.parse().map_err(|_| bad())?;
        seconds += number
            * match unit.trim() {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" => 1.0,
                "m" | "min" => 60.0,
                "h" => 3600.0,
                _ => return Err(bad()),
            };
        rest = tail;
    }
    // Rounded to whole ns, so that 400ms is not 399.999999 ms.
    if seconds > 1e9 {
        return Err(bad());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let ns = (seconds * 1e9).round() as u64;
    Ok(Duration::from_nanos(ns))
}

/// Parses a percentage such as `50%` into a share of 1.
pub fn parse_share(text: &str) -> Result<f64, ValueError> {
    let number = text.trim().strip_suffix('%').ok_or(ValueError::Share)?;
    let percent: f64 = number.trim().parse().map_err(|_| ValueError::Share)?;
    percent.is_finite().then_some(percent / 100.0).ok_or(ValueError::Share)
}

/// Why a text is not a quantity of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    #[error("a duration is a number with ns, us, ms, s, m or h, such as \"400ms\" or \"5m\"")]
    Duration,
    #[error("a share is a number from 0 to 1 or a percentage, such as 0.5 or \"50%\"")]
    Share,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        let check = |text: &str, ns: u64| {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        };
        check("400ms", 400_000_000);
        check("1.5s", 1_500_000_000);
        check("5m", 300_000_000_000);
        check("1m30s", 90_000_000_000);
        check("250 us", 250_000);
        for bad in ["", "5", "ms", "5x", "1e3s", "-1s", "5 m x", "1..2s", "99999999h"] {
            assert_eq!(parse_duration(bad), Err(ValueError::Duration), "{bad}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(parse_share("50%"), Ok(0.5));
        assert_eq!(parse_share(" 2.5 % "), Ok(0.025));
        for bad in ["50", "%", "x%", "inf%", ""] {
            assert_eq!(parse_share(bad), Err(ValueError::Share), "{bad}");
        }
    }
}
