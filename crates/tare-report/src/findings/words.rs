//! Text that the rules share: templates, figures and confidence.

use tare_lab::analysis::Interval;

use super::Confidence;
use crate::figures::{clean, micros, percent, percent_interval};

/// Replaces each `{name}` by its value. Values are not expanded again, so a name with braces is
/// kept.
pub(super) fn fill(template: &str, values: &[(&str, String)]) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, behind) = after.split_once('}').unwrap_or((after, ""));
        let value = values.iter().find(|(known, _)| *known == name);
        debug_assert!(value.is_some(), "nothing for {{{name}}} in {template:?}");
        text.push_str(before);
        text.push_str(value.map_or("?", |(_, value)| value));
        rest = behind;
    }
    text.push_str(rest);
    text
}

/// A name in quotes, without control characters.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", clean(name))
}

/// `3.10 µs [2.90, 3.31]`, with a true minus below 0.
pub(super) fn us(interval: &Interval) -> String {
    let one = |us: f64| micros(us).replace('-', "\u{2212}");
    match interval.is_bounded() {
        true => {
            let Interval { value, low, high, .. } = *interval;
            format!("{} \u{b5}s [{}, {}]", one(value), one(low), one(high))
        }
        false => format!("{} \u{b5}s [no interval]", one(interval.value)),
    }
}

/// `+3.10 µs [2.90, 3.31]`: like [`us`], with its sign.
pub(super) fn signed_us(interval: &Interval) -> String {
    let sign = if interval.value > 0.0 { "+" } else { "" };
    format!("{sign}{}", us(interval))
}

/// `3.10 µs`, without an interval.
pub(super) fn us_plain(us: f64) -> String {
    format!("{} \u{b5}s", micros(us).replace('-', "\u{2212}"))
}

/// `+3.10 µs`, without an interval.
pub(super) fn us_change(us: f64) -> String {
    let sign = if us > 0.0 { "+" } else { "" };
    format!("{sign}{}", us_plain(us))
}

/// `+11.2 %`, without an interval.
pub(super) fn percent_change(value: f64) -> String {
    format!("{} %", percent(value))
}

/// `11.2 %`, without sign and interval.
pub(super) fn percent_size(value: f64) -> String {
    percent_change(value.abs()).replace('+', "")
}

/// A loss of throughput as `11.2 % of throughput`, a gain as `+3.1 % throughput`. `lost` adds that
/// word to a loss, for a text in which no other cost comes first.
pub(super) fn throughput(loss: f64, lost: bool) -> String {
    match (loss < 0.0, lost) {
        (true, _) => format!("{} throughput", percent_change(-loss)),
        (false, true) => format!("{} of throughput lost", percent_size(loss)),
        (false, false) => format!("{} of throughput", percent_size(loss)),
    }
}

/// A loss in percent without its sign, for a text that calls it a loss: `11.2 % [9.0, 13.0]`.
pub(super) fn loss(percent: &Interval) -> String {
    percent_interval(percent).replace('+', "")
}

/// The interval of the negated figure.
pub(super) fn mirrored(interval: &Interval) -> Interval {
    let Interval { value, low, high, rounds } = *interval;
    Interval { value: -value, low: -high, high: -low, rounds }
}

/// A share of 0 to 1 as percent.
pub(super) fn share(share: f64) -> String {
    format!("{} %", tare_std::units::significant(share * 100.0, 2))
}

/// `a`, `a and b`, `a, b and c`.
pub(super) fn list(parts: &[String]) -> String {
    match parts.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => parts.concat(),
    }
}

/// The confidence in a figure: its interval, its sample `n` (`12 rounds`), the noise of the control
/// and the doubts about it.
pub(super) fn confidence(
    figure: &Interval,
    unit: (&'static str, &str),
    n: &str,
    noise: Option<String>,
    mut doubts: Vec<usize>,
) -> Confidence {
    doubts.sort_unstable();
    doubts.dedup();
    // The scale on which the interval is symmetric and no difference is 0.
    let scale: fn(f64) -> f64 = match unit.0 {
        "ratio" => f64::ln,
        _ => |value| value,
    };
    let half = (scale(figure.high) - scale(figure.low)) / 2.0;
    let from_zero = (figure.is_bounded() && half > 0.0).then(|| scale(figure.value).abs() / half);
    let form = |value: f64| match unit.0 {
        "percent" => format!("{value:.1}").replace('-', "\u{2212}"),
        _ => micros(value).replace('-', "\u{2212}"),
    };
    let interval = figure.is_bounded().then(|| {
        format!("95 % interval [{}, {}] {} over", form(figure.low), form(figure.high), unit.1)
    });
    let mut parts = vec![match &interval {
        Some(interval) => format!("{interval} {n}"),
        None => format!("{n}, no interval"),
    }];
    parts.extend(noise);
    parts.extend(doubt_words(&doubts));
    Confidence {
        figure: Some(*figure),
        unit: Some(unit.0),
        from_zero,
        doubts,
        text: parts.join("; "),
        interval,
    }
}

/// The confidence in a statement without a figure that has an interval.
pub(super) fn without_interval(text: impl Into<String>, mut doubts: Vec<usize>) -> Confidence {
    doubts.sort_unstable();
    doubts.dedup();
    let mut parts = vec![text.into()];
    parts.extend(doubt_words(&doubts));
    Confidence { doubts, text: parts.join("; "), ..Confidence::default() }
}

fn doubt_words(doubts: &[usize]) -> Option<String> {
    let numbers: Vec<String> = doubts.iter().map(usize::to_string).collect();
    match numbers.len() {
        0 => None,
        1 => Some(format!("doubt [{}]", numbers[0])),
        _ => Some(format!("doubts [{}]", numbers.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fill_does_not_expand_values() {
        let values = [("a", "{b}".to_string()), ("b", "x".to_string())];
        assert_eq!(fill("<{a}> {b}{b}.", &values), "<{b}> xx.");
        assert_eq!(fill("", &values), "");
    }

    #[test]
    fn confidence_names_interval_rounds_and_doubts() {
        let figure = Interval { value: 3.0, low: 2.0, high: 4.0, rounds: 12 };
        let sure =
            confidence(&figure, ("us_per_operation", "µs"), "12 rounds", None, vec![3, 1, 3]);
        assert_eq!(sure.text, "95 % interval [2.00, 4.00] µs over 12 rounds; doubts [1, 3]");
        assert_eq!((sure.from_zero, sure.doubts), (Some(3.0), vec![1, 3]));
        let one = Interval { low: f64::NEG_INFINITY, high: f64::INFINITY, ..figure };
        let sure = confidence(&one, ("percent", "%"), "1 round", None, vec![]);
        assert!(sure.from_zero.is_none() && sure.text.ends_with("no interval"), "{}", sure.text);
    }

    #[test]
    fn list_joins_with_and() {
        let of = |n: usize| list(&["a", "b", "c"].map(String::from)[..n]);
        assert_eq!([of(0), of(1), of(2), of(3)], ["", "a", "a and b", "a, b and c"]);
    }
}
