//! Durations: months, days and nanoseconds, kept apart because no two of them have a fixed ratio.
//! On the wire they are three signed vints (section 5.9 of the specification of version 5).

const NS_PER: [(&str, i64); 6] = [
    ("ns", 1),
    ("us", 1000),
    ("µs", 1000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
];
const HOUR_NS: i64 = 3_600_000_000_000;

/// A span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Duration {
    pub months: i32,
    pub days: i32,
    pub nanoseconds: i64,
}

impl Duration {
    /// Parses `1y2mo3w4d5h6m7s8ms9us10ns` or ISO 8601 (`P1Y2M3DT4H5M6S`, `P2W`), each with an
    /// optional leading minus. Units must not repeat.
    ///
    /// ```
    /// use tare_cql::types::Duration;
    ///
    /// let expected = Duration { months: 14, days: 3, nanoseconds: 0 };
    /// assert_eq!(Duration::parse("1y2mo3d"), Some(expected));
    /// assert_eq!(Duration::parse("P1Y2M3D"), Some(expected));
    /// assert_eq!(Duration::parse("1x"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut duration = match rest.strip_prefix(['P', 'p']) {
            Some(iso) => Self::parse_iso(iso)?,
            None => Self::parse_units(&rest.to_lowercase(), true)?,
        };
        if negative {
            duration.months = duration.months.checked_neg()?;
            duration.days = duration.days.checked_neg()?;
            duration.nanoseconds = duration.nanoseconds.checked_neg()?;
        }
        Some(duration)
    }

    fn parse_iso(text: &str) -> Option<Self> {
        let text = text.to_lowercase();
        if text.contains('-') {
            return Self::parse_iso_date(&text);
        }
        let (date, clock) = match text.split_once('t') {
            Some((date, clock)) if !clock.is_empty() => (date, clock),
            Some(_) => return None,
            None => (&*text, ""),
        };
        if date.is_empty() && clock.is_empty() {
            return None;
        }
        let date = match date {
            "" => Self::default(),
            date => Self::parse_units(&date.replace('m', "mo"), true)?,
        };
        let clock = match clock {
            "" => Self::default(),
            clock => Self::parse_units(clock, false)?,
        };
        (date.nanoseconds == 0).then_some(Self { nanoseconds: clock.nanoseconds, ..date })
    }

    /// `YYYY-MM-DDThh:mm:ss`, each a number of its own.
    fn parse_iso_date(text: &str) -> Option<Self> {
        let mut parts = text.split(['-', 't', ':']).map(|part| part.parse::<u16>().ok());
        let mut part = || parts.next().flatten().map(i32::from);
        let (months, days) = (part()? * 12 + part()?, part()?);
        let seconds = i64::from(part()?) * 3600 + i64::from(part()?) * 60 + i64::from(part()?);
        Some(Self { months, days, nanoseconds: seconds * 1_000_000_000 })
    }

    /// Parses numbers with units; without `calendar` only units of the clock.
    fn parse_units(mut text: &str, calendar: bool) -> Option<Self> {
        let mut duration = Self::default();
        let mut seen: Vec<&str> = Vec::new();
        while !text.is_empty() {
            let digits = text.find(|c: char| !c.is_ascii_digit())?;
            let number: i64 = text[..digits].parse().ok()?;
            let rest = &text[digits..];
            let end = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
            let unit = &rest[..end];
            if seen.contains(&unit) {
                return None;
            }
            seen.push(unit);
            text = &rest[end..];
            let small = |factor: i32| i32::try_from(number).ok()?.checked_mul(factor);
            match unit {
                "y" if calendar => duration.months = duration.months.checked_add(small(12)?)?,
                "mo" if calendar => duration.months = duration.months.checked_add(small(1)?)?,
                "w" if calendar => duration.days = duration.days.checked_add(small(7)?)?,
                "d" if calendar => duration.days = duration.days.checked_add(small(1)?)?,
                unit => {
                    let factor = match unit {
                        "h" => HOUR_NS,
                        _ => NS_PER.iter().find(|(name, _)| *name == unit)?.1,
                    };
                    let more = number.checked_mul(factor)?;
                    duration.nanoseconds = duration.nanoseconds.checked_add(more)?;
                }
            }
        }
        (!seen.is_empty()).then_some(duration)
    }

    /// Appends the bytes of the value.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for part in [i64::from(self.months), i64::from(self.days), self.nanoseconds] {
            put_vint(out, part);
        }
    }
}

/// A signed vint: zigzag, then as many leading ones in the first byte as bytes follow it.
fn put_vint(out: &mut Vec<u8>, value: i64) {
    let zigzag = ((value << 1) ^ (value >> 63)).cast_unsigned();
    let bits = 64 - (zigzag | 1).leading_zeros();
    // Each byte carries seven bits, except that nine bytes carry all 64.
    let more = ((bits - 1) / 7).min(8) as usize;
    let bytes = zigzag.to_be_bytes();
    if more == 8 {
        out.push(0xff);
        out.extend_from_slice(&bytes);
        return;
    }
    let from = out.len();
    out.extend_from_slice(&bytes[7 - more..]);
    out[from] |= !(0xff_u8 >> more);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_and_encoded() {
        let check = |text: &str, expect: Option<(i32, i32, i64)>| {
            let got = Duration::parse(text).map(|d| (d.months, d.days, d.nanoseconds));
            assert_eq!(got, expect, "{text}");
        };
        check("1y2mo3w4d", Some((14, 25, 0)));
        check("-5h6m7s8ms9us10ns", Some((0, 0, -18_367_008_009_010)));
        check("2MO", Some((2, 0, 0)));
        check("P1Y2M3DT4H5M6S", Some((14, 3, 14_706_000_000_000)));
        check("-P2W", Some((0, -14, 0)));
        check("P0001-02-03T04:05:06", Some((14, 3, 14_706_000_000_000)));
        check("-P0000-00-00T89:09:09", Some((0, 0, -320_949_000_000_000)));
        check("PT1M", Some((0, 0, 60_000_000_000)));
        for wrong in ["", "P", "1", "h", "1x", "1h1h", "P1YT", "99999999999y"] {
            check(wrong, None);
        }
        let encoded = |text: &str| {
            let mut out = Vec::new();
            Duration::parse(text).unwrap().encode(&mut out);
            out
        };
        assert_eq!(encoded("1mo2d3ns"), [2, 4, 6]);
        assert_eq!(encoded("-1d"), [0, 1, 0]);
        // 128 zigzags to 256, which needs nine bits.
        assert_eq!(encoded("128d"), [0, 0x81, 0x00, 0]);
        let most = Duration { nanoseconds: i64::MIN, ..Duration::default() };
        let mut out = Vec::new();
        most.encode(&mut out);
        assert_eq!(out[2..], [0xff; 9]);
    }
}
