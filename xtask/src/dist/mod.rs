//! `cargo xtask dist`: what is shipped, made of one static program: a tarball, a Debian package and
//! an image. The same program gives the same bytes. `--try` runs each of them where it would be
//! used.
//!
//! Method: the program of the profile `dist` prints its own completions and man pages; packages are
//! written here, so that no tool of the distribution is needed to make them.

mod archive;
mod compare;
mod debian;
mod files;
mod image;
mod tarball;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};

use crate::say;
use files::Files;

const USAGE: &str = "\
usage: cargo xtask dist [--program PATH] [--out FOLDER] [--try]
       cargo xtask dist --compare PROGRAM OTHER [ROUNDS [SECONDS]]";

/// What names every package.
pub(crate) struct Release {
    pub(crate) version: String,
    /// As Rust and the kernel name it: `x86_64`, `aarch64`.
    pub(crate) machine: &'static str,
}

impl Release {
    /// The machine's name in Debian and in images.
    pub(crate) fn architecture(&self) -> &'static str {
        match self.machine {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        }
    }

    /// Name of the tarball's folder and the begin of every file's name.
    pub(crate) fn name(&self) -> String {
        format!("tare-{}-{}-linux", self.version, self.machine)
    }
}

pub(crate) fn run(root: &Path, words: &[&str]) -> anyhow::Result<()> {
    if let ["--compare", first, second, rest @ ..] = words {
        return compare::run(Path::new(first), Path::new(second), rest);
    }
    let (mut program, mut out, mut try_them) = (None, root.join("target/dist"), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match (*word, words.as_slice().first()) {
            ("--try", _) => try_them = true,
            ("--program", Some(path)) => program = Some(PathBuf::from(path)),
            ("--out", Some(path)) => out = PathBuf::from(path),
            _ => bail!("{USAGE}"),
        }
        if *word != "--try" {
            words.next();
        }
    }
    let program = match program {
        Some(program) => program,
        None => build(root)?,
    };
    fs::create_dir_all(&out).with_context(|| format!("cannot make {}", out.display()))?;
    let files = Files::collect(root, &program)?;
    let release = Release { version: files.version()?, machine: std::env::consts::ARCH };
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

/// Builds the program with the profile `dist`; returns its path.
fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let status = Command::new(env!("CARGO"))
        .args(["build", "--profile", "dist", "--locked", "--package", "tare"])
        .current_dir(root)
        .status()
        .context("cannot start cargo")?;
    ensure!(status.success(), "the program could not be built: {status}");
    let release = crate::ci::program(root)?;
    let target = release.parent().and_then(Path::parent).context("the target has no folder")?;
    Ok(target.join("dist/tare"))
}
