//! Load tools in Java: their jars, and the HdrHistogram that must come before theirs.
//!
//! cassandra-stress and YCSB both ship a HdrHistogram that needs `javax.xml.bind`, which Java lacks
//! since version 11. The first one on the class path is used.

use std::path::PathBuf;

use tare_lab::study::OptionInfo;

use super::Program;
use super::option_reader::{OptionError, OptionReader, option};
use super::tool::CommandLine;

pub(super) const HDRHISTOGRAM: OptionInfo = option(
    "hdrhistogram",
    &[],
    "a jar of HdrHistogram from 2.1.10 on; the one that comes with it needs a Java before 11",
);
pub(super) const PROGRAM: OptionInfo =
    option("program", &[], "java's file, where it is not on PATH");

/// The home directory of a tool in Java.
#[derive(Clone, Copy, Debug)]
pub(super) struct JavaHome {
    /// The directory unless a study names another.
    pub(super) default: &'static str,
    /// The file or directory that it must have, and the same in words.
    pub(super) needs: (&'static str, &'static str),
    /// The class path as parts of the home: those before the jar of HdrHistogram, and those after
    /// it.
    pub(super) before: &'static [&'static str],
    pub(super) after: &'static [&'static str],
}

/// How to run a tool in Java.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Java {
    program: String,
    classes: String,
}

impl JavaHome {
    /// Returns the program that `tare doctor` looks for.
    pub(super) const fn program(&self, get: &'static str) -> Program {
        Program { name: "java", home: Some((self.default, self.needs.0)), get }
    }

    /// Reads `home`, `hdrhistogram` and `program`.
    pub(super) fn read(&self, words: OptionReader<'_>) -> Java {
        let home = PathBuf::from(words.text("home", self.default));
        let jar = words.get("hdrhistogram").map(PathBuf::from);
        let at_home =
            |parts: &[&str]| -> Vec<PathBuf> { parts.iter().map(|part| home.join(part)).collect() };
        let classes =
            [at_home(self.before), jar.into_iter().collect(), at_home(self.after)].concat();
        let classes: Vec<String> =
            classes.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        Java { program: words.text("program", "java"), classes: classes.join(":") }
    }

    /// Returns the files that it needs, and the error for each that is missing.
    pub(super) fn files(&self, words: OptionReader<'_>) -> Vec<(PathBuf, OptionError)> {
        let home = PathBuf::from(words.text("home", self.default)).join(self.needs.0);
        let jar = words.get("hdrhistogram").map(PathBuf::from);
        let jar = jar.map(|jar| (jar, words.bad("hdrhistogram", "a file")));
        [(home, words.missing("home", self.needs.1))].into_iter().chain(jar).collect()
    }
}

impl Java {
    /// Returns the program that runs it.
    pub(super) fn program(&self) -> &str {
        &self.program
    }

    /// Returns the command line that runs a class.
    pub(super) fn words(&self, class: &str) -> CommandLine {
        CommandLine::new(self.program.as_str()).arg("-cp").arg(self.classes.as_str()).arg(class)
    }
}
