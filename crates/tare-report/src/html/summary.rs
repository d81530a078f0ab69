//! The first screen of the page: the ladder, which is the cost of each environment with its
//! interval and the noise, and the first findings. The slide has the same.

use minijinja::Value;
use serde::Serialize;
use tare_lab::analysis::{Analysis, Finding};
use tare_lab::record::Record;

use super::charts::{self, Series};
use super::standalone::File;
use crate::figures::{clean, has_place, left_out, rounds, shorten, utc};
use crate::headline::{Metric, claimed, headline, telling_noise};
use crate::layout::paragraph;

/// Environments on the ladder. The others are in the section of their workload.
const RUNGS_MAX: usize = 10;

/// The first screen.
#[derive(Serialize)]
pub(super) struct SummaryView {
    /// `None` before a cost is known.
    ladder: Option<Ladder>,
    /// Names that were left out.
    left_out: String,
}

#[derive(Serialize)]
struct Ladder {
    title: String,
    note: String,
    chart: Value,
    /// Number of the workload's section.
    workload: usize,
}

/// What a ladder is about: a workload and a metric, and the environments on it.
struct Rungs<'a> {
    workload: &'a str,
    number: usize,
    metric: Metric,
    findings: Vec<&'a Finding>,
    /// Environments with a cost that have no room.
    more: usize,
}

impl<'a> Rungs<'a> {
    /// The workload with the largest claimed cost, or else the first one that has costs. Server
    /// CPU per operation comes before throughput, as in the headline.
    fn choose(record: &'a Record, analysis: &'a Analysis) -> Option<Self> {
        let number = |name: &str| record.study.workloads.iter().position(|w| w.name == name);
        let known = |metric: Metric| {
            let all = analysis.findings.iter();
            all.filter(move |f| metric.cost(f).is_some_and(has_place))
        };
        let value = |f: &Finding, metric: Metric| metric.cost(f).map_or(0.0, |c| c.percent.value);
        let metric = Metric::ALL.into_iter().find(|metric| known(*metric).next().is_some())?;
        let largest = known(metric)
            .filter(|f| !f.control && claimed(analysis, f, metric))
            .max_by(|a, b| value(a, metric).total_cmp(&value(b, metric)))
            .or_else(|| known(metric).next())?;
        let workload = largest.workload.as_str();
        let mut findings: Vec<&Finding> =
            known(metric).filter(|f| f.workload == workload).collect();
        let mut sizes: Vec<f64> =
            findings.iter().filter(|f| !f.control).map(|f| value(f, metric).abs()).collect();
        sizes.sort_by(|a, b| b.total_cmp(a));
        let all = findings.len();
        if let Some(least) = sizes.get(RUNGS_MAX - 1) {
            findings.retain(|f| f.control || value(f, metric).abs() >= *least);
        }
        let more = all - findings.len();
        Some(Self { workload, number: number(workload)?, metric, findings, more })
    }

    fn title(&self, record: &Record) -> String {
        let what = match self.metric {
            Metric::ServerCpu => "Server CPU per operation",
            Metric::Throughput => "Throughput lost",
        };
        let baseline = clean(&record.study.baseline);
        match record.study.workloads.len() {
            0 | 1 => format!("{what}: cost against {baseline}"),
            _ => format!("{what}: cost against {baseline}, {}", clean(self.workload)),
        }
    }

    fn note(&self, analysis: &Analysis) -> String {
        let noise = telling_noise(analysis, self.workload, self.metric);
        let band = match noise {
            Some(noise) => format!("the band is the noise of the A/A control ({noise:.1} %)"),
            None => "the noise of the A/A control is not known".to_string(),
        };
        let more = match self.more {
            0 => String::new(),
            more => format!(" {more} smaller costs are below."),
        };
        format!(
            "Each dot with its 95 % interval; {band}. Orange: a loss beyond the noise, green: a \
             gain, grey: neither.{more}"
        )
    }

    fn chart(&self, record: &Record, analysis: &Analysis, id: &str) -> Option<String> {
        let series = Series::without_slices(&self.findings);
        charts::costs(record, analysis, &series, self.metric, id)
    }
}

