//! Units as people write and read them.

use std::time::Duration;

/// Parses an amount of memory as docker does: bytes, or a number with `K`, `M`, `G`, `T` (powers
/// of 1,024; `KiB` and `kb` mean the same), such as `512M` or `1.5G`.
pub fn parse_bytes(text: &str) -> Result<u64, UnitError> {
    let bad = || UnitError::Bytes { text: text.to_string() };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(split);
    let shift = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(bad()),
    };
    let number: f64 = number.parse().map_err(|_| bad())?;
    let bytes = number * (1u64 << shift) as f64;
    if !bytes.is_finite() || bytes < 0.0 || bytes >= (1u64 << 62) as f64 {
        return Err(bad());
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let bytes = bytes.round() as u64;
    Ok(bytes)
}

/// Parses a duration: a number with its unit, such as `400ms`, `1.5s`, `250 µs` or `5m`. Several
/// may follow each other: `1m30s`, `1h 30m`. Units: `ns`, `us` or `µs`, `ms`, `s`, `m` (minutes),
/// `h`, `d`, and their usual longer names (`sec`, `min`, `hours`, `days`).
///
/// Study files, the command line, options of systems and injected delays all read durations here,
/// so that they accept the same forms.
///
/// ```
/// use std::time::Duration;
/// use tare_std::units::parse_duration;
///
/// assert_eq!(parse_duration("5m"), Ok(Duration::from_secs(300)));
/// assert_eq!(parse_duration("250µs"), Ok(Duration::from_micros(250)));
/// assert!(parse_duration("5").is_err(), "a duration has a unit");
/// ```
pub fn parse_duration(text: &str) -> Result<Duration, UnitError> {
    let bad = || UnitError::Duration { text: text.to_string() };
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
        seconds += number * seconds_of(unit.trim()).ok_or_else(bad)?;
        rest = tail;
    }
    if seconds > DURATION_S_MAX {
        return Err(bad());
    }
    // Rounded to whole ns, so that 400ms is not 399.999999 ms.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked above")]
    let ns = (seconds * 1e9).round() as u64;
    Ok(Duration::from_nanos(ns))
}

/// Longer durations are refused: 30 years.
const DURATION_S_MAX: f64 = 1e9;

/// The seconds of a unit. `µ` is the micro sign, `μ` the Greek letter; keyboards have either.
fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ns" | "nsec" => 1e-9,
        "us" | "\u{b5}s" | "\u{3bc}s" | "usec" => 1e-6,
        "ms" | "msec" => 1e-3,
        "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hour" | "hours" => 3_600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

/// Why a text is not an amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    #[error(
        "{text:?} is not a duration; write a number with ns, us, ms, s, m or h, such as 400ms or 5m"
    )]
    Duration { text: String },
    #[error("{text:?} is not an amount of memory; write it like 512M or 6G")]
    Bytes { text: String },
}

/// Formats a duration as options and studies write it: `1h30m`, `45s`, `400ms`. [`parse_duration`]
/// reads it back, to the millisecond.
pub fn duration(time: Duration) -> String {
    let ms = time.as_millis();
    let parts = [(3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")];
    let mut rest = ms;
    let mut text = String::new();
    for (unit_ms, unit) in parts {
        if rest >= unit_ms {
            text += &format!("{}{unit}", rest / unit_ms);
            rest %= unit_ms;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

/// Formats an expected time with the digits that matter: `45 s`, `12 min`, `2 h 43 min`, `27 h`.
pub fn rough_duration(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
    let minutes = (seconds / 60.0).round() as u64;
    match minutes {
        _ if seconds < 99.5 => format!("{:.0} s", seconds.max(1.0)),
        0..=99 => format!("{minutes} min"),
        100..=599 if minutes.is_multiple_of(60) => format!("{} h", minutes / 60),
        100..=599 => format!("{} h {} min", minutes / 60, minutes % 60),
        _ => format!("{:.0} h", seconds / 3_600.0),
    }
}

/// Formats a duration in ns with three significant digits and its unit: `812 ns`, `1.24 ms`, `31.0
/// s`.
pub fn nanoseconds(ns: f64) -> String {
    let (value, unit) = match ns.abs() {
        x if x < 999.5 => (ns, "ns"),
        x if x < 999.5e3 => (ns / 1e3, "µs"),
        x if x < 999.5e6 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    format!("{} {unit}", significant(value, 3))
}

/// Formats a number with this many significant digits, never in exponent form. Digits before the
/// point are kept: `significant(1234.6, 3)` is `1235`, `significant(1.2345, 3)` is `1.23`.
pub fn significant(value: f64, digits: u32) -> String {
    if value == 0.0 || !value.is_finite() {
        return format!("{value:.0}");
    }
    #[expect(clippy::cast_possible_truncation, reason = "a decimal exponent of an f64")]
    let magnitude = value.abs().log10().floor() as i64;
    let decimals = (i64::from(digits) - 1 - magnitude).max(0);
    format!("{value:.*}", usize::try_from(decimals).unwrap_or(0))
}

/// Formats a whole number with commas between thousands: `1,234,567`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_parses_as_in_docker() {
        assert_eq!(parse_bytes("6G"), Ok(6 << 30));
        assert_eq!(parse_bytes("512 MiB"), Ok(512 << 20));
        assert_eq!(parse_bytes("1.5k"), Ok(1536));
        assert_eq!(parse_bytes("17"), Ok(17));
        for bad in ["", "G", "6X", "-1", "1e3", "6 G B"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn expected_times_have_few_digits() {
        let check = |seconds: f64, expect: &str| {
            assert_eq!(rough_duration(Duration::from_secs_f64(seconds)), expect, "{seconds}");
        };
        check(0.2, "1 s");
        check(99.4, "99 s");
        check(99.6, "2 min");
        check(99.0 * 60.0, "99 min");
        check(2.0 * 3_600.0, "2 h");
        check(9_769.0, "2 h 43 min");
        check(97_690.0, "27 h");
        check(600_000.0, "167 h");
    }

    #[test]
    fn durations() {
        let check = |text: &str, ns: u64| {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        };
        check("0s", 0);
        check("1ns", 1);
        check("400ms", 400_000_000);
        check("1.5s", 1_500_000_000);
        check("5m", 300_000_000_000);
        check("5min", 300_000_000_000);
        check("1m30s", 90_000_000_000);
        check("1h 30m", 5_400_000_000_000);
        check("2days", 172_800_000_000_000);
        for text in ["0s", "400ms", "45s", "1m30s", "1h", "1h30m", "48h", "1h1m1s1ms"] {
            assert_eq!(duration(parse_duration(text).unwrap()), text);
        }
        for micro in ["250us", "250 us", "250\u{b5}s", "250\u{3bc}s", " 0.25ms "] {
            check(micro, 250_000);
        }
        let bad =
            ["", "5", "ms", "5x", "1e3s", "-1s", "5 m x", "1..2s", "99999999h", "1M", "5 m\n3"];
        for bad in bad {
            let error = parse_duration(bad).unwrap_err();
            assert_eq!(error, UnitError::Duration { text: bad.to_string() });
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn numbers_format_for_people() {
        assert_eq!(nanoseconds(812.4), "812 ns");
        assert_eq!(nanoseconds(1_240_000.0), "1.24 ms");
        assert_eq!(nanoseconds(31e9), "31.0 s");
        assert_eq!(significant(1234.5, 3), "1234");
        assert_eq!(significant(0.012_345, 3), "0.0123");
        assert_eq!(thousands(1_234_567), "1,234,567");
        assert_eq!(thousands(999), "999");
    }
}
