//! `cargo xtask dist`: what is shipped, made of one static program: a tarball, a Debian package and
//! an image. The same program gives the same bytes. `--try` runs each of them where it would be
//! used.
//!
//! Method: the program of the profile `dist` prints its own completions, man pages and image;
//! packages are written here, so that no tool of the distribution is needed to make them.

mod archive;
mod compare;
mod debian;
mod files;
mod image;
mod machine;
mod tarball;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use crate::say;
use files::Files;
use machine::Machine;

const USAGE: &str = "\
usage: cargo xtask dist [--machine aarch64] [--program PATH] [--out FOLDER] [--try]
       cargo xtask dist --compare PROGRAM OTHER [ROUNDS [SECONDS]]";

/// What names every package.
pub(crate) struct Release {
    pub(crate) version: String,
    pub(crate) machine: Machine,
    /// What runs the machine's programs, if it is not this one.
    pub(crate) emulator: Option<PathBuf>,
}

impl Release {
    /// Name of the tarball's folder and the begin of every file's name.
    pub(crate) fn name(&self) -> String {
        format!("tare-{}-{}-linux", self.version, self.machine.name())
    }
}

/// Builds the program that is shipped for machines like this one, and returns its path.
pub(crate) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    Machine::OWN.build(root)
}

pub(crate) fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    if let ["--compare", first, second, rest @ ..] = words {
        return compare::run(Path::new(first), Path::new(second), rest);
    }
    let (mut program, mut out, mut try_them) = (None, root.join("target/dist"), false);
    let mut machine = Machine::OWN;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (*word, words.as_slice().first()) {
            ("--try", _) => try_them = true,
            ("--program", Some(path)) => program = Some(PathBuf::from(path)),
            ("--machine", Some(name)) => machine = Machine::parse(name)?,
            ("--out", Some(path)) => out = PathBuf::from(path),
            _ => bail!("{USAGE}"),
        }
        if *word != "--try" {
            words.next();
        }
    }
    // What it takes to run the program is missing before the long build, not after it.
    let emulator = machine.emulator()?;
    let program = match program {
        Some(program) => program,
        None => machine.build(root)?,
    };
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let files = Files::collect(root, &program, emulator.as_deref())?;
    let release = Release { version: files.version()?, machine, emulator };
    let made = [
        tarball::write(&files, &release, &out)?,
        debian::write(&files, &release, &out)?,
        image::write(&files, &release, &out)?,
    ];
    for path in &made {
        let bytes = fs::metadata(path).with_context(|| format!("{}", path.display()))?.len();
        say(&format!("{:>6.1} MB  {}", bytes as f64 / 1e6, path.display()));
    }
    let [tarball, package, image] = &made;
    if try_them { trial::run(&release, tarball, package, image) } else { Ok(()) }
}
