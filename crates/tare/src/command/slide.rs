//! `tare report --slide`: writes the slide as SVG, or as PNG through a converter of this machine.
//!
//! Why no renderer of our own: one with fonts adds forty crates and megabytes to the program, and
//! the usual converters are one small package each.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, anyhow};
use tare_host::exec::{self, Command};
use tare_lab::analysis::Analysis;
use tare_lab::record::Record;

use crate::exit::{Exit, ExitWith};

/// Pixels of a PNG, one and a half times those of the SVG.
const WIDTH: &str = "1920";
/// A converter takes about a second.
const TIME_MAX: Duration = Duration::from_secs(60);

/// A converter, and its arguments to read SVG from standard input and to write a PNG file.
type Converter = (&'static str, fn(&str) -> Vec<String>);

/// In the order of preference.
const CONVERTERS: [Converter; 3] = [
    ("rsvg-convert", |png| words(&["--width", WIDTH, "--output", png])),
    ("resvg", |png| words(&["--width", WIDTH, "-", png])),
    ("inkscape", |png| {
        words(&["--pipe", "--export-type=png", "--export-width", WIDTH, "--export-filename", png])
    }),
];

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_string()).collect()
}

/// Writes the slide of a record.
pub(super) fn write(path: &Path, record: &Record, analysis: &Analysis) -> anyhow::Result<()> {
    let svg = tare_report::html::slide(record, analysis)
        .ok_or_else(|| anyhow!("no slide: the record has no cost yet; measure more rounds"))
        .exit_with(Exit::Input)?;
    if path.extension().is_some_and(|extension| extension == "svg") {
        return fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()));
    }
    convert(&svg, path)
}

fn convert(svg: &str, path: &Path) -> anyhow::Result<()> {
    let found = CONVERTERS.iter().find_map(|(name, arguments)| {
        let program: PathBuf = exec::find(name)?;
        Some((program, arguments))
    });
    let Some((program, arguments)) = found else {
        let missing = anyhow!(
            "cannot write {}: rsvg-convert, resvg and inkscape are not on PATH; install \
             librsvg2-bin (Fedora: librsvg2-tools), or write an .svg file",
            path.display()
        );
        return Err(missing).exit_with(Exit::Host);
    };
    // An absolute path is no option, whatever the name of the file.
    let to = std::path::absolute(path)
        .with_context(|| format!("cannot find the folder of {}", path.display()))?;
    Command::new(&program)
        .args(arguments(&to.display().to_string()))
        .input(svg)
        .time_limit(TIME_MAX)
        .run()
        .with_context(|| format!("cannot write the slide {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_converter_is_told_the_file_and_the_width() {
        for (name, arguments) in CONVERTERS {
            let arguments = arguments("/tmp/a slide.png");
            assert!(arguments.iter().any(|one| one == "/tmp/a slide.png"), "{name}");
            assert!(arguments.iter().any(|one| one == WIDTH), "{name}");
        }
    }
}
