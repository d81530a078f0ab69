//! Figures as text: percentages with intervals, rates, times, dates. The terminal, the page and the
//! headline all use these functions, so a figure has one form.

use tare_lab::analysis::claims::CostKind;
use tare_lab::analysis::{Cost, Finding, Interval};
use tare_lab::record::{EnvironmentRecord, Record};
use tare_stats::law::{Verdict, is_informative};
use tare_std::units::{nanoseconds, significant};

/// The costs of a finding with the names of their fields in JSON and CSV.
pub(crate) const COST_FIELDS: [(&str, CostKind); 4] = [
    ("server_cpu_cost", CostKind::ServerCpu),
    ("server_cpu_cost_at_rate", CostKind::ServerCpuAtRate),
    ("total_cpu_cost", CostKind::TotalCpu),
    ("throughput_cost", CostKind::Throughput),
];

/// A signed percentage with one decimal: `+69.1`, `−2.0`. Zero has no sign.
pub fn percent(value: f64) -> String {
    if !value.is_finite() {
        return "?".to_string();
    }
    let text = format!("{:.1}", value.abs());
    if text == "0.0" {
        text
    } else if value < 0.0 {
        format!("\u{2212}{text}")
    } else {
        format!("+{text}")
    }
}

/// `+69.1 % [66.2, 71.9]`, or `+69.1 % [no interval]` for a single round.
pub(crate) fn percent_interval(interval: &Interval) -> String {
    let value = percent(interval.value);
    if interval.low.is_finite() && interval.high.is_finite() {
        let end = |end| percent(end).trim_start_matches('+').to_string();
        format!("{value} % [{}, {}]", end(interval.low), end(interval.high))
    } else {
        format!("{value} % [no interval]")
    }
}

/// Whether a chart shows a cost. A cost that is not known yet would stretch the scale; one of a
/// single round has no interval and does not.
pub(crate) fn has_place(cost: &Cost) -> bool {
    let Interval { value, rounds, .. } = cost.percent;
    value.is_finite() && (cost.found || is_informative(cost.within_percent) || rounds < 2)
}

/// The text of a figure that was found and must not be claimed: `within noise (−1.8 %)`. `None` for
/// other verdicts.
pub(crate) fn noise(verdict: Option<Verdict>, value: impl Fn() -> String) -> Option<String> {
    match verdict? {
        Verdict::WithinNoise => Some(format!("within noise ({})", value())),
        Verdict::NoiseUnknown => Some(format!("noise not known ({})", value())),
        Verdict::Withheld => Some(format!("withheld ({})", value())),
        Verdict::NotKnown | Verdict::NotFound | Verdict::Loss | Verdict::Gain => None,
    }
}

/// The interval of a cost, also if no difference was found, or its text as noise.
pub(crate) fn interval_or_noise(cost: &Cost, verdict: Option<Verdict>) -> String {
    let value = || format!("{} %", percent(cost.percent.value));
    noise(verdict, value).unwrap_or_else(|| percent_interval(&cost.percent))
}

/// The length of a cost's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CostFormat {
    /// `no difference found (within 1.8 %)`
    Full,
    /// `none found (±1.8 %)`
    Short,
}

/// The text of a cost by its verdict: its interval, `within noise`, or `no difference found`, never
/// a bare 0. The control has no verdict, because its interval is the noise: a control that differs
/// is `within noise (±2.3 %)`.
pub(crate) fn cost(cost: &Cost, verdict: Option<Verdict>, room: CostFormat) -> String {
    let value = || format!("{} %", percent(cost.percent.value));
    if let Some(noise) = noise(verdict, value) {
        return noise;
    }
    match verdict {
        None if cost.found && is_informative(cost.within_percent) => {
            return format!("within noise (\u{b1}{:.1} %)", cost.within_percent);
        }
        _ if cost.found => return percent_interval(&cost.percent),
        _ => {}
    }
    if !is_informative(cost.within_percent) {
        return "not known yet".to_string();
    }
    let within = format!("{:.1}", cost.within_percent);
    match room {
        CostFormat::Full => format!("no difference found (within {within} %)"),
        CostFormat::Short => format!("none found (\u{b1}{within} %)"),
    }
}

