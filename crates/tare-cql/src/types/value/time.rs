//! Dates and times as text, in UTC; a zone is written as `Z` or `+hh:mm`.
//!
//! The conversion between days and dates is Howard Hinnant's `days_from_civil` and its reverse
//! (howardhinnant.github.io/date_algorithms.html), for the proleptic Gregorian calendar.

use std::fmt;

const DAY_MS: i64 = 86_400_000;
/// A `date` of 0 lies this many days before 1970-01-01.
const DATE_OFFSET: i64 = 1 << 31;

/// `YYYY-MM-DD HH:MM:SS.mmm+0000`, the form of cqlsh.
pub(super) fn write_timestamp(f: &mut fmt::Formatter<'_>, milliseconds: i64) -> fmt::Result {
    let (year, month, day) = date_of(milliseconds.div_euclid(DAY_MS));
    let ms = milliseconds.rem_euclid(DAY_MS);
    let (hour, minute, second) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60);
    write!(
        f,
        "'{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{:03}+0000'",
        ms % 1000
    )
}

/// `YYYY-MM-DD`; `value` is the number on the wire.
pub(super) fn write_date(f: &mut fmt::Formatter<'_>, value: i64) -> fmt::Result {
    let (year, month, day) = date_of(value - DATE_OFFSET);
    write!(f, "'{year:04}-{month:02}-{day:02}'")
}

/// `HH:MM:SS.nnnnnnnnn`
pub(super) fn write_time(f: &mut fmt::Formatter<'_>, nanoseconds: i64) -> fmt::Result {
    let seconds = nanoseconds / 1_000_000_000;
    write!(
        f,
        "'{:02}:{:02}:{:02}.{:09}'",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        nanoseconds % 1_000_000_000
    )
}

/// The number on the wire of a `date`; the text may be that number too.
pub(super) fn parse_date(text: &str) -> Option<u32> {
    if let Some(number) = integer(text) {
        return u32::try_from(number).ok();
    }
    u32::try_from(days(text)? + DATE_OFFSET).ok()
}

/// A text that is a whole number.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// Nanoseconds since midnight of `HH:MM:SS[.fraction]`.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut parts = clock.split(':');
    let (hour, minute) = (number(parts.next()?, 23)?, number(parts.next()?, 59)?);
    let second = match parts.next() {
        Some(second) => number(second, 59)?,
        None => 0,
    };
    if parts.next().is_some() || fraction.len() > 9 {
        return None;
    }
    let fraction = match fraction {
        "" => 0,
        digits => number(&format!("{digits:0<9}"), 999_999_999)?,
    };
    Some((hour * 3600 + minute * 60 + second) * 1_000_000_000 + fraction)
}

/// Milliseconds since the epoch of `YYYY-MM-DD[( |T)HH:MM[:SS[.fff]]][Z|+hhmm|+hh:mm]`; the text
/// may be that number too.
pub(super) fn parse_timestamp(text: &str) -> Option<i64> {
    if let Some(number) = integer(text) {
        return Some(number);
    }
    let (date, rest) = text.split_at_checked(10)?;
    let day_ms = days(date)?.checked_mul(DAY_MS)?;
    let Some(rest) = rest.strip_prefix([' ', 'T']) else {
        return Some(day_ms - zone_ms(rest)?);
    };
    let zone_at = rest.find(['Z', 'z', '+', '-']).unwrap_or(rest.len());
    let (clock, zone) = rest.split_at(zone_at);
    Some(day_ms + parse_time(clock.trim_end())? / 1_000_000 - zone_ms(zone)?)
}

/// Milliseconds by which a zone is ahead of UTC.
fn zone_ms(zone: &str) -> Option<i64> {
    if zone.is_empty() || zone.eq_ignore_ascii_case("z") {
        return Some(0);
    }
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let digits = digits.replace(':', "");
    let (hours, minutes) = digits.split_at_checked(2)?;
    let minutes = if minutes.is_empty() { 0 } else { number(minutes, 59)? };
    Some(sign * (number(hours, 23)? * 60 + minutes) * 60_000)
}

/// Days since the epoch of `YYYY-MM-DD`, which must exist. Years may be negative, and have as many
/// digits as a `date` can hold.
fn days(text: &str) -> Option<i64> {
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let mut parts = text.split('-');
    let year = sign * number(parts.next()?, 9_999_999)?;
    let (month, day) = (number(parts.next()?, 12)?, number(parts.next()?, 31)?);
    if parts.next().is_some() {
        return None;
    }
    let days = days_of(year, month, day);
    (date_of(days) == (year, month, day)).then_some(days)
}

/// A number of digits alone that does not exceed `max`.
fn number(text: &str, max: i64) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok().filter(|value| *value <= max)
}

fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = (shifted_month + 2) % 12 + 1;
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}
