//! Workloads compared: one group of bars per workload, one bar per environment. Each group has its
//! own scale, because operations of 4 KiB and of 1 MiB have none in common. A line through the
//! group marks the end of the baseline's bar.

use tare_lab::analysis::{Finding, Interval, Latency, closed_loop_latency};
use tare_lab::record::Record;

use super::{SeriesStyle, series_styles};
use crate::figures::{rate, role, shorten, with_interval};
use crate::html::svg::{Scale, Shape, Svg, TextAnchor};
use tare_std::units::nanoseconds;

/// Pixels of a group's head, of a bar with its name above, and between groups.
const HEAD: f64 = 26.0;
const ROW: f64 = 33.0;
const GAP: f64 = 18.0;
const BAR: f64 = 11.0;

/// One bar: its length, its interval, a second mark, and its texts.
struct Bar<'f> {
    finding: &'f Finding,
    style: SeriesStyle,
    value: f64,
    ends: Option<(f64, f64)>,
    mark: Option<f64>,
    text: String,
    tooltip: String,
}

/// Draws operations per second at capacity with their intervals.
pub(in crate::html) fn throughput(groups: &[(&str, Vec<&Finding>)], id: &str) -> Option<String> {
    let title = "Throughput of every environment, workload by workload";
    draw(title, id, groups, &|findings| {
        findings
            .iter()
            .zip(series_styles(findings))
            .filter_map(|(f, style)| rate_bar(f, style))
            .collect()
    })
}

/// Draws latency: the mean as a bar, p99 as a mark. It is response time at the fixed rate, or
/// service time in the closed loop if no rate was measured (`closed`).
pub(in crate::html) fn latency(
    record: &Record,
    groups: &[(&str, Vec<&Finding>)],
    closed: bool,
    id: &str,
) -> Option<String> {
    let title = "Latency of every environment, workload by workload";
    let of = |finding: &Finding| match closed {
        true => closed_loop_latency(record, &finding.workload, &finding.environment),
        false => finding.response.clone(),
    };
    draw(title, id, groups, &|findings| {
        let bars = findings.iter().zip(series_styles(findings));
        bars.filter_map(|(f, style)| Some(latency_bar(f, style, &of(f)?))).collect()
    })
}

fn rate_bar(finding: &Finding, style: SeriesStyle) -> Option<Bar<'_>> {
    let of: Interval = finding.throughput_per_s?;
    let text = format!("{}/s", with_interval(&of, rate));
    Some(Bar {
        finding,
        style,
        value: of.value,
        ends: of.is_bounded().then_some((of.low, of.high)),
        mark: None,
        tooltip: format!("{text}, of {} rounds", of.rounds),
        text,
    })
}

fn latency_bar<'f>(finding: &'f Finding, style: SeriesStyle, of: &Latency) -> Bar<'f> {
    let p99 = super::as_f64(of.p99_ns);
    let text = format!("{}, p99 {}", nanoseconds(of.mean_ns), nanoseconds(p99));
    Bar {
        finding,
        style,
        value: of.mean_ns,
        ends: None,
        mark: Some(p99),
        tooltip: format!("mean {text}"),
        text,
    }
}

/// Makes the bars of a group.
type Bars<'f, 'b> = &'b dyn Fn(&[&'f Finding]) -> Vec<Bar<'f>>;

fn draw<'f>(
    title: &str,
    id: &str,
    groups: &[(&str, Vec<&'f Finding>)],
    bars_of: Bars<'f, '_>,
) -> Option<String> {
    let groups: Vec<(&str, Vec<Bar<'_>>)> =
        groups.iter().map(|(name, findings)| (*name, bars_of(findings))).collect();
    let groups: Vec<_> = groups.into_iter().filter(|(_, bars)| bars.len() > 1).collect();
    if groups.is_empty() {
        return None;
    }
    let text_of = |(name, bars): &(&str, Vec<Bar<'_>>)| {
        let bars = bars.iter().map(|bar| format!("{} {}", bar.finding.environment, bar.text));
        format!("{name}: {}", bars.collect::<Vec<_>>().join(", "))
    };
    let description = groups.iter().map(text_of).collect::<Vec<_>>().join(". ");
    let tall = |bars: &[Bar<'_>]| HEAD + super::as_f64(bars.len()) * ROW + GAP;
    let height: f64 = groups.iter().map(|(_, bars)| tall(bars)).sum();
    let mut svg = Svg::new(id, height, title, &description);
    let mut top = 0.0;
    for (name, bars) in &groups {
        svg.text(0.0, top + 16.0, TextAnchor::Start, "group", &shorten(name, 44));
        group(&mut svg, top + HEAD, bars);
        top += tall(bars);
    }
    Some(svg.finish())
}

fn group(svg: &mut Svg, top: f64, bars: &[Bar<'_>]) {
    let ends = bars.iter().flat_map(|bar| {
        [Some(bar.value), bar.ends.map(|(_, high)| high.min(2.0 * bar.value)), bar.mark]
    });
    let most = ends.flatten().filter(|end| end.is_finite()).fold(0.0, f64::max);
    let scale = Scale::linear(0.0, most);
    let bottom = top + super::as_f64(bars.len()) * ROW;
    let from = scale.x(0.0);
    svg.line(from, top, from, bottom, "grid");
    let base = bars.iter().find(|bar| bar.finding.baseline).map(|base| scale.x(base.value));
    for (row, bar) in bars.iter().enumerate() {
        let y = top + super::as_f64(row) * ROW;
        let middle = y + 23.0;
        let label = match role(bar.finding) {
            Some(role) => format!("{} \u{2013} {role}", shorten(&bar.finding.environment, 20)),
            None => shorten(&bar.finding.environment, 30),
        };
        svg.text(from, y + 13.0, TextAnchor::Start, "name", &label);
        svg.text(100.0, y + 13.0, TextAnchor::End, "tick", &bar.text);
        let to = scale.x(bar.value);
        let class = format!("block {}", bar.style.class);
        svg.rect(from, middle - BAR / 2.0, to - from, BAR, &class, &bar.tooltip);
        if let Some(base) = base {
            svg.line(base, middle - 8.0, base, middle + 8.0, "reference");
        }
        if let Some((low, high)) = bar.ends {
            let (low, high) = (scale.x(low), scale.x(high));
            svg.line(low, middle, high, middle, "whisker");
            for end in [low, high] {
                svg.line(end, middle - 4.0, end, middle + 4.0, "whisker");
            }
        }
        if let Some(mark) = bar.mark {
            let text = format!("p99 {}", nanoseconds(mark));
            let to = scale.x(mark);
            svg.line(scale.x(bar.value), middle, to, middle, "stem");
            svg.mark(to, middle, Shape::Diamond, 4.5, bar.style.class, &text);
        }
    }
}
