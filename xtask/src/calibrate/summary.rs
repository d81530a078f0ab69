//! The summary of many campaigns as Markdown, for the terminal and for docs/concepts/trust.md.

use std::collections::BTreeMap;

use tare_stats::methods::student_t;

use super::burners::Place;
use super::line::{Figure, Line};
use super::proportion::Proportion;
use super::studies::Kind;

/// Renders the whole summary.
pub(crate) fn markdown(lines: &[Line]) -> String {
    if lines.is_empty() {
        return "Not run yet.\n".to_string();
    }
    let mut out = vec![ran(lines), String::new()];
    let is_cost = |line: &&Line| {
        Kind::find(&line.kind).is_some_and(|kind| kind != Kind::Explain && !kind.has_same_layers())
    };
    let costs: Vec<&Line> = lines.iter().filter(is_cost).collect();
    if !costs.is_empty() {
        out.push("| campaign | environment | truth | interval holds it | found | claimed | after (median) | error (mean) | half width (median) |".into());
        out.push("|---|---|---|---|---|---|---|---|---|".into());
        out.extend(groups(&costs).into_iter().map(|group| row(&group)));
        out.push(String::new());
    }
    let same = same_layers(lines);
    if !same.is_empty() {
        out.push("| same layers beside | figure | no difference found | claimed | median of the costs | half width (median) |".into());
        out.push("|---|---|---|---|---|---|".into());
        out.extend(same);
        out.push(String::new());
    }
    let together = together(lines);
    if !together.is_empty() {
        out.extend(together.into_iter().map(|line| format!("- {line}")));
        out.push(String::new());
    }
    let explained: Vec<&Line> = lines.iter().filter(|l| l.kind == Kind::Explain.name()).collect();
    if !explained.is_empty() {
        out.push("| `tare explain`: injected | beside | named first | interval of its share holds the truth | error (mean) |".into());
        out.push("|---|---|---|---|---|".into());
        out.extend(groups(&explained).into_iter().map(|group| question(&group)));
        out.push(String::new());
    }
    out.join("\n")
}

/// Renders one line for a campaign that has just ended.
pub(crate) fn campaign(lines: &[Line]) -> String {
    let one = |line: &Line| {
        let unit = unit(line.figure);
        let bounds = bounds(line);
        let truth = line.truth.map_or(String::new(), |t| format!(" truth {t:.2}"));
        let verdict = match line.contains {
            Some(true) => " holds",
            Some(false) => " MISSES",
            None => "",
        };
        let named = line.named.as_ref().map_or(String::new(), |named| format!(" named {named}"));
        format!("{} {:.2} {bounds} {unit}{truth}{verdict}{named}", line.environment, line.value)
    };
    lines.iter().map(one).collect::<Vec<_>>().join("; ")
}

fn bounds(line: &Line) -> String {
    match (line.low, line.high) {
        (Some(low), Some(high)) => format!("[{low:.2}, {high:.2}]"),
        _ => "[no bounds]".to_string(),
    }
}

fn ran(lines: &[Line]) -> String {
    let mut campaigns: BTreeMap<(&str, u32), (f64, f64)> = BTreeMap::new();
    for line in lines {
        campaigns.insert((&line.kind, line.campaign), (line.seconds, line.load));
    }
    let minutes = campaigns.values().map(|(seconds, _)| seconds).sum::<f64>() / 60.0;
    let each = median(campaigns.values().map(|(seconds, _)| *seconds));
    let load = median(campaigns.values().map(|(_, load)| *load));
    format!(
        "{} campaigns of {each:.0} s (median), {minutes:.0} minutes in all; load average before a campaign {load:.1} (median).",
        campaigns.len()
    )
}

