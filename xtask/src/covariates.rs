//! `cargo xtask covariates RECORD [PROBE]`: judges covariates on a real record. Prints how wide the
//! intervals of CPU costs are, and how often they hold the figure of the other rounds, without and
//! with them.
//!
//! Method: the covariates of a pair are its log ratio of client CPU time per operation and, with
//! the file of a probe, those of the probe's times during the two slices. A line of the file is
//! `UNIX_NS NS NS`: when the system's CPU was probed, the time of a fixed computation, and that of
//! a fixed number of reads beyond the CPU's caches. The true log ratio of each covariate is 0, so
//! that its least squares fit is subtracted from the ratio of every pair. Blocks of neighbouring
//! rounds are small campaigns; the truth is the usual estimate over the rounds outside the block.
//!
//! Limits: the truth has an error of its own, which counts against all ways alike.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, bail};
use tare_lab::record::{Phase, Record, Slice};
use tare_stats::{estimate, median};

use crate::print;

/// The rounds of a block.
const BLOCKS: [usize; 3] = [10, 40, 100];
/// Fewer probes in a slice say nothing about it.
const PROBES_MIN: usize = 5;

/// Logs of one slice: server and client CPU time per operation, and the probe's times.
#[derive(Clone, Copy)]
struct Figures {
    server: f64,
    client: f64,
    probe: Option<[f64; 2]>,
}

/// One probe: its time, and what it measured.
type Probe = (u64, [f64; 2]);

/// A way to use covariates, with the columns of a pair that it fits.
const WAYS: [(&str, &[usize]); 4] = [
    ("pairs alone", &[]),
    ("client", &[0]),
    ("CPU speed", &[1]),
    ("CPU speed, memory speed", &[1, 2]),
];

/// Runs the judgement with the words after `covariates`.
pub(crate) fn run(words: &[&str]) -> anyhow::Result<()> {
    let (record, probes) = match words {
        [record] => (record, Vec::new()),
        [record, file] => (record, read_probes(file)?),
        _ => bail!("usage: cargo xtask covariates RECORD [PROBE]"),
    };
    let record = Record::read(Path::new(record))?;
    let ways = if probes.is_empty() { &WAYS[..2] } else { &WAYS[..] };
    let mut rounds: BTreeMap<u32, BTreeMap<&str, Figures>> = BTreeMap::new();
    let slices = record.slices.iter().filter(|slice| slice.phase == Phase::Capacity);
    for slice in slices.filter(|slice| slice.void.is_none()) {
        if let Some(figures) = figures(slice, &probes) {
            rounds.entry(slice.round).or_default().insert(&slice.environment, figures);
        }
    }
    print("| environment | way | all rounds | 10 rounds | 40 rounds | 100 rounds |");
    print("|---|---|---:|---:|---:|---:|");
    let baseline = record.study.baseline.as_str();
    for environment in &record.environments {
        let name = environment.spec.name.as_str();
        let pair = |round: &BTreeMap<&str, Figures>| pair(round.get(name)?, round.get(baseline)?);
        let pairs: Vec<Vec<f64>> = rounds.values().filter_map(pair).collect();
        if name != baseline && !pairs.is_empty() {
            for (way, columns) in ways {
                print(&format!("| {name} | {way} | {} |", row(&pairs, columns).join(" | ")));
            }
        }
    }
    Ok(())
}

fn read_probes(file: &str) -> anyhow::Result<Vec<Probe>> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let line = |line: &str| -> Option<Probe> {
        let mut words = line.split_whitespace();
        let at = words.next()?.parse().ok()?;
        let mut next = || words.next()?.parse::<f64>().ok();
        Some((at, [next()?, next()?]))
    };
    let number = |(number, text): (usize, &str)| {
        line(text).with_context(|| format!("{file}:{}: not \"UNIX_NS NS NS\"", number + 1))
    };
    text.lines().enumerate().map(number).collect()
}

fn figures(slice: &Slice, probes: &[Probe]) -> Option<Figures> {
    // As tare-lab does: busy and idle time together are at most the CPU time.
    let idle = slice.busy_time.map_or(0.0, |time| {
        let (busy, idle) = (time.busy_ns as f64, time.idle_poll_ns as f64);
        idle * (slice.system_cpu_ns as f64 / (busy + idle)).min(1.0)
    });
    let layer: u64 = slice.layer_cpu_ns.iter().map(|(_, ns)| ns).sum();
    let server = (slice.system_cpu_ns as f64 - idle + layer as f64) / slice.operations as f64;
    let client = slice.client_cpu_ns as f64 / slice.operations as f64;
    let from = slice.started_unix_ms * 1_000_000;
    let start = probes.partition_point(|probe| probe.0 < from);
    let during = probes[start..].iter().take_while(|probe| probe.0 < from + slice.window_ns);
    let during: Vec<&Probe> = during.collect();
    let column = |at: usize| Some(median(during.iter().map(|probe| probe.1[at]))?.ln());
    let probe = (during.len() >= PROBES_MIN).then(|| Some([column(0)?, column(1)?])).flatten();
    let sound = server > 0.0 && client > 0.0 && slice.operations > 0;
    (sound && (probes.is_empty() || probe.is_some())).then(|| Figures {
        server: server.ln(),
        client: client.ln(),
        probe,
    })
}

