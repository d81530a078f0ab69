//! Published relations and the measured ones. The verdicts come from
//! [`tare_lab::analysis::relations`].

use serde::Serialize;
use tare_lab::analysis::{Relation, Verdict};
use tare_lab::record::Record;
use tare_lab::study::{Claim, Expected, PublishedRelation, Sign};
use tare_std::units::significant;

use crate::figures::{clean, percent_interval, shorten};

/// Column headings, in the order of [`Row::cells`].
pub(crate) const HEAD: [&str; 6] =
    ["relation", "workload", "published", "here [95 %]", "verdict", "source"];

/// How to read the table.
pub(crate) const NOTE: &str = "The published figures come from another machine and another \
    load. Confirmed: the same relation was measured here, within the tolerance after the published \
    figure and the noise of the A/A control. Contradicted: it is excluded here. Not testable: this \
    run cannot tell.";

/// Characters of a name in the table.
const NAME: usize = 40;

/// One published relation as text.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) relation: String,
    pub(crate) workload: String,
    pub(crate) published: String,
    pub(crate) here: String,
    pub(crate) verdict: &'static str,
    /// Why it is not testable here.
    pub(crate) why: Option<String>,
    pub(crate) source: String,
    /// `yes`, `no` or `none`, for the page.
    pub(crate) class: &'static str,
}

impl Row {
    pub(crate) fn cells(&self) -> Vec<String> {
        let verdict = match &self.why {
            Some(why) => format!("{}: {why}", self.verdict),
            None => self.verdict.to_string(),
        };
        let Self { relation, workload, published, here, source, .. } = self;
        let cells = [relation, workload, published, here, &verdict, source];
        cells.map(String::clone).to_vec()
    }
}

/// Every published relation of a record's study in its order, with the workloads of an environment
/// together.
pub(crate) fn rows(record: &Record) -> Vec<Row> {
    tare_lab::analysis::relations(record).iter().map(row).collect()
}

fn row(relation: &Relation) -> Row {
    let Relation { published, workload, against, here, verdict } = relation;
    let figure = match &published.claim {
        Claim::Throughput(_) => "throughput".to_string(),
        Claim::Latency { percentile, .. } => format!("{} latency", percentile.name()),
    };
    let here = here.as_ref().filter(|here| here.value.is_finite());
    let here = here.map(|here| match &published.claim {
        Claim::Throughput(_) => format!("{} lost", percent_interval(here).trim_start_matches('+')),
        Claim::Latency { .. } if here.is_bounded() => {
            let digits = |ratio| significant(ratio, 3);
            format!("{}× [{}, {}]", digits(here.value), digits(here.low), digits(here.high))
        }
        Claim::Latency { .. } => format!("{}× [no interval]", significant(here.value, 3)),
    });
    let hardware = published.hardware.as_ref().map(|what| format!(" ({what})"));
    let (why, class) = match verdict {
        Verdict::Confirmed => (None, "yes"),
        Verdict::Contradicted => (None, "no"),
        Verdict::NotTestable { why } => (Some(clean(&why.text())), "none"),
    };
    Row {
        relation: clean(&format!(
            "{} against {}: {figure}",
            shorten(&published.environment, NAME),
            shorten(against, NAME)
        )),
        workload: clean(workload),
        published: expected(published),
        here: here.unwrap_or_else(|| "not measured".to_string()),
        verdict: verdict.name(),
        why,
        source: clean(&format!("{}{}", published.source, hardware.unwrap_or_default())),
        class,
    }
}

/// The published figure as text: `25 % lost (± 5)`, `8.1× (± 25 %)`, `some lost`.
fn expected(published: &PublishedRelation) -> String {
    use tare_lab::analysis::{WITHIN_POINTS, WITHIN_RATIO_PERCENT};
    let digits = |figure: f64| {
        let text = format!("{figure:.2}");
        text.trim_end_matches('0').trim_end_matches('.').replace('-', "\u{2212}")
    };
    match &published.claim {
        Claim::Throughput(expected) => {
            let within = digits(published.within_percent.unwrap_or(WITHIN_POINTS));
            match *expected {
                Expected::Value(cost) if cost < 0.0 => {
                    format!("{} % gained (±\u{a0}{within})", digits(-cost))
                }
                Expected::Value(cost) => format!("{} % lost (±\u{a0}{within})", digits(cost)),
                Expected::Range(low, high) => {
                    format!("{} to {} % lost (±\u{a0}{within})", digits(low), digits(high))
                }
                Expected::Sign(Sign::Loss) => "some lost".into(),
                Expected::Sign(Sign::None) => format!("no difference (±\u{a0}{within})"),
                Expected::Sign(Sign::Gain) => "some gained".into(),
            }
        }
        Claim::Latency { ratio, .. } => {
            let within = digits(published.within_percent.unwrap_or(WITHIN_RATIO_PERCENT));
            match *ratio {
                Expected::Value(ratio) => format!("{}× (±\u{a0}{within}\u{a0}%)", digits(ratio)),
                Expected::Range(low, high) => {
                    format!("{} to {}× (±\u{a0}{within}\u{a0}%)", digits(low), digits(high))
                }
                Expected::Sign(Sign::Loss) => "longer".into(),
                Expected::Sign(Sign::None) => format!("the same (±\u{a0}{within}\u{a0}%)"),
                Expected::Sign(Sign::Gain) => "shorter".into(),
            }
        }
    }
}

