//! Percentiles of response time: ratios to the baseline's percentile, and the noise of the A/A
//! control.
//!
//! The rules are those of [`tare_stats::law`]: a ratio is claimed only if its interval excludes 1
//! and it is beyond everything that the control's own interval of the same percentile holds.

use tare_lab::analysis::{Analysis, Finding, Interval, OverBaseline, PERCENTS, Percentile, claims};
use tare_stats::law::{Noise, Verdict};
use tare_std::units::{nanoseconds, significant};

use crate::figures::{self, shorten, with_interval};

/// `p50`, `p99.9`.
pub(crate) fn name(percent: f64) -> String {
    format!("p{percent}")
}

/// A percentile of response times, if the record has it.
pub(crate) fn percentile(finding: &Finding, percent: f64) -> Option<&Percentile> {
    finding.response.as_ref()?.percentile(percent)
}

/// A percentile of response times over the baseline's.
pub(crate) fn over_baseline(finding: &Finding, percent: f64) -> Option<&OverBaseline> {
    percentile(finding, percent)?.over_baseline.as_ref()
}

/// The largest factor, up or down, within the interval of the control's ratio. `None` without a
/// control; infinite if the control has no interval.
pub(crate) fn noise(analysis: &Analysis, workload: &str, percent: f64) -> Option<f64> {
    match claims::ratio_noise(analysis, workload, percent) {
        Noise::NoControl => None,
        Noise::Unknown => Some(f64::INFINITY),
        Noise::Within(factor) => Some(factor),
    }
}

/// A ratio that may be claimed.
pub(crate) fn claimed<'f>(
    analysis: &Analysis,
    finding: &'f Finding,
    percent: f64,
) -> Option<&'f OverBaseline> {
    let verdict = claims::ratio_verdict(analysis, finding, percent)?;
    over_baseline(finding, percent).filter(|_| verdict.is_claim())
}

/// `412 µs [380 µs, 450 µs]`.
pub(crate) fn time(ns: &Interval) -> String {
    with_interval(ns, nanoseconds)
}

/// `[380 µs, 450 µs]`, or `[no interval]`.
pub(crate) fn bounds(ns: &Interval) -> String {
    match ns.is_bounded() {
        true => format!("[{}, {}]", nanoseconds(ns.low), nanoseconds(ns.high)),
        false => "[no interval]".to_string(),
    }
}

/// A percentile as text, or [`NOT_ENOUGH`].
pub(crate) fn percentile_text(percentile: &Percentile) -> String {
    percentile.ns.as_ref().map_or_else(|| NOT_ENOUGH.to_string(), time)
}

/// Text of a percentile that fewer than ten operations exceeded.
pub(crate) const NOT_ENOUGH: &str = "not enough";

/// `4.1× [3.2, 5.2]`; `none [0.9, 1.1]` if no difference was found, and `within noise (1.1×)` if it
/// is not beyond the control's ([`READING`]).
pub(crate) fn ratio(analysis: &Analysis, finding: &Finding, percent: f64) -> String {
    let Some(over) = over_baseline(finding, percent) else { return NOT_ENOUGH.to_string() };
    let Interval { value, low, high, .. } = over.ratio;
    if !over.ratio.is_bounded() {
        return "not known yet".to_string();
    }
    let own = || format!("{}\u{d7}", factor(value));
    let verdict = match finding.control && over.found {
        true => Some(Verdict::WithinNoise),
        false => claims::ratio_verdict(analysis, finding, percent),
    };
    if let Some(noise) = figures::noise(verdict, own) {
        return noise;
    }
    let held = format!("[{}, {}]", factor(low), factor(high));
    if over.found { format!("{} {held}", own()) } else { format!("none {held}") }
}

/// Explains the words of [`ratio`].
pub(crate) const READING: &str =
    "none: no difference found; within noise: none beyond the A/A control's";

/// A factor with three digits; `>1000` and `<0.001` beyond these.
pub(crate) fn factor(value: f64) -> String {
    match value {
        x if x > 1e3 => ">1000".to_string(),
        x if x < 1e-3 => "<0.001".to_string(),
        x => significant(x, 3),
    }
}

/// The heading and rows of a table of percentiles: one row per environment, one cell for each of
/// [`PERCENTS`] in the record.
pub(crate) fn table(
    findings: &[&Finding],
    cell: impl Fn(&Finding, &Percentile) -> String,
) -> (Vec<String>, Vec<Vec<String>>) {
    let shown = findings.iter().filter(|finding| percentile(finding, PERCENTS[0]).is_some());
    let row = |finding: &&Finding| {
        let name = shorten(&finding.environment, NAME);
        let mut row = vec![if finding.control { format!("{name} (A/A)") } else { name }];
        let all = finding.response.iter().flat_map(|response| &response.percentiles);
        row.extend(all.map(|one| cell(finding, one)));
        row
    };
    let head = std::iter::once("environment".to_string()).chain(PERCENTS.map(name));
    (head.collect(), shown.map(row).collect())
}

/// Characters of a name in a table.
const NAME: usize = 28;
