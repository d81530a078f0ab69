//! The options that a study may give fio, in fio's own words, checked before anything starts.

use tare_lab::study::{OptionInfo, WorkloadSpec};
use tare_stats::steady_state::WINDOW_ROUNDS;

use crate::option_reader::{OptionError, OptionReader, option};

/// All options with their defaults.
pub(super) const OPTIONS: &[OptionInfo] = &[
    option(
        "rw",
        &["read", "write", "randread", "randwrite", "rw", "randrw"],
        "pattern: read, write, randread, randwrite, rw, randrw (randread)",
    ),
    option("rwmixread", &[], "reads of rw and randrw, in percent (50)"),
    option("bs", &[], "bytes of one operation, such as 4k (4k)"),
    option("iodepth", &[], "operations in flight of each job, where the engine can (1)"),
    option("numjobs", &[], "jobs, each a thread with a file of its own (1)"),
    option("size", &[], "bytes of the file of each job, such as 256M (64M)"),
    option(
        "ioengine",
        &["libaio", "io_uring", "psync", "sync", "pvsync2", "posixaio", "mmap"],
        "how I/O is issued: libaio, io_uring, psync, sync, pvsync2, posixaio, mmap (libaio)",
    ),
    option("direct", &["true", "false"], "bypass the page cache (true)"),
    option("fsync", &[], "an fsync after so many writes, 0 for none (0)"),
    option("fdatasync", &[], "an fdatasync after so many writes, 0 for none (0)"),
    option("random_distribution", &[], "random, zipf:1.2, pareto:0.9, normal:20 (random)"),
    option(
        "rate_process",
        &["linear", "poisson"],
        "how starts at the fixed rate are spread: linear, poisson (linear)",
    ),
    option(
        "steadystate",
        &[],
        "before it is measured, run until so steady: iops:5%, iops_slope:1%, bw:5%; or snia: five rounds whose rates are within 20 % \
         of their mean, and their slope within 10 % (not at all)",
    ),
    option("steadystate_duration", &[], "seconds for which it has to be steady, not for snia (10)"),
    option(
        "steadystate_limit",
        &[],
        "seconds after which it is measured all the same, not for snia (60)",
    ),
    option("steadystate_round", &[], "seconds of a round of snia (60)"),
    option(
        "steadystate_rounds",
        &[],
        "rounds of snia after which it is measured all the same (25)",
    ),
    option(
        "precondition",
        &[],
        "how often all bytes are written in order, by 128 KiB, after the files are there (0)",
    ),
];

/// A workload as options of fio.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) rw: String,
    pub(super) rwmixread: u64,
    pub(super) bs: u64,
    pub(super) iodepth: u64,
    pub(super) numjobs: u64,
    pub(super) size: u64,
    pub(super) ioengine: String,
    pub(super) direct: bool,
    pub(super) fsync: u64,
    pub(super) fdatasync: u64,
    pub(super) random_distribution: Option<String>,
    pub(super) rate_process: String,
    pub(super) steady: Option<Steady>,
    /// How often all bytes are written before the workload becomes steady.
    pub(super) precondition: u64,
}

/// When a job counts as steady.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Steady {
    /// By fio's own criterion, such as `iops:5%`.
    Criterion { criterion: String, duration_s: u64, limit_s: u64 },
    /// By the rule of SNIA ([`tare_stats::steady_state`]).
    Snia { round_s: u64, rounds_max: u64 },
}

/// The options of the two kinds of criteria.
const SNIA_OPTIONS: [&str; 2] = ["steadystate_round", "steadystate_rounds"];
const CRITERION_OPTIONS: [&str; 2] = ["steadystate_duration", "steadystate_limit"];

/// The value of `steadystate` that selects the rule of SNIA.
const SNIA: &str = "snia";