/// The log ratios of a pair: server, client, and the probe's.
fn pair(over: &Figures, under: &Figures) -> Option<Vec<f64>> {
    let mut pair = vec![over.server - under.server, over.client - under.client];
    if let (Some(over), Some(under)) = (over.probe, under.probe) {
        pair.extend([over[0] - under[0], over[1] - under[1]]);
    }
    pair.iter().all(|value| value.is_finite()).then_some(pair)
}

/// The cells of one way: the interval over all rounds, and coverage and width in blocks.
fn row(pairs: &[Vec<f64>], columns: &[usize]) -> Vec<String> {
    let percent = |log: f64| 100.0 * log.exp_m1();
    let whole = estimate(&without_fit(pairs, columns));
    let mut cells = vec![whole.map_or("none".into(), |whole| {
        let bounds = (percent(whole.low), percent(whole.high));
        format!("{:.2} % [{:.2}, {:.2}]", percent(whole.centre), bounds.0, bounds.1)
    })];
    for length in BLOCKS {
        let (mut blocks, mut held, mut widths) = (0, 0, Vec::new());
        for at in (0..pairs.len() / length).map(|block| block * length) {
            let others = pairs[..at].iter().chain(&pairs[at + length..]);
            let truth = estimate(&others.map(|pair| pair[0]).collect::<Vec<f64>>());
            let found = estimate(&without_fit(&pairs[at..at + length], columns));
            if let (Some(truth), Some(found)) = (truth, found) {
                blocks += 1;
                held += usize::from(!found.excludes(truth.centre));
                widths.push(100.0 * (found.high - found.low));
            }
        }
        let width = median(widths).unwrap_or(f64::NAN);
        cells.push(format!("{held} of {blocks} ({width:.1})"));
    }
    cells
}

/// Subtracts the least squares fit of these covariates from the servers' log ratios, by orthogonal
/// columns (Gram and Schmidt).
fn without_fit(pairs: &[Vec<f64>], columns: &[usize]) -> Vec<f64> {
    let n = pairs.len() as f64;
    let mut rest: Vec<f64> = pairs.iter().map(|pair| pair[0]).collect();
    let mut fitted: Vec<Vec<f64>> = Vec::new();
    for column in columns {
        let mut values: Vec<f64> = pairs.iter().map(|pair| pair[column + 1]).collect();
        for earlier in &fitted {
            subtract(&mut values, earlier, n);
        }
        subtract(&mut rest, &values, n);
        fitted.push(values);
    }
    rest
}

/// Subtracts the slope of `values` on `column` times the column. The column is not centred, because
/// its true mean is 0.
fn subtract(values: &mut [f64], column: &[f64], n: f64) {
    let means = (values.iter().sum::<f64>() / n, column.iter().sum::<f64>() / n);
    let both = values.iter().zip(column);
    let product: f64 = both.map(|(y, x)| (y - means.0) * (x - means.1)).sum();
    let squares: f64 = column.iter().map(|x| (x - means.1).powi(2)).sum();
    if squares > 0.0 {
        values.iter_mut().zip(column).for_each(|(y, x)| *y -= product / squares * x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtracts_what_covariates_explain() {
        // The server follows the client by a half and the CPU's speed twice; the rest is 0.1.
        let pairs: Vec<Vec<f64>> = (0..20)
            .map(|n| {
                let (client, speed) = (f64::from(n * 7 % 20 - 10), f64::from(n * 3 % 20 - 10));
                vec![0.1 + 0.5 * client + 2.0 * speed, client, speed]
            })
            .collect();
        for value in without_fit(&pairs, &[0, 1]) {
            assert!((value - 0.1).abs() < 1e-9, "{value}");
        }
        assert_eq!(without_fit(&pairs, &[])[3], pairs[3][0]);
    }

    #[test]
    fn names_the_line_of_a_bad_probe() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "1 2 3\n1 x 3\n").unwrap();
        let error = read_probes(file.path().to_str().unwrap()).unwrap_err().to_string();
        assert!(error.ends_with(":2: not \"UNIX_NS NS NS\""), "{error}");
    }
}
