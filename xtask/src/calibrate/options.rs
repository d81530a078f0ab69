//! The command line of `cargo xtask calibrate`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};

use super::studies::Kind;

pub(crate) const USAGE: &str = "\
usage: cargo xtask calibrate --out FILE.jsonl [--campaigns N] [--budget-each 30s] [--for 40m]
           [--kinds busy,quota,delay,filter,noise,busy-2,explain,same,same-1,same-2,same-4,same-cgroup,same-nice]
           [--resume] [--seed N] [--program PATH]
       cargo xtask calibrate --summary --out FILE.jsonl     prints the summary of a file
       cargo xtask calibrate --page                         writes fixtures/calibration/*.jsonl into docs/concepts/trust.md

Campaigns of all kinds alternate until each kind of the list has N, or until the time given by --for is over.
A kind that is in the list several times gets as many campaigns.";

/// The requested action.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Run(Options),
    Summary(PathBuf),
    Page,
}

/// The options of campaigns.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) out: PathBuf,
    /// Passes over the list of kinds.
    pub(crate) campaigns: u32,
    pub(crate) budget_each: Duration,
    /// No campaign starts after this time.
    pub(crate) time: Option<Duration>,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) resume: bool,
    pub(crate) seed: u64,
    /// The built `tare`. The default is that of the release profile.
    pub(crate) program: Option<PathBuf>,
}

/// Parses the words after `calibrate`.
pub(crate) fn parse(words: &[&str]) -> anyhow::Result<Action> {
    let mut options = Options {
        out: PathBuf::new(),
        campaigns: 20,
        budget_each: Duration::from_secs(30),
        time: None,
        kinds: Kind::ALL.to_vec(),
        resume: false,
        seed: 1,
        program: None,
    };
    let (mut summary, mut page) = (false, false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value =
            || words.next().copied().with_context(|| format!("{word} needs a value\n{USAGE}"));
        match *word {
            "--out" => options.out = value()?.into(),
            "--campaigns" => {
                options.campaigns = value()?.parse().context("--campaigns takes a number")?
            }
            "--budget-each" => options.budget_each = duration(value()?)?,
            "--for" => options.time = Some(duration(value()?)?),
            "--kinds" => {
                let named = value()?.split(',').map(|name| {
                    let known = || Kind::ALL.map(Kind::name).join(", ");
                    Kind::find(name)
                        .with_context(|| format!("unknown kind {name:?}; use {}", known()))
                });
                options.kinds = named.collect::<anyhow::Result<_>>()?;
            }
            "--resume" => options.resume = true,
            "--seed" => options.seed = value()?.parse().context("--seed takes a number")?,
            "--program" => options.program = Some(value()?.into()),
            "--summary" => summary = true,
            "--page" => page = true,
            _ => bail!("unknown word {word:?}\n{USAGE}"),
        }
    }
    if page {
        return Ok(Action::Page);
    }
    if options.out.as_os_str().is_empty() {
        bail!("{USAGE}");
    }
    Ok(if summary { Action::Summary(options.out) } else { Action::Run(options) })
}

/// Parses `90`, `90s`, `40m` or `2h`.
fn duration(text: &str) -> anyhow::Result<Duration> {
    let (number, scale) = match text.strip_suffix(['s', 'm', 'h']) {
        Some(number) if text.ends_with('m') => (number, 60),
        Some(number) if text.ends_with('h') => (number, 3600),
        Some(number) => (number, 1),
        None => (text, 1),
    };
    let seconds: u64 =
        number.parse().with_context(|| format!("{text:?} is no time; write it like 30s or 40m"))?;
    Ok(Duration::from_secs(seconds * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_options() {
        let words = [
            "--out",
            "a.jsonl",
            "--kinds",
            "busy,busy,noise",
            "--budget-each",
            "8s",
            "--for",
            "2m",
            "--resume",
        ];
        let Ok(Action::Run(options)) = parse(&words) else { panic!("it is an order to run") };
        assert_eq!(options.kinds, [Kind::Busy, Kind::Busy, Kind::Noise]);
        assert_eq!(
            (options.budget_each.as_secs(), options.time.map(|t| t.as_secs())),
            (8, Some(120))
        );
        assert!(options.resume);
        for bad in
            [&["--out"][..], &["--kinds", "bussy"], &["--out", "a", "--for", "soon"], &["x"], &[]]
        {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