impl Options {
    /// Reads the options of a workload; missing ones have their defaults.
    ///
    /// # Errors
    /// The first invalid value.
    pub(super) fn read(workload: &WorkloadSpec) -> Result<Self, OptionError> {
        let words = OptionReader { tool: "fio", workload };
        let steady = match words.get("steadystate") {
            None => {
                refuse(words, SNIA_OPTIONS, "nothing: it is only with steadystate = \"snia\"")?;
                None
            }
            Some(SNIA) => {
                refuse(
                    words,
                    CRITERION_OPTIONS,
                    "nothing: snia has steadystate_round and _rounds",
                )?;
                let [round, rounds] = SNIA_OPTIONS;
                Some(Steady::Snia {
                    round_s: words.whole(round, 60, 1..=3600)?,
                    rounds_max: words.whole(rounds, 25, WINDOW_ROUNDS as u64..=1000)?,
                })
            }
            Some(_) => {
                refuse(words, SNIA_OPTIONS, "nothing: it is only with steadystate = \"snia\"")?;
                let [duration, limit] = CRITERION_OPTIONS;
                Some(Steady::Criterion {
                    criterion: criterion(words)?,
                    duration_s: words.whole(duration, 10, 1..=3600)?,
                    limit_s: words.whole(limit, 60, 1..=36_000)?,
                })
            }
        };
        let options = Self {
            rw: words.text("rw", "randread"),
            rwmixread: words.whole("rwmixread", 50, 0..=100)?,
            bs: words.bytes("bs", 4 << 10, 512)?,
            iodepth: words.whole("iodepth", 1, 1..=65_536)?,
            numjobs: words.whole("numjobs", 1, 1..=4096)?,
            size: words.bytes("size", 64 << 20, 4096)?,
            ioengine: words.text("ioengine", "libaio"),
            direct: words.text("direct", "true") == "true",
            fsync: words.whole("fsync", 0, 0..=1 << 30)?,
            fdatasync: words.whole("fdatasync", 0, 0..=1 << 30)?,
            random_distribution: distribution(words)?,
            rate_process: words.text("rate_process", "linear"),
            steady,
            precondition: words.whole("precondition", 0, 0..=100)?,
        };
        let name = || workload.name.clone();
        if !options.size.is_multiple_of(options.bs) {
            let (size, bs) = (options.size, options.bs);
            return Err(OptionError::Size { workload: name(), size, bs });
        }
        Ok(options)
    }

    /// Returns whether it writes, and not in sequence.
    pub(super) fn writes_at_random(&self) -> bool {
        self.rw == "randwrite" || (self.rw == "randrw" && self.rwmixread < 100)
    }
}