/// A count per second with three digits and a `k` or `M`: `812k`, `1.24M`, `94.1`.
pub fn rate(per_s: f64) -> String {
    match per_s.abs() {
        x if !x.is_finite() => "?".to_string(),
        x if x < 999.5 => significant(per_s, 3),
        x if x < 999.5e3 => format!("{}k", significant(per_s / 1e3, 3)),
        _ => format!("{}M", significant(per_s / 1e6, 3)),
    }
}

/// `1 round`, `10 rounds`.
pub(crate) fn rounds(count: u32) -> String {
    if count == 1 { "1 round".to_string() } else { format!("{count} rounds") }
}

/// Microseconds with three digits.
pub(crate) fn micros(us: f64) -> String {
    if us.is_finite() { significant(us, 3) } else { "?".to_string() }
}

/// A figure with its interval: `12.3 [12.1, 12.5]`.
pub(crate) fn with_interval(interval: &Interval, form: fn(f64) -> String) -> String {
    if interval.low.is_finite() && interval.high.is_finite() {
        format!("{} [{}, {}]", form(interval.value), form(interval.low), form(interval.high))
    } else {
        format!("{} [no interval]", form(interval.value))
    }
}

/// A latency in ns as text with its unit.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub fn latency(ns: u64) -> String {
    nanoseconds(ns as f64)
}

/// A share of 0 to 1 in whole percent.
pub(crate) fn share(share: f64) -> String {
    if share.is_finite() { format!("{:.0} %", share * 100.0) } else { "?".to_string() }
}

/// The role of an environment, if it is the baseline or its control.
pub(crate) fn role(finding: &Finding) -> Option<&'static str> {
    if finding.control {
        Some("A/A control")
    } else if finding.baseline {
        Some("baseline")
    } else {
        None
    }
}

/// The environments of a record in the order of its study, the A/A control after the baseline.
/// (They ran in random order, and a record may list the control last.)
pub(crate) fn in_order(record: &Record) -> Vec<&EnvironmentRecord> {
    let study = &record.study;
    let place = |environment: &&EnvironmentRecord| {
        let name = if environment.control { &study.baseline } else { &environment.spec.name };
        let known = study.environments.iter().position(|spec| spec.name == *name);
        (known.unwrap_or(usize::MAX), environment.control)
    };
    let mut environments: Vec<&EnvironmentRecord> = record.environments.iter().collect();
    environments.sort_by_key(place);
    environments
}

/// The names left out and the reasons: environments that this host could not run, and those outside
/// the quick part of the study or its budget, in the order of the study. Names keep their control
/// characters.
pub(crate) fn left_out(record: &Record) -> Vec<(String, String)> {
    let missing = in_order(record).into_iter().filter_map(|environment| {
        Some((environment.spec.name.clone(), environment.left_out.clone()?))
    });
    let quick = record
        .study
        .quick
        .iter()
        .flat_map(|part| [("environment", &part.environments), ("workload", &part.workloads)]);
    let quick = quick.filter(|(_, names)| !names.is_empty()).map(|(what, names)| {
        let plural = if names.len() > 1 { "s" } else { "" };
        let why =
            format!("{}; not in the quick part: run the study without --quick", names.join(", "));
        (format!("{} {what}{plural} of the whole study", names.len()), why)
    });
    let budget = record.study.budget_part.iter().flat_map(|part| {
        let why = format!(
            "no time for {} rounds within --budget {}, give a larger one",
            part.rounds_min,
            tare_std::units::duration(part.budget)
        );
        [("environment", &part.environments), ("workload", &part.workloads)]
            .into_iter()
            .filter(|(_, names)| !names.is_empty())
            .map(move |(what, names)| {
                let plural = if names.len() > 1 { "s" } else { "" };
                (
                    format!("{} {what}{plural} of the study", names.len()),
                    format!("{why}: {}", names.join("; ")),
                )
            })
    });
    missing.chain(quick).chain(budget).collect()
}

/// Replaces control characters and bidirectional overrides by U+FFFD, so that untrusted text cannot
/// control a terminal or reorder a line.
pub fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\t' => ' ',
            c if c.is_control() => '\u{fffd}',
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => {
                '\u{fffd}'
            }
            c => c,
        })
        .collect()
}

