//! The file of results: one JSON object per line, one line per campaign and figure.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// A measured cost with its truth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Line {
    pub(crate) kind: String,
    pub(crate) campaign: u32,
    pub(crate) environment: String,
    pub(crate) inject: String,
    pub(crate) figure: Figure,
    /// The true cost. `None` if it is not known as a number.
    pub(crate) truth: Option<f64>,
    pub(crate) value: f64,
    /// The lower bound of the interval, if it has one.
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    pub(crate) blocks: u32,
    /// Whether the 95 % interval holds the truth.
    pub(crate) contains: Option<bool>,
    /// Whether Tare claims a cost: the interval excludes 0, no control reaches it, and no doubt
    /// withholds it. Of a control: whether its interval excludes 0.
    pub(crate) claimed: bool,
    /// The seconds of the campaign from which on the cost was always claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) claimed_after_s: Option<f64>,
    /// The layer that `explain` named first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) named: Option<String>,
    /// The kinds of doubts, each with the number of its slices.
    pub(crate) doubts: Vec<(String, u32)>,
    pub(crate) slices: u32,
    /// The baseline's figure: µs per operation, operations/s, or µs of latency.
    pub(crate) baseline: f64,
    pub(crate) seconds: f64,
    pub(crate) seed: u64,
    /// The load average of the last minute before the campaign.
    pub(crate) load: f64,
}

impl Line {
    /// Whether a difference was found: the interval has bounds and excludes 0.
    pub(crate) fn found(&self) -> bool {
        self.low.zip(self.high).is_some_and(|(low, high)| low > 0.0 || high < 0.0)
    }

    /// Rounds all figures to four decimals. More carry no information, and four survive writing and
    /// reading unchanged.
    pub(crate) fn rounded(mut self) -> Self {
        // JSON has no number for what is not finite.
        let round = |x: f64| if x.is_finite() { (x * 1e4).round() / 1e4 } else { 0.0 };
        for bound in [&mut self.truth, &mut self.low, &mut self.high, &mut self.claimed_after_s] {
            *bound = bound.map(round);
        }
        for figure in [&mut self.value, &mut self.baseline, &mut self.seconds, &mut self.load] {
            *figure = round(*figure);
        }
        self
    }
}

/// A measured figure with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// Server CPU per operation at capacity, percent of the baseline's.
    CpuPercent,
    /// Throughput at capacity, percent lost.
    ThroughputPercent,
    /// Median latency at the fixed rate, µs.
    LatencyUs,
    /// A layer's share of server CPU per operation, µs.
    ShareUs,
}

/// Reads a file of results. A missing file is empty. A partial last line is left out.
pub(crate) fn read(path: &Path) -> anyhow::Result<Vec<Line>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        text => text.with_context(|| format!("cannot read {}", path.display()))?,
    };
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(number, line): (usize, &str)| {
        serde_json::from_str(line)
            .with_context(|| format!("{}:{}: not a line of results", path.display(), number + 1))
    };
    whole.lines().enumerate().map(parse).collect()
}

/// Rewrites a file without the partial line that a crash left at its end.
pub(crate) fn rewrite(path: &Path, lines: &[Line]) -> anyhow::Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text(lines)?)
        .and_then(|()| fs::rename(&new, path))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Appends the lines of one campaign with one write, and syncs the file.
pub(crate) fn append(path: &Path, lines: &[Line]) -> anyhow::Result<()> {
    let text = text(lines)?;
    let write = || {
        let mut file = fs::OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

fn text(lines: &[Line]) -> anyhow::Result<String> {
    let one = |line: &Line| Ok(serde_json::to_string(line)? + "\n");
    lines.iter().map(one).collect()
}

#[cfg(test)]
pub(crate) fn example() -> Line {
    Line {
        kind: "busy".into(),
        campaign: 0,
        environment: "busy 3 %".into(),
        inject: "busy=300ns".into(),
        figure: Figure::CpuPercent,
        truth: Some(3.0),
        value: 3.1,
        low: Some(2.0),
        high: Some(4.2),
        blocks: 20,
        contains: Some(true),
        claimed: true,
        claimed_after_s: Some(12.0),
        named: None,
        doubts: vec![("strangers".into(), 2)],
        slices: 20,
        baseline: 10.0,
        seconds: 30.0,
        seed: 1,
        load: 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_last_line_is_dropped() {
        let folder = std::env::temp_dir().join(format!("tare-xtask-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("lines.jsonl");
        append(&path, &[example(), example()]).unwrap();
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"kind\":\"bu").unwrap();
        let lines = read(&path).unwrap();
        assert_eq!(lines, [example(), example()]);
        rewrite(&path, &lines).unwrap();
        append(&path, &[example()]).unwrap();
        assert_eq!(read(&path).unwrap().len(), 3);
        fs::remove_dir_all(&folder).unwrap();
    }
}
