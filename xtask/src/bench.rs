//! `cargo xtask bench [--publish] [PART...]`: the benches of the database and the load generator,
//! and with `--publish` their output on the page `docs/results/database.md`, with machine, kernel,
//! commit and date. Parts that did not run stay on the page as they are.

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
}

const fn part(name: &'static str, bench: &'static str, words: &'static [&'static str]) -> Part {
    Part { name, bench, words }
}

/// All parts in the order of the page.
const PARTS: [Part; 8] = [
    part("small-requests", "against_others", &[]),
    part("reads", "database", &["reads"]),
    part("shards", "database", &["shards"]),
    part("compact", "database", &["compact"]),
    part("inserts", "database", &["inserts"]),
    part("start", "database", &["start"]),
    part("stalls", "stall_truth", &["60"]),
    part("agreement", "agreement", &["10"]),
];

pub(crate) fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    let (flags, names): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--"));
    let publish = match flags[..] {
        [] => false,
        ["--publish"] => true,
        _ => bail!("usage: cargo xtask bench [--publish] [PART...]"),
    };
    for name in &names {
        let known = || PARTS.map(|part| part.name).join(", ");
        ensure!(
            PARTS.iter().any(|part| part.name == *name),
            "no part {name:?}; there are {}",
            known()
        );
    }
    for part in PARTS.iter().filter(|part| names.is_empty() || names.contains(&part.name)) {
        let output = measure(root, part)?;
        if publish {
            let page = root.join(PAGE);
            let text = fs::read_to_string(&page).with_context(|| format!("cannot read {PAGE}"))?;
            let text = with_part(&text, part.name, &section(root, part, &output)?)?;
            fs::write(&page, text).with_context(|| format!("cannot write {PAGE}"))?;
        }
    }
    Ok(())
}

/// Runs a bench; prints and returns its output.
fn measure(root: &Path, part: &Part) -> anyhow::Result<String> {
    let mut command = cargo(root);
    command.args(["bench", "--quiet", "--package", "tare", "--bench", part.bench, "--"]);
    command.args(part.words).stdout(Stdio::piped());
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
    ensure!(!output.starts_with("skipped:"), "the bench {} measured nothing", part.bench);
    Ok(output)
}

/// Returns a part's text on the page: where and when it was measured, its summary (what follows the
/// last empty line but one block of the output), and all that came before it, folded.
fn section(root: &Path, part: &Part, output: &str) -> anyhow::Result<String> {
    let (raw, summary) = output.split_once("\n\n").unwrap_or(("", output));
    let command = ["cargo xtask bench --publish", part.name].join(" ");
    let mut text =
        format!("`{command}`, {}.\n\n```text\n{}\n```\n", machine(root)?, summary.trim_end());
    if !raw.is_empty() {
        text += &format!(
            "\n<details><summary>Every run</summary>\n\n```text\n{raw}\n```\n\n</details>\n"
        );
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

/// Returns the page with a part's text in place of the text that it has.
fn with_part(page: &str, name: &str, text: &str) -> anyhow::Result<String> {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->\n"));
    let (before, rest) =
        page.split_once(&begin).with_context(|| format!("{PAGE} has no line {begin:?}"))?;
    let (_, after) =
        rest.split_once(&end).with_context(|| format!("{PAGE} has no line {end:?}"))?;
    Ok(format!("{before}{begin}\n{text}\n{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replaces_one_part_of_the_page() {
        let page = "# A\n<!-- a -->\nold\n<!-- end of a -->\n<!-- b -->\n<!-- end of b -->\nend\n";
        let new = with_part(page, "a", "new\n").unwrap();
        let kept = "<!-- b -->\n<!-- end of b -->\nend\n";
        assert_eq!(new, format!("# A\n<!-- a -->\n\nnew\n\n<!-- end of a -->\n{kept}"));
        assert!(with_part(page, "c", "").is_err());
    }

    #[test]
    fn page_has_a_place_for_every_part() {
        let page = fs::read_to_string(crate::root().unwrap().join(PAGE)).unwrap();
        for part in PARTS {
            with_part(&page, part.name, "").unwrap();
        }
    }
}