/// Lines of the same question, in the order in which they came first.
fn groups<'a>(lines: &[&'a Line]) -> Vec<Vec<&'a Line>> {
    let mut groups: Vec<Vec<&Line>> = Vec::new();
    for line in lines {
        let same = |group: &&mut Vec<&Line>| {
            let [first, ..] = group.as_slice() else { return false };
            (&first.kind, &first.environment, first.figure)
                == (&line.kind, &line.environment, line.figure)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    let order = |group: &Vec<&Line>| Kind::ALL.iter().position(|kind| kind.name() == group[0].kind);
    groups.sort_by_key(order);
    groups
}

fn row(group: &[&Line]) -> String {
    let first = group[0];
    let unit = unit(first.figure);
    let truth = match first.truth {
        Some(_) => format!("{:.2} {unit}", median(group.iter().filter_map(|line| line.truth))),
        None => "rises with the length".to_string(),
    };
    let holds = Proportion::of(group.iter().filter_map(|line| line.contains));
    let holds = if first.truth.is_some() { holds.text() } else { String::new() };
    let found = Proportion::of(group.iter().map(|line| line.found())).text();
    let claimed = Proportion::of(group.iter().map(|line| line.claimed)).text();
    let after: Vec<f64> = group.iter().filter_map(|line| line.claimed_after_s).collect();
    let after = if after.is_empty() { String::new() } else { format!("{:.0} s", median(after)) };
    let half = group.iter().filter_map(|line| Some((line.high? - line.low?) / 2.0));
    format!(
        "| {} | {} | {truth} | {holds} | {found} | {claimed} | {after} | {} | {:.2} {unit} |",
        first.kind,
        first.environment,
        error(group, unit),
        median(half)
    )
}

/// The mean of the measured minus the true cost, with Student's interval over the campaigns.
fn error(group: &[&Line], unit: &str) -> String {
    let errors: Vec<f64> = group.iter().filter_map(|line| Some(line.value - line.truth?)).collect();
    match student_t(&errors) {
        None => String::new(),
        Some(mean) if mean.low.is_finite() => {
            format!("{:+.2} [{:+.2}, {:+.2}] {unit}", mean.centre, mean.low, mean.high)
        }
        Some(mean) => format!("{:+.2} {unit}", mean.centre),
    }
}

/// The sentences about several rows together.
fn together(lines: &[Line]) -> Vec<String> {
    let mut out = Vec::new();
    let of = |kind: Kind| lines.iter().filter(move |line| line.kind == kind.name());
    let injected = |line: &&Line| line.truth.is_some_and(|truth| truth != 0.0);
    let control = |line: &&Line| line.truth == Some(0.0);
    let contained = |line: &Line| line.contains;
    let quiet = [Kind::Busy, Kind::Quota, Kind::Delay];
    let all = Proportion::of(
        quiet.into_iter().flat_map(|kind| of(kind).filter(injected).filter_map(contained)),
    );
    if all.n > 0 {
        out.push(format!(
            "Injected costs of all quiet campaigns, how often the interval holds the truth: {}.",
            all.text()
        ));
    }
    let controls = [Kind::Busy, Kind::Quota, Kind::Delay, Kind::Filter];
    let claims = Proportion::of(
        controls.into_iter().flat_map(|kind| of(kind).filter(control).map(|line| line.claimed)),
    );
    if claims.n > 0 {
        out.push(format!(
            "A/A controls of all quiet campaigns in which a difference was claimed: {}.",
            claims.text()
        ));
    }
    out.extend(filters(lines));
    let noisy: Vec<&Line> = of(Kind::Noise).collect();
    if !noisy.is_empty() {
        let touched = noisy.iter().map(|line| {
            let strangers = line.doubts.iter().find(|(kind, _)| kind == "strangers");
            strangers.map_or(0, |(_, slices)| *slices)
        });
        let (k, n) = (touched.sum(), noisy.iter().map(|line| line.slices).sum());
        let holds = Proportion::of(noisy.iter().copied().filter(injected).filter_map(contained));
        out.push(format!("Beside a neighbour: slices that were doubted for it: {}; injected costs whose interval holds the truth: {}.", Proportion { k, n }.text(), holds.text()));
    }
    out
}

/// The rows about the same layers under several runtimes, those of one load together.
fn same_layers(lines: &[Line]) -> Vec<String> {
    let mut out = Vec::new();
    for kind in Kind::ALL.into_iter().filter(|kind| kind.has_same_layers()) {
        let here: Vec<&Line> = lines.iter().filter(|line| line.kind == kind.name()).collect();
        let Some((count, place)) = kind.burners().filter(|_| !here.is_empty()) else { continue };
        let words = match (count, place) {
            (0, _) => "nothing".to_string(),
            (1, Place::Session) => "1 burner in another session".to_string(),
            (_, Place::Session) => format!("{count} burners in another session"),
            (_, Place::Cgroup) => format!("{count} burners in another cgroup"),
            (_, Place::Nice) => format!("{count} burners at nice 10"),
        };
        for figure in [Figure::CpuPercent, Figure::ThroughputPercent] {
            let of = || here.iter().filter(|line| line.figure == figure);
            let none = Proportion::of(of().map(|line| !line.found()));
            let claimed = Proportion::of(of().map(|line| line.claimed));
            let half = median(of().filter_map(|line| Some((line.high? - line.low?) / 2.0)));
            out.push(format!(
                "| {words} | {} | {} | {} | {:+.1} % | {half:.1} % |",
                unit(figure).trim_start_matches("% "),
                none.text(),
                claimed.text(),
                median(of().map(|line| line.value)),
            ));
        }
    }
    out
}

/// The sentence about whether filters cost in proportion to their length.
fn filters(lines: &[Line]) -> Option<String> {
    let mut campaigns: BTreeMap<u32, Vec<(f64, &Line)>> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.kind == Kind::Filter.name()) {
        if let Some(length) =
            line.inject.strip_prefix("filter=").and_then(|length| length.parse().ok())
        {
            campaigns.entry(line.campaign).or_default().push((length, line));
        }
    }
    let whole: Vec<&Vec<(f64, &Line)>> = campaigns.values().filter(|one| one.len() == 3).collect();
    if whole.is_empty() {
        return None;
    }
    let rises =
        Proportion::of(whole.iter().map(|one| one.is_sorted_by(|a, b| a.1.value < b.1.value)));
    let straight = Proportion::of(whole.iter().map(|one| is_straight(one)));
    let slope = median(whole.iter().map(|one| {
        let us = |line: &Line| line.value / 100.0 * line.baseline;
        (us(one[2].1) - us(one[0].1)) / (one[2].0 - one[0].0) * 1000.0
    }));
    Some(format!(
        "Filters: the longer costs more, {}; the middle one lies on the line through the two others, within the intervals of all three, {}; {slope:.3} µs per operation and 1,000 instructions (median).",
        rises.text(),
        straight.text()
    ))
}

