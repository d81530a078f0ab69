//! `cargo xtask bench [--shipped] [--publish] [PART...] [NAME=VALUE...]`: the benches of the
//! database and the load generator, and with `--publish` their output on the page
//! `docs/results/database.md`, with machine, kernel, commit and date. Parts that did not run stay
//! on the page as they are. With `--shipped` the program of the profile `dist` is built and
//! measured, else that of `release`. Words such as `latte=PROGRAM` are those of the benches.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::cargo::cargo;
use crate::print;

const PAGE: &str = "docs/results/database.md";

/// A part of the page: the bench that measures it, and the arguments of the bench.
struct Part {
    name: &'static str,
    bench: &'static str,
    words: &'static [&'static str],
    title: &'static str,
    /// What is compared, above its table.
    about: &'static str,
}

/// All parts.
const PARTS: [Part; 10] = [
    Part {
        name: "small-requests",
        bench: "against_others",
        words: &[],
        title: "One small request",
        about: "One row of 300 bytes for each request, 64 requests in flight, the server on one CPU and the client on \
                the other: `tare db` loaded by `tare load`, and Redis by redis-benchmark, over 64 connections with one \
                request each and over 2 with 32. Kernel: a server that answers without looking at a request, and a client \
                that does not look at an answer, for the same bytes over as many sockets.",
    },
    Part {
        name: "clients",
        bench: "load",
        words: &["5", "5"],
        title: "The client's part of a small request",
        about: "CPU time that a client takes for one row of 300 bytes, 64 requests in flight, against `tare db` on another CPU: \
                `tare load` over 64 connections and over 2, the bare Rust driver of ScyllaDB, and load tools.",
    },
    Part {
        name: "reads",
        bench: "database",
        words: &["reads"],
        title: "Reads that miss",
        about: "Random reads of rows that are not in memory, beside fio on the same file system.",
    },
    Part {
        name: "shards",
        bench: "database",
        words: &["shards"],
        title: "A second shard",
        about: "Two shards on two CPUs against one on one; the client has to share their CPUs, so everything is doubled. Writes with `sync` are \
                on the disk before their answer, and both shards share that disk; the others are limited by the CPUs.",
    },
    Part {
        name: "compact",
        bench: "database",
        words: &["compact"],
        title: "Reads while tables are compacted",
        about: "Latency of reads at a fixed rate with and without compactions under way.",
    },
    Part {
        name: "inserts",
        bench: "database",
        words: &["inserts"],
        title: "Inserts over time",
        about: "Throughput while tables are flushed and compacted, and bytes written to disk for each byte of rows.",
    },
    Part {
        name: "sustained",
        bench: "database",
        words: &["sustained"],
        title: "Half an hour of inserts",
        about: "Inserts at 80 % of capacity for 30 minutes: throughput, latency from when an operation was due, and bytes \
                written to disk for each byte of rows, minute by minute.",
    },
    Part {
        name: "start",
        bench: "database",
        words: &["start"],
        title: "Start",
        about: "Time until the server answers: empty, after `kill -9`, and with tables.",
    },
    Part {
        name: "stalls",
        bench: "stall_truth",
        words: &["60"],
        title: "A server that stops",
        about: "The p99.9 that `tare load` prints for a server that stops for 1 s in every 10, beside the calculated one.",
    },
    Part {
        name: "agreement",
        bench: "agreement",
        words: &["10"],
        title: "Latencies beside a packet capture",
        about: "Percentiles that `tare load` prints, beside those of the same operations on the wire.",
    },
];