impl SummaryView {
    pub(super) fn new(record: &Record, analysis: &Analysis) -> Self {
        let ladder = Rungs::choose(record, analysis).and_then(|rungs| {
            let chart = rungs.chart(record, analysis, "ladder")?;
            Some(Ladder {
                title: rungs.title(record),
                note: rungs.note(analysis).replace(" %", "\u{a0}%"),
                chart: Value::from_safe_string(chart),
                workload: rungs.number,
            })
        });
        let names: Vec<String> = left_out(record).iter().map(|(name, _)| clean(name)).collect();
        let left_out = match names.len() {
            0..=3 => names.join(", "),
            many => format!("{} and {} more", names[..2].join(", "), many - 2),
        };
        Self { ladder, left_out }
    }
}

const WIDTH: f64 = 1280.0;
const HEIGHT: f64 = 720.0;
const MARGIN: f64 = 56.0;
/// Characters of a headline's line at its size, and of a note's.
const HEADLINE_COLUMNS: u16 = 72;
const NOTE_COLUMNS: u16 = 120;
/// Characters of a title, which has one line.
const TITLE_CHARACTERS: usize = 96;
/// The largest enlargement of the chart.
const SCALE_MAX: f64 = 1.7;

/// The ladder for a talk: an SVG file of 1280 x 720 with the headline, the chart of the page's
/// first screen, and the conditions. `None` if the record has no cost yet.
pub fn slide(record: &Record, analysis: &Analysis) -> Option<String> {
    let rungs = Rungs::choose(record, analysis)?;
    let chart = rungs.chart(record, analysis, "ladder")?;
    let mut file = File::new(WIDTH, HEIGHT, &record.study.title);
    let title = shorten(&clean(&record.study.title), TITLE_CHARACTERS);
    file.text((MARGIN, 50.0), 18.0, "soft", &title);
    let mut y = 88.0;
    for line in paragraph(&headline(record, analysis), "", HEADLINE_COLUMNS) {
        file.text((MARGIN, y), 24.0, "label", &line);
        y += 32.0;
    }
    file.text((MARGIN, y + 12.0), 18.0, "label", &shorten(&rungs.title(record), TITLE_CHARACTERS));
    let top = y + 28.0;
    let notes = paragraph(&rungs.note(analysis), "", NOTE_COLUMNS);
    let bottom = HEIGHT - 56.0 - 22.0 * charts::as_f64(notes.len());
    let tall = charts::costs_height(rungs.findings.len());
    let scale = ((bottom - top) / tall).min(SCALE_MAX);
    file.chart((MARGIN, top), (WIDTH - 2.0 * MARGIN, bottom - top), scale, &chart);
    let mut y = bottom + 22.0;
    for line in &notes {
        file.text((MARGIN, y), 15.0, "soft", line);
        y += 21.0;
    }
    let header = &record.header;
    let run = format!(
        "{}, {}; study {}; tare {}",
        rounds(analysis.rounds),
        utc(header.started_unix_ms),
        clean(&record.study.name),
        clean(&header.tare_version)
    );
    file.text((MARGIN, HEIGHT - 24.0), 14.0, "soft", &run);
    Some(file.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_ladder_has_the_largest_costs_and_the_control() {
        let (record, analysis) = fixture::ten_hours();
        let rungs = Rungs::choose(&record, &analysis).unwrap();
        assert_eq!(rungs.findings.iter().filter(|f| f.control).count(), 1);
        assert_eq!(rungs.findings.len(), RUNGS_MAX + 1);
        assert_eq!(rungs.more, 49 - rungs.findings.len());
        let (record, analysis) = fixture::sweep();
        let rungs = Rungs::choose(&record, &analysis).unwrap();
        assert_eq!(rungs.workload, "random read, bs 1M", "the headline's workload");
        let (record, analysis) = fixture::empty();
        assert!(Rungs::choose(&record, &analysis).is_none());
    }

    #[test]
    fn a_slide_is_a_whole_file_of_plain_colours() {
        for (record, analysis) in [fixture::quick(), fixture::hostile(), fixture::ten_hours()] {
            let svg = slide(&record, &analysis).unwrap();
            assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
            assert!(svg.contains("viewBox=\"0 0 1280 720\""));
            assert!(svg.contains("class=\"band\"") && svg.contains("interval loss"));
            for stranger in ["var(", "light-dark", "<script", "NaN", "\u{202e}"] {
                assert!(!svg.contains(stranger), "{stranger}");
            }
        }
        let (record, analysis) = fixture::empty();
        assert_eq!(slide(&record, &analysis), None);
    }
}