/// `3 confirmed, 1 contradicted, 2 not testable here`.
pub(crate) fn summary(rows: &[Row]) -> String {
    let count = |name: &str| rows.iter().filter(|row| row.verdict == name).count();
    let names = ["confirmed", "contradicted", "not testable here"];
    let counts = names.map(|name| (count(name), name));
    let shown = counts.iter().filter(|(count, _)| *count > 0);
    shown.map(|(count, name)| format!("{count} {name}")).collect::<Vec<_>>().join(", ")
}

/// The published loss of throughput of an environment against the baseline, for a mark in a chart.
/// A range gives its middle.
pub(crate) fn mark<'r>(
    record: &'r Record,
    environment: &str,
    workload: &str,
) -> Option<(f64, &'r PublishedRelation)> {
    let study = &record.study;
    study.published.iter().find_map(|published| {
        let fits = published.environment == environment
            && published.against.as_ref().is_none_or(|other| *other == study.baseline)
            && published.workload.as_ref().is_none_or(|own| own == workload);
        let cost = match published.claim {
            Claim::Throughput(Expected::Value(cost)) => cost,
            Claim::Throughput(Expected::Range(low, high)) => f64::midpoint(low, high),
            _ => return None,
        };
        fits.then_some((cost, published))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn every_relation_has_a_row_and_verdict() {
        let (record, _) = fixture::quick();
        let rows = rows(&record);
        let found: Vec<_> = rows.iter().map(|row| (row.published.as_str(), row.verdict)).collect();
        assert_eq!(
            found,
            [
                ("69 % lost (±\u{a0}5)", "contradicted"),
                ("11 % lost (±\u{a0}5)", "confirmed"),
                ("3 % lost (±\u{a0}5)", "confirmed"),
                ("0 % lost (±\u{a0}5)", "confirmed"),
            ]
        );
        assert_eq!(rows[0].relation, "docker-default against native: throughput");
        assert!(rows[0].here.ends_with("] lost"), "{}", rows[0].here);
        assert_eq!(summary(&rows), "3 confirmed, 1 contradicted");
    }

    #[test]
    fn quick_part_lists_what_it_leaves_out() {
        let (mut record, _) = fixture::quick();
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        record.study.quick = Some(tare_lab::study::QuickPart {
            environments: names(&["+ cpuset"]),
            workloads: names(&["read", "mixed"]),
        });
        let verdicts: Vec<_> = rows(&record).iter().map(|row| row.verdict).collect();
        assert_eq!(verdicts[1], "not testable here");
        let left_out = crate::figures::left_out(&record);
        let left_out: Vec<_> = left_out.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            left_out,
            ["gvisor", "1 environment of the whole study", "2 workloads of the whole study"]
        );
    }

    #[test]
    fn budget_lists_what_it_leaves_out() {
        let (mut record, _) = fixture::quick();
        let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        record.study.budget_part = Some(tare_lab::study::BudgetPart {
            budget: std::time::Duration::from_secs(5400),
            rounds_min: 8,
            environments: names(&["+ cpuset"]),
            workloads: names(&["read", "mixed"]),
        });
        let why = rows(&record)[1].why.clone().unwrap();
        assert_eq!(why, "\"+ cpuset\" did not fit into the budget; give a larger --budget");
        let left_out = crate::figures::left_out(&record);
        let text = "no time for 8 rounds within --budget 1h30m, give a larger one: read; mixed";
        assert_eq!(left_out[2], ("2 workloads of the study".to_string(), text.to_string()));
        let page = crate::html::page(&record, &tare_lab::analysis::analyse(&record), &[]);
        assert!(page.contains("no time for 8 rounds within --budget 1h30m"), "{page}");
    }

    #[test]
    fn left_out_environments_are_not_testable() {
        let (record, _) = fixture::long();
        let rows = rows(&record);
        assert_eq!(rows[0].verdict, "not testable here");
        let why = rows[0].why.as_deref().unwrap();
        assert_eq!(why, "\"docker default\" was left out");
    }
}
