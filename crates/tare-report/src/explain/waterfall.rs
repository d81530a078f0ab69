//! The waterfall between two environments: each share is a bar that starts at the end of the last.

use tare_lab::ablation::{Explanation, Plan, Share, Verdict};

use super::{interval, micros};
use crate::figures::{clean, shorten};
use crate::layout::{Paint, columns, pad};

/// Most columns of a bar and of a name.
const BAR_COLUMNS: usize = 60;
const NAME_COLUMNS: usize = 28;

/// One line of the waterfall, on the scale of the figures.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar<'a> {
    pub(crate) name: String,
    pub(crate) start: f64,
    pub(crate) end: f64,
    /// `None` for both ends.
    pub(crate) share: Option<&'a Share>,
}

/// The bars from top to bottom: one end, the shares from the largest to the smallest, the other
/// end.
pub(crate) fn bars<'a>(plan: &Plan, found: &'a Explanation) -> Vec<Bar<'a>> {
    let end =
        |name: &str, us: f64| Bar { name: name.to_string(), start: 0.0, end: us, share: None };
    let mut level = found.from_us.value;
    let mut bars = vec![end(&plan.from, level)];
    for share in &found.shares {
        let start = level;
        level += share.us.value;
        bars.push(Bar { name: format!("+ {}", share.name), start, end: level, share: Some(share) });
    }
    bars.push(end(&plan.to, found.to_us.value));
    bars
}

/// The ends of the scale. It does not start at 0 if the differences would be too small to see.
pub(crate) fn extent(bars: &[Bar<'_>]) -> (f64, f64) {
    let levels = || bars.iter().skip(1).flat_map(|bar| [bar.start, bar.end]).filter(|us| *us > 0.0);
    let (low, high) =
        levels().fold((f64::INFINITY, 0.0f64), |(low, high), us| (low.min(us), high.max(us)));
    let spread = (high - low).max(high * 1e-3);
    // The scale holds whole intervals, unless very few rounds make them wider than all the rest.
    let shares = || bars.iter().filter_map(|bar| Some((bar.start, bar.share?.us)));
    let ends = shares().flat_map(|(start, us)| [start + us.low, start + us.high]);
    let (lowest, highest) = ends
        .filter(|us| us.is_finite())
        .fold((low, high), |(low, high), us| (low.min(us), high.max(us)));
    let low = (low - 0.25 * spread).min(lowest.max(low - spread));
    (low.max(0.0), highest.min(high + spread))
}

pub(super) fn lines(plan: &Plan, found: &Explanation, paint: Paint) -> Vec<String> {
    let bars = bars(plan, found);
    let name = |bar: &Bar<'_>| paint.plain(&shorten(&clean(&bar.name), NAME_COLUMNS));
    let names = bars.iter().map(|bar| columns(&name(bar))).max().unwrap_or(0);
    let width = usize::from(paint.0.width).saturating_sub(names + 34).clamp(16, BAR_COLUMNS);
    let (low, high) = extent(&bars);
    let at = |us: f64| column((us - low) / (high - low), width);
    let cut = if low > 0.0 { format!(", from {} µs on", micros(low)) } else { String::new() };
    let mut lines = vec![paint.plain(&format!("µs per operation{cut}; 95 % intervals"))];
    for bar in &bars {
        let (start, end) = (at(bar.start.min(bar.end)), at(bar.start.max(bar.end)));
        let fill = match bar.share.map(|share| share.verdict) {
            None => '█',
            Some(Verdict::Costs) => '▓',
            Some(Verdict::Saves) => '▒',
            Some(Verdict::WithinNoise | Verdict::NotFound) => '░',
        };
        let drawn: String = (0..width)
            .map(|place| if (start..=end).contains(&place) { glyph(fill, paint) } else { ' ' })
            .collect();
        let figure = match bar.share {
            None => format!(" {}", micros(bar.end)),
            Some(share) if share.us.value > 0.0 => format!("+{}", interval(&share.us)),
            Some(share) => interval(&share.us),
        };
        let line = format!("  {}  {drawn}  {}", pad(&name(bar), names), paint.plain(&figure));
        lines.push(line.trim_end().to_string());
    }
    lines
}

/// Block characters of different darkness; each has an ASCII form.
fn glyph(fill: char, paint: Paint) -> char {
    match fill {
        fill if !paint.0.ascii => fill,
        '█' => '#',
        '▓' => '=',
        '▒' => '-',
        _ => '.',
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "clamped to the columns of a bar"
)]
fn column(share: f64, width: usize) -> usize {
    let last = (width - 1) as f64;
    (share * last).round().clamp(0.0, last) as usize
}
