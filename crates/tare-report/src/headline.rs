//! The headline of a report: one sentence built from the figures of a record by rules.
//!
//! The rules:
//! 1. Only [`tare_stats::law`] decides whether a cost is claimed.
//! 2. The largest claimed cost of server CPU per operation comes first, that of throughput second.
//! 3. Without a claim the sentence states the bounds of the costs.
//! 4. It names the A/A control or its absence, and marks a run that has not ended.

use tare_lab::analysis::{Analysis, Cost, Finding, Interval, claims};
use tare_lab::record::Record;
use tare_stats::law::{Verdict, is_informative};

use crate::figures::{clean, percent_interval, rounds};

pub use tare_lab::analysis::Metric;

/// The title of a table or chart of costs.
pub(crate) fn cost_title(metric: Metric) -> &'static str {
    match metric {
        Metric::ServerCpu => "Cost in server CPU per operation",
        Metric::Throughput => "Throughput lost",
    }
}

/// The A/A control's noise: the largest difference in percent that its interval does not exclude.
/// `None` without a control, and before it has an interval.
pub(crate) fn noise(analysis: &Analysis, workload: &str, metric: Metric) -> Option<f64> {
    claims::noise(analysis, workload, metric).bound()
}

/// Like [`noise`], but `None` for a bound too wide to be useful.
pub(crate) fn telling_noise(analysis: &Analysis, workload: &str, metric: Metric) -> Option<f64> {
    noise(analysis, workload, metric).filter(|noise| is_informative(*noise))
}

/// The ends of a common scale for costs in percent, with 0 between them. Intervals of very few
/// rounds can be a hundred times as wide as the costs; the scale cuts them so that the rest stays
/// readable.
pub(crate) fn extent<'a>(
    costs: impl Iterator<Item = &'a Cost>,
    others: impl Iterator<Item = f64>,
) -> (f64, f64) {
    let intervals: Vec<Interval> = costs.map(|cost| cost.percent).collect();
    let values = intervals.iter().map(|i| i.value).chain(others).filter(|x| x.is_finite());
    let (mut low, mut high) =
        values.fold((-1.0f64, 1.0f64), |(low, high), x| (low.min(x), high.max(x)));
    let most = 3.0 * high.max(-low).max(2.0);
    for interval in intervals.iter().filter(|i| i.low.is_finite() && i.high.is_finite()) {
        low = low.min(interval.low.max(-most));
        high = high.max(interval.high.min(most));
    }
    (low, high)
}

/// Whether a cost may be claimed (rule 1).
pub(crate) fn claimed(analysis: &Analysis, finding: &Finding, metric: Metric) -> bool {
    claims::verdict(analysis, finding, metric).is_some_and(Verdict::is_claim)
}

/// Like [`claimed`], for a cost between any two environments.
pub(crate) fn is_claim(
    analysis: &Analysis,
    workload: &str,
    environments: [&str; 2],
    metric: Metric,
    cost: &Cost,
) -> bool {
    claims::judge_cost(analysis, workload, environments, metric, cost).is_claim()
}

/// The headline as plain text. Its names have no control characters and are not escaped for HTML.
pub fn headline(record: &Record, analysis: &Analysis) -> String {
    let compared: Vec<&Finding> =
        analysis.findings.iter().filter(|f| !f.baseline && !f.control).collect();
    if analysis.rounds == 0 || analysis.findings.is_empty() {
        return "Nothing has been measured yet.".to_string();
    }
    let lead = if record.header.ended_unix_ms.is_none() {
        format!("Not finished, after {}: ", rounds(analysis.rounds))
    } else {
        String::new()
    };
    let several = record.study.workloads.len() > 1;
    let baseline = clean(&record.study.baseline);
    let largest = |metric: Metric| {
        compared
            .iter()
            .filter(|f| claimed(analysis, f, metric))
            .filter_map(|f| metric.cost(f).map(|cost| (*f, cost)))
            .filter(|(_, cost)| cost.percent.value > 0.0)
            .max_by(|a, b| a.1.percent.value.total_cmp(&b.1.percent.value))
    };
    let place = |finding: &Finding| {
        let name = format!("\"{}\"", clean(&finding.environment));
        if several { format!("{name} ({})", clean(&finding.workload)) } else { name }
    };
    let claim = match (largest(Metric::ServerCpu), largest(Metric::Throughput)) {
        (Some((cpu_in, cpu)), Some((rate_in, rate))) if std::ptr::eq(cpu_in, rate_in) => format!(
            "{} costs the most: {} server CPU per operation and {} of the throughput, against {baseline}",
            place(cpu_in),
            percent_interval(&cpu.percent),
            unsigned(cost_text(rate)),
        ),
        (Some((cpu_in, cpu)), Some((rate_in, rate))) => format!(
            "the largest costs against {baseline} are {} server CPU per operation in {} and {} of the throughput in {}",
            percent_interval(&cpu.percent),
            place(cpu_in),
            unsigned(cost_text(rate)),
            place(rate_in),
        ),
        (Some((finding, cost)), None) => format!(
            "{} costs the most: {} server CPU per operation against {baseline}; no loss of throughput is beyond the noise",
            place(finding),
            percent_interval(&cost.percent),
        ),
        (None, Some((finding, cost))) => format!(
            "{} loses the most: {} of the throughput against {baseline}; no cost in server CPU per operation is beyond the noise",
            place(finding),
            unsigned(cost_text(cost)),
        ),
        (None, None) => nothing_claimed(&compared, &baseline),
    };
    let claim = if lead.is_empty() { capital(&claim) } else { claim };
    format!("{lead}{claim}; {}.", control_clause(analysis))
}