/// Refuses options that do not belong to the value of `steadystate`.
fn refuse(
    words: OptionReader<'_>,
    names: [&'static str; 2],
    expected: &'static str,
) -> Result<(), OptionError> {
    match names.into_iter().find(|name| words.get(name).is_some()) {
        Some(name) => Err(words.bad(name, expected)),
        None => Ok(()),
    }
}

/// Returns a distribution's name and parameters, without anything that would end a line of a job.
fn distribution(words: OptionReader<'_>) -> Result<Option<String>, OptionError> {
    let Some(value) = words.get("random_distribution") else { return Ok(None) };
    let (name, rest) = value.split_once(':').unwrap_or((value, "0"));
    let known = ["random", "zipf", "pareto", "normal"].contains(&name);
    let parameters = rest.split(':').all(|one| one.parse::<f64>().is_ok());
    match known && parameters {
        true => Ok(Some(value.into())),
        false => Err(words.bad("random_distribution", "such as random, zipf:1.2 or normal:20")),
    }
}

fn criterion(words: OptionReader<'_>) -> Result<String, OptionError> {
    let value = words.get("steadystate").unwrap_or_default();
    let kinds = ["iops", "iops_slope", "bw", "bw_slope"];
    let valid = value.split_once(':').is_some_and(|(kind, limit)| {
        let limit = limit.strip_suffix('%').unwrap_or(limit);
        kinds.contains(&kind) && limit.parse::<f64>().is_ok_and(|limit| limit > 0.0)
    });
    match valid {
        true => Ok(value.into()),
        false => Err(words.bad("steadystate", "snia, or such as iops:5%, iops_slope:1% or bw:5%")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tests::workload;

    pub(in crate::fio) fn asked(options: &[(&str, &str)]) -> WorkloadSpec {
        let options = options.iter().map(|(n, v)| ((*n).to_string(), (*v).to_string())).collect();
        WorkloadSpec { name: "RR".into(), options, ..workload() }
    }

    #[test]
    fn options_are_read_with_defaults() {
        let options = Options::read(&asked(&[
            ("rw", "randwrite"),
            ("bs", "8k"),
            ("size", "1G"),
            ("iodepth", "32"),
            ("direct", "false"),
            ("steadystate", "iops:2.5%"),
        ]))
        .unwrap();
        assert_eq!((options.bs, options.size, options.iodepth), (8192, 1 << 30, 32));
        assert_eq!((options.rw.as_str(), options.direct), ("randwrite", false));
        assert_eq!((options.numjobs, options.ioengine.as_str()), (1, "libaio"));
        let criterion = "iops:2.5%".to_string();
        let expect = Steady::Criterion { criterion, duration_s: 10, limit_s: 60 };
        assert_eq!((options.steady, options.precondition), (Some(expect), 0));
    }

    #[test]
    fn writes_at_random_are_those_of_two_patterns() {
        let writes =
            |words: &[(&str, &str)]| Options::read(&asked(words)).unwrap().writes_at_random();
        assert!(writes(&[("rw", "randwrite")]) && writes(&[("rw", "randrw")]));
        assert!(!writes(&[("rw", "randrw"), ("rwmixread", "100")]));
        assert!(!writes(&[("rw", "write")]) && !writes(&[("rw", "randread")]) && !writes(&[]));
    }

    #[test]
    fn snia_has_rounds_of_its_own() {
        let read = |words: &[(&str, &str)]| Options::read(&asked(words));
        let options = read(&[("steadystate", "snia"), ("precondition", "2")]).unwrap();
        let expect = Steady::Snia { round_s: 60, rounds_max: 25 };
        assert_eq!((options.steady, options.precondition), (Some(expect), 2));
        let short = [("steadystate", "snia"), ("steadystate_round", "2")];
        assert_eq!(read(&short).unwrap().steady, Some(Steady::Snia { round_s: 2, rounds_max: 25 }));
        for words in [
            [("steadystate", "snia"), ("steadystate_rounds", "4")],
            [("steadystate", "snia"), ("steadystate_limit", "90")],
            [("steadystate", "iops:5%"), ("steadystate_round", "60")],
            [("rw", "randread"), ("steadystate_rounds", "25")],
        ] {
            let error = read(&words).unwrap_err().to_string();
            assert!(error.contains(words[1].0), "{words:?}: {error}");
        }
    }

    #[test]
    fn invalid_value_is_refused_with_its_option() {
        for (name, value) in [
            ("bs", "4 apples"),
            ("bs", "100"),
            ("iodepth", "0"),
            ("iodepth", "4.5"),
            ("numjobs", "5000"),
            ("rwmixread", "101"),
            ("size", "10000"),
            ("random_distribution", "zipf:1\nexec_prerun=rm"),
            ("random_distribution", "zoned:50/5"),
            ("steadystate", "iops"),
            ("steadystate", "iops:5%\n[x]"),
        ] {
            let error = Options::read(&asked(&[(name, value)])).unwrap_err().to_string();
            assert!(error.contains(name), "{name} = {value}: {error}");
        }
    }

    #[test]
    fn options_are_listed_once() {
        let mut names: Vec<&str> = OPTIONS.iter().map(|option| option.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OPTIONS.len());
    }
}
