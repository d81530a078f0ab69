//! Load tools in Java: where their jars are, and the HdrHistogram that must come before theirs.
//!
//! Both cassandra-stress and YCSB come with a HdrHistogram that needs `javax.xml.bind`, which Java has
//! not had since version 11; the first one on the class path is the one that counts.

use std::path::PathBuf;

use tare_lab::study::OptionInfo;

use super::tool::Words;
use super::words::{OptionError, Options, option};

pub(super) const HDRHISTOGRAM: OptionInfo = option(
    "hdrhistogram",
    &[],
    "a jar of HdrHistogram from 2.1.10 on; the one that comes with it needs a Java before 11",
);
pub(super) const PROGRAM: OptionInfo =
    option("program", &[], "java's file, where it is not on PATH");

/// A tool in Java.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Java {
    program: String,
    classes: String,
}

impl Java {
    /// Reads `home`, which must have `needs`, `hdrhistogram` and `program`. `parts` of the home are the
    /// class path, around the jar of HdrHistogram.
    pub(super) fn read(
        words: Options<'_>,
        home: &str,
        needs: (&str, &'static str),
        parts: (&[&str], &[&str]),
    ) -> Result<Self, OptionError> {
        let home = PathBuf::from(words.text("home", home));
        if !home.join(needs.0).exists() {
            return Err(words.missing("home", needs.1));
        }
        let jar = words.get("hdrhistogram").map(PathBuf::from);
        if jar.as_ref().is_some_and(|jar| !jar.is_file()) {
            return Err(words.bad("hdrhistogram", "a file"));
        }
        let at_home =
            |parts: &[&str]| -> Vec<PathBuf> { parts.iter().map(|part| home.join(part)).collect() };
        let classes = [at_home(parts.0), jar.into_iter().collect(), at_home(parts.1)].concat();
        let classes: Vec<String> =
            classes.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        Ok(Self { program: words.text("program", "java"), classes: classes.join(":") })
    }

    /// Runs a class.
    pub(super) fn words(&self, class: &str) -> Words {
        Words::new(self.program.as_str()).word("-cp").word(self.classes.as_str()).word(class)
    }
}
