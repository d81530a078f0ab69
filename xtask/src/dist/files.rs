//! The files that are shipped, in memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// The program with what belongs to it: each group by file name.
#[derive(Default)]
pub(super) struct Files {
    pub(super) program: Vec<u8>,
    /// The archive of the image that the program prints.
    pub(super) image: Vec<u8>,
    pub(super) bash: Vec<u8>,
    pub(super) zsh: Vec<u8>,
    pub(super) fish: Vec<u8>,
    pub(super) man: BTreeMap<String, Vec<u8>>,
    pub(super) studies: BTreeMap<String, Vec<u8>>,
    pub(super) license: Vec<u8>,
    pub(super) readme: Vec<u8>,
    printed_version: String,
}

impl Files {
    /// Asks the program for its image, completions and man pages, and reads the rest from the
    /// checkout.
    pub(super) fn collect(
        root: &Path,
        program: &Path,
        emulator: Option<&Path>,
    ) -> anyhow::Result<Files> {
        let printed = |words: &[&str]| printed(program, emulator, words);
        let shell = |name: &str| printed(&["completions", name]);
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        let man = folder.path().to_str().context("the temporary folder's name is not UTF-8")?;
        printed(&["man", man])?;
        Ok(Files {
            program: read(program)?,
            image: printed(&["image"])?,
            bash: shell("bash")?,
            zsh: shell("zsh")?,
            fish: shell("fish")?,
            man: read_all(folder.path())?,
            studies: read_all(&root.join("studies"))?,
            license: read(&root.join("LICENSE"))?,
            readme: read(&root.join("README.md"))?,
            printed_version: String::from_utf8(printed(&["--version"])?)?,
        })
    }

    /// The version that the program prints.
    pub(super) fn version(&self) -> anyhow::Result<String> {
        let version = self.printed_version.split_whitespace().nth(1);
        version.map(String::from).context("the program prints no version")
    }
}

fn printed(program: &Path, emulator: Option<&Path>, words: &[&str]) -> anyhow::Result<Vec<u8>> {
    let mut command = Command::new(emulator.unwrap_or(program));
    if emulator.is_some() {
        command.arg(program);
    }
    let output = command.args(words).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    ensure!(output.status.success(), "{} {words:?}: {}", program.display(), output.status);
    Ok(output.stdout)
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// The files of a folder by name.
fn read_all(folder: &Path) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    let entries = fs::read_dir(folder).with_context(|| format!("{}", folder.display()))?;
    for entry in entries {
        let path = entry.with_context(|| format!("{}", folder.display()))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{}: not UTF-8", path.display()))?;
        files.insert(name.to_string(), read(&path)?);
    }
    ensure!(!files.is_empty(), "{} is empty", folder.display());
    Ok(files)
}