/// Whether the middle filter is on the line through the two others. The ends of the line are as
/// uncertain as the middle, so that the intervals of all three combine like the errors of a sum.
fn is_straight(one: &[(f64, &Line)]) -> bool {
    let (short, middle, long) = (one[0], one[1], one[2]);
    let share = (middle.0 - short.0) / (long.0 - short.0);
    let expect = short.1.value + share * (long.1.value - short.1.value);
    let half = |line: &Line| Some((line.high? - line.low?) / 2.0);
    let parts = [(1.0 - share, short.1), (1.0, middle.1), (share, long.1)];
    let within = parts
        .into_iter()
        .try_fold(0.0, |sum: f64, (weight, line)| Some(sum.hypot(weight * half(line)?)));
    within.is_none_or(|within| (middle.1.value - expect).abs() <= within)
}

fn question(group: &[&Line]) -> String {
    let first = group[0];
    let named = Proportion::of(
        group.iter().map(|line| line.claimed && line.named.as_deref() == Some("inject")),
    );
    let holds = Proportion::of(group.iter().filter_map(|line| line.contains));
    let holds = if first.truth.is_some() { holds.text() } else { "no truth in µs".into() };
    let beside = first.environment.split_once("beside ").map_or("", |(_, layers)| layers);
    format!("| {} | {beside} | {} | {holds} | {} |", first.inject, named.text(), error(group, "µs"))
}

fn unit(figure: Figure) -> &'static str {
    match figure {
        Figure::CpuPercent => "% CPU",
        Figure::ThroughputPercent => "% throughput",
        Figure::LatencyUs | Figure::ShareUs => "µs",
    }
}

fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        n => f64::midpoint(sorted[(n - 1) / 2], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::line::example;

    #[test]
    fn campaigns_are_counted_and_their_errors_averaged() {
        let lines: Vec<Line> = (0..20u32)
            .map(|campaign| Line {
                campaign,
                value: 3.0 + f64::from(campaign % 2) / 10.0,
                contains: Some(campaign > 0),
                ..example()
            })
            .collect();
        let text = markdown(&lines);
        assert!(
            text.contains(
                "| busy | busy 3 % | 3.00 % CPU | 19 of 20 (95 %; 95 % [75, 100]) | 20 of 20"
            ),
            "{text}"
        );
        assert!(text.contains("| 12 s | +0.05 [+0.03, +0.07] % CPU | 1.10 % CPU |"), "{text}");
        assert!(text.contains("20 campaigns of 30 s (median), 10 minutes"), "{text}");
        assert!(text.contains("holds the truth: 19 of 20"), "{text}");
    }

    #[test]
    fn controls_noise_filters_and_explanations_have_their_lines() {
        let control = Line {
            environment: "native again".into(),
            truth: Some(0.0),
            claimed: true,
            ..example()
        };
        let noise =
            Line { kind: "noise".into(), doubts: vec![("strangers".into(), 19)], ..example() };
        let filter = |length: f64, value: f64| Line {
            kind: "filter".into(),
            environment: format!("filter {length}"),
            inject: format!("filter={length}"),
            truth: None,
            contains: None,
            value,
            low: Some(value - 1.0),
            high: Some(value + 1.0),
            ..example()
        };
        let explained = Line {
            kind: "explain".into(),
            environment: "20 us beside a bridge".into(),
            inject: "busy=20us".into(),
            figure: Figure::ShareUs,
            named: Some("inject".into()),
            ..example()
        };
        let text = markdown(&[
            control,
            noise,
            filter(1000.0, 10.0),
            filter(2000.0, 20.5),
            filter(4000.0, 40.0),
            explained,
        ]);
        for expect in [
            "a difference was claimed: 1 of 1",
            "slices that were doubted for it: 19 of 20",
            "the longer costs more, 1 of 1",
            "of all three, 1 of 1",
            "1.000 µs per operation and 1,000 instructions",
            "| busy=20us | a bridge | 1 of 1",
        ] {
            assert!(text.contains(expect), "{expect:?} is not in\n{text}");
        }
    }
}
