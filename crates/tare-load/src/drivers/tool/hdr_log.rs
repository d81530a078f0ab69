//! HdrHistogram's log format, version 1.3, as cassandra-stress and YCSB write it: tags, a legend,
//! times in seconds since the log's base or start, histograms in V2 form.
//! <https://github.com/HdrHistogram/HdrHistogram/blob/master/src/main/java/org/HdrHistogram/HistogramLogWriter.java>

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::outcome::{OutputError, shown};
use crate::histogram::{self, Histogram};

/// One interval of one tag.
#[derive(Debug)]
pub(in crate::drivers) struct Interval {
    /// Empty where the log has none.
    pub(in crate::drivers) tag: String,
    /// In seconds since the log's start.
    pub(in crate::drivers) start_s: f64,
    pub(in crate::drivers) length_s: f64,
    /// In the unit of the tool.
    pub(in crate::drivers) histogram: Histogram,
}

/// A log.
#[derive(Debug)]
pub(in crate::drivers) struct HdrLog {
    /// When it was started, in seconds since 1970; 0 where it does not say.
    pub(in crate::drivers) start_unix_s: f64,
    pub(in crate::drivers) intervals: Vec<Interval>,
}

/// Reads a log. Its last line may be torn, as a killed tool leaves it.
///
/// # Errors
/// The first line that is no line of such a log.
pub(in crate::drivers) fn read(text: &str) -> Result<HdrLog, OutputError> {
    let mut log = HdrLog { start_unix_s: 0.0, intervals: Vec::new() };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        if let Some(rest) = line.strip_prefix("#[StartTime: ") {
            let number = rest.split(' ').next().and_then(|number| number.parse().ok());
            log.start_unix_s = number.ok_or_else(|| OutputError::Log { line: shown(line) })?;
        } else if !line.is_empty() && !line.starts_with(['#', '"']) {
            log.intervals.push(interval(line)?);
        }
    }
    Ok(log)
}

fn interval(line: &str) -> Result<Interval, OutputError> {
    let bad = || OutputError::Log { line: shown(line) };
    let (tag, rest) = match line.strip_prefix("Tag=") {
        Some(tagged) => tagged.split_once(',').ok_or_else(bad)?,
        None => ("", line),
    };
    let fields: Vec<&str> = rest.split(',').collect();
    let [start, length, _max, encoded] = fields.as_slice() else { return Err(bad()) };
    let seconds = |text: &str| text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
    let bytes = STANDARD.decode(encoded.trim()).map_err(|_| bad())?;
    Ok(Interval {
        tag: tag.into(),
        start_s: seconds(start).ok_or_else(bad)?,
        length_s: seconds(length).ok_or_else(bad)?,
        histogram: histogram::decode(&bytes)?,
    })
}

impl Interval {
    /// When it ended, in seconds since the log's start.
    pub(in crate::drivers) fn end_s(&self) -> f64 {
        self.start_s + self.length_s
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_log_is_refused() {
        let torn = "#[StartTime: 1.500 (seconds since epoch)]\nTag=A,1,2";
        let log = read(torn).unwrap();
        assert!(log.intervals.is_empty() && log.start_unix_s == 1.5);
        for line in ["garbage", "Tag=A", "1,2,3,!!", "Tag=A,x,1,1,HIST", "1,2,3,SElTVA=="] {
            assert!(read(&format!("{line}\n")).is_err(), "{line}");
        }
    }
}