/// The text with a capital first letter.
pub(crate) fn capital(words: &str) -> String {
    let mut chars = words.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}", chars.as_str())
}

fn cost_text(cost: &Cost) -> String {
    percent_interval(&cost.percent)
}

/// Removes the sign, because "of the throughput" marks a loss.
fn unsigned(text: String) -> String {
    text.replace('+', "")
}

fn nothing_claimed(compared: &[&Finding], baseline: &str) -> String {
    let widest = |metric: Metric| {
        compared
            .iter()
            .filter_map(|f| metric.cost(f))
            .map(|cost| cost.within_percent)
            .filter(|within| is_informative(*within))
            .max_by(f64::total_cmp)
            .map(|within| format!("{} within {within:.1} %", metric.of_what()))
    };
    let within: Vec<String> = Metric::ALL.into_iter().filter_map(widest).collect();
    if compared.is_empty() {
        format!("only {baseline} itself was measured")
    } else if within.is_empty() {
        format!("costs against {baseline} are not known yet")
    } else {
        format!("no cost against {baseline} is beyond the noise ({})", within.join(", "))
    }
}

/// The noise of the A/A control, for the workload in which it is largest.
fn control_clause(analysis: &Analysis) -> String {
    let worst = |metric: Metric| {
        analysis
            .findings
            .iter()
            .filter(|f| f.control)
            .filter_map(|f| noise(analysis, &f.workload, metric))
            .max_by(f64::total_cmp)
            .filter(|noise| is_informative(*noise))
            .map(|noise| format!("{noise:.1} % in {}", metric.of_what()))
    };
    let noise: Vec<String> = Metric::ALL.into_iter().filter_map(worst).collect();
    if !analysis.findings.iter().any(|f| f.control) {
        "there is no A/A control, so the noise is unknown".to_string()
    } else if noise.is_empty() {
        "the A/A control has too few rounds to show the noise".to_string()
    } else {
        format!("the A/A control stays within {}", noise.join(" and "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn names_largest_claimed_costs() {
        let (record, analysis) = fixture::quick();
        let text = headline(&record, &analysis);
        assert!(text.starts_with("\"docker-default\" costs the most: +"), "{text}");
        assert!(text.contains("A/A control stays within"), "{text}");
    }

    #[test]
    fn claims_nothing_within_noise() {
        let (record, mut analysis) = fixture::quick();
        for finding in analysis.findings.iter_mut().filter(|f| f.control) {
            for cost in [&mut finding.server_cpu_cost, &mut finding.throughput_cost] {
                let cost = cost.as_mut().unwrap();
                cost.percent.low = -99.0;
                cost.percent.high = 99.0;
            }
        }
        let text = headline(&record, &analysis);
        assert!(text.starts_with("No cost against native is beyond the noise ("), "{text}");
    }

    #[test]
    fn marks_empty_and_running_records() {
        let (record, analysis) = fixture::empty();
        assert_eq!(headline(&record, &analysis), "Nothing has been measured yet.");
        let (record, analysis) = fixture::running();
        assert!(headline(&record, &analysis).starts_with("Not finished, after 4 rounds: "));
    }

    #[test]
    fn scale_cuts_very_wide_intervals() {
        let cost = |value, low, high| {
            let percent = Interval { value, low, high, rounds: 2 };
            Cost { percent, found: false, within_percent: high }
        };
        let none = std::iter::empty;
        let wide = [cost(10.0, -90.0, 900.0), cost(2.0, -100.0, f64::INFINITY)];
        assert_eq!(extent(wide.iter(), none()), (-30.0, 30.0));
        assert_eq!(extent([cost(10.0, 8.0, 12.0)].iter(), none()), (-1.0, 12.0));
    }

    #[test]
    fn names_missing_control() {
        let (record, mut analysis) = fixture::quick();
        analysis.findings.retain(|f| !f.control);
        assert!(headline(&record, &analysis).contains("there is no A/A control"));
    }
}