pub(crate) fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let (flags, words): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--"));
    let (more, names): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| word.contains('='));
    let (mut publish, mut shipped) = (false, false);
    for flag in flags {
        match flag {
            "--publish" => publish = true,
            "--shipped" => shipped = true,
            _ => {
                bail!("usage: cargo xtask bench [--shipped] [--publish] [PART...] [NAME=VALUE...]")
            }
        }
    }
    for name in &names {
        let known = || PARTS.map(|part| part.name).join(", ");
        ensure!(
            PARTS.iter().any(|part| part.name == *name),
            "no part {name:?}; there are {}",
            known()
        );
    }
    let program = match shipped {
        true => Some(format!("program={}", crate::dist::build(root)?.display())),
        false => None,
    };
    let more: Vec<&str> = more.into_iter().chain(program.as_deref()).collect();
    for part in PARTS.iter().filter(|part| names.is_empty() || names.contains(&part.name)) {
        let output = measure(root, part, &more)?;
        if publish {
            let page = root.join(PAGE);
            let text = fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
            let text = with_part(&text, part.name, &section(root, part, shipped, &output)?);
            fs::write(&page, text).with_context(|| format!("cannot write {PAGE}"))?;
        }
    }
    Ok(())
}

/// Runs a bench; prints and returns its output.
fn measure(root: &Path, part: &Part, more: &[&str]) -> anyhow::Result<String> {
    let mut command = cargo(root);
    command.args(["bench", "--quiet", "--package", "tare", "--bench", part.bench, "--"]);
    command.args(part.words).args(more).stdout(Stdio::piped());
    let mut child = command.spawn().context("cannot start cargo")?;
    let mut output = String::new();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        print(&line);
        output += line.trim_end();
        output.push('\n');
    }
    let status = child.wait()?;
    ensure!(status.success(), "the bench {} ended with {status}", part.bench);
    let mut lines = output.lines();
    ensure!(
        !lines.all(|line| line.starts_with("skipped:")),
        "the bench {} measured nothing",
        part.bench
    );
    Ok(output)
}

/// Returns a part's text on the page: what it compares, where and when it was measured, its
/// summary (what follows the first empty line of the output), and what came before that, folded.
fn section(root: &Path, part: &Part, shipped: bool, output: &str) -> anyhow::Result<String> {
    let (raw, summary) = output.split_once("\n\n").unwrap_or(("", output));
    let Part { name, title, about, .. } = part;
    let (machine, flag) = (machine(root)?, if shipped { "--shipped " } else { "" });
    let mut text = format!(
        "## {title}\n{about}\n\n`cargo xtask bench {flag}{name}`, {machine}.\n\n```text\n{}\n```\n",
        summary.trim_end()
    );
    if !raw.is_empty() {
        let folded = "<details><summary>Every run</summary>";
        text += &format!("\n{folded}\n\n```text\n{raw}\n```\n\n</details>\n");
    }
    Ok(text)
}

/// Returns the machine, its kernel, the commit and the day.
fn machine(root: &Path) -> anyhow::Result<String> {
    let cpus = fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let said = |program: &str, words: &[&str]| -> anyhow::Result<String> {
        let output = Command::new(program).args(words).current_dir(root).output();
        let output = output.with_context(|| format!("cannot start {program}"))?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let commit = said("git", &["describe", "--always", "--dirty=, changed", "--abbrev=10"])?;
    Ok(format!(
        "{} with {count} CPUs, kernel {}, commit {commit}, {}",
        model.unwrap_or("a CPU without a name").trim(),
        kernel.trim(),
        said("date", &["-I"])?
    ))
}

/// Returns the page with a part's text in place of the text that it has, or at the end.
fn with_part(page: &str, name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, after) = match page.split_once(&begin) {
        Some((before, rest)) => (before, rest.split_once(&end).map_or("", |(_, after)| after)),
        None => (page, ""),
    };
    let gap = if before.ends_with("\n\n") { "" } else { "\n" };
    format!("{before}{gap}{begin}{text}{end}{after}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_one_part_of_the_page_or_adds_it() {
        let page = with_part("# A\n", "a", "old\n");
        assert_eq!(page, "# A\n\n<!-- a -->\nold\n<!-- end of a -->\n");
        let both = with_part(&page, "b", "b\n");
        let new = with_part(&both, "a", "new\n");
        let kept = "<!-- b -->\nb\n<!-- end of b -->\n";
        assert_eq!(new, format!("# A\n\n<!-- a -->\nnew\n<!-- end of a -->\n\n{kept}"));
    }
}