/// Cuts a text to a number of characters; an ellipsis marks the cut.
pub(crate) fn shorten(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_string();
    }
    let mut short: String = text.chars().take(characters.saturating_sub(1)).collect();
    short.push('\u{2026}');
    short
}

/// `2026-11-21 02:49:58 UTC` from milliseconds since 1970.
///
/// The civil date follows Howard Hinnant's `civil_from_days`
/// (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / 1000;
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// A span of milliseconds: `48 s`, `4 min 31 s`, `1 h 12 min`.
pub(crate) fn span(ms: u64) -> String {
    match ms / 1000 {
        s if s < 60 => format!("{s} s"),
        s if s < 3600 => format!("{} min {} s", s / 60, s % 60),
        s => format!("{} h {} min", s / 3600, s / 60 % 60),
    }
}

/// A command line that can be pasted into a shell.
pub(crate) fn command(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(word)).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_string()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_carry_their_sign() {
        for (value, text) in [
            (69.14, "+69.1"),
            (-2.0, "\u{2212}2.0"),
            (0.01, "0.0"),
            (-0.04, "0.0"),
            (f64::NAN, "?"),
        ] {
            assert_eq!(percent(value), text);
        }
    }

    #[test]
    fn cost_not_found_is_never_zero() {
        let interval = Interval { value: 0.0, low: -1.2, high: 1.8, rounds: 12 };
        let none = Cost { percent: interval, found: false, within_percent: 1.8 };
        assert_eq!(cost(&none, None, CostFormat::Full), "no difference found (within 1.8 %)");
        assert_eq!(cost(&none, None, CostFormat::Short), "none found (\u{b1}1.8 %)");
        let wild = Cost { within_percent: 37_132_968.2, ..none };
        assert_eq!(cost(&wild, None, CostFormat::Full), "not known yet");
    }

    #[test]
    fn cost_within_noise_is_marked() {
        let percent = Interval { value: -1.8, low: -3.2, high: -0.6, rounds: 12 };
        let found = Cost { percent, found: true, within_percent: 3.2 };
        let check = |verdict, expect: &str| {
            assert_eq!(cost(&found, verdict, CostFormat::Short), expect);
            assert_eq!(cost(&found, verdict, CostFormat::Full), expect);
        };
        check(Some(Verdict::WithinNoise), "within noise (\u{2212}1.8 %)");
        check(Some(Verdict::NoiseUnknown), "noise not known (\u{2212}1.8 %)");
        check(Some(Verdict::Gain), "\u{2212}1.8 % [\u{2212}3.2, \u{2212}0.6]");
        check(None, "within noise (\u{b1}3.2 %)");
        let text = interval_or_noise(&found, Some(Verdict::WithinNoise));
        assert_eq!(text, "within noise (\u{2212}1.8 %)");
    }

    #[test]
    fn one_round_has_no_interval() {
        let one = Interval { value: 3.0, low: f64::NAN, high: f64::INFINITY, rounds: 1 };
        assert_eq!(percent_interval(&one), "+3.0 % [no interval]");
        assert_eq!(with_interval(&one, micros), "3.00 [no interval]");
    }

    #[test]
    fn the_control_comes_after_the_baseline() {
        let (record, _) = crate::fixture::quick();
        let names: Vec<&str> = in_order(&record).iter().map(|e| e.spec.name.as_str()).collect();
        assert_eq!(names[..3], ["native", "native again", "docker-default"]);
        assert_eq!(names.len(), record.environments.len());
    }

    #[test]
    fn dates_are_right_over_leap_years() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400_000, "2000-02-29 00:00:00 UTC"),
            (1_795_229_398_000, "2026-11-21 02:49:58 UTC"),
            (4_107_542_399_000, "2100-02-28 23:59:59 UTC"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }

    #[test]
    fn commands_can_be_pasted() {
        let words = ["tare", "weigh", "a b.toml", "it's", ""].map(String::from);
        assert_eq!(command(&words), r"tare weigh 'a b.toml' 'it'\''s' ''");
    }

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(clean("a\u{1b}[31mb\u{202e}c\nd"), "a\u{fffd}[31mb\u{fffd}c\u{fffd}d");
        assert_eq!(shorten("abcdef", 4), "abc\u{2026}");
    }
}
