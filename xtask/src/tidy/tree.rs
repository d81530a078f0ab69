//! The project's files as the rules see them: paths and texts in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// Largest file whose text is read. Records of other tools are longer; no rule reads them.
const BYTES_MAX: u64 = 1 << 20;

/// Every file that git tracks or would track, by its path from the root.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    files: BTreeMap<String, Option<String>>,
}

impl Tree {
    /// Reads the tree below `root`. A file that is binary or large keeps its path alone.
    pub(crate) fn read(root: &Path) -> anyhow::Result<Tree> {
        let output = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(root)
            .output()
            .context("cannot start git to list the files")?;
        ensure!(output.status.success(), "git ls-files: {}", output.status);
        let text = String::from_utf8(output.stdout).context("a file's name is not UTF-8")?;
        let mut files = BTreeMap::new();
        for path in text.lines() {
            let file = root.join(path);
            let Ok(facts) = fs::metadata(&file) else { continue };
            if facts.is_file() {
                let small = facts.len() <= BYTES_MAX;
                let text = if small { fs::read_to_string(&file).ok() } else { None };
                files.insert(path.to_string(), text);
            }
        }
        Ok(Tree { files })
    }

    /// A tree of a few files, for the tests of the rules.
    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Tree {
        let entry = |(path, text): &(&str, &str)| (path.to_string(), Some(text.to_string()));
        Tree { files: files.iter().map(entry).collect() }
    }

    /// The text of a file, or nothing if it is missing or binary.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).and_then(Option::as_deref)
    }

    /// Path and text of every text file.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|(path, text)| Some((path.as_str(), text.as_deref()?)))
    }

    /// Path and text of every text file that ends in `.EXTENSION`.
    pub(crate) fn ending(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        self.texts().filter(move |(path, _)| {
            path.rsplit_once('.').is_some_and(|(_, ending)| ending == extension)
        })
    }

    /// Whether a file or a folder of that path exists.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        if path.is_empty() || self.files.contains_key(path) {
            return true;
        }
        let folder = format!("{path}/");
        self.files.range(folder.clone()..).next().is_some_and(|(file, _)| file.starts_with(&folder))
    }

    /// Whether a file below `folder` (of the whole tree if that is empty) ends in `/suffix`.
    pub(crate) fn has_suffix(&self, folder: &str, suffix: &str) -> bool {
        let suffix = format!("/{}", suffix.trim_end_matches('/'));
        let inside = |path: &&String| folder.is_empty() || path.starts_with(&format!("{folder}/"));
        self.files.keys().filter(inside).any(|path| path.ends_with(&suffix))
    }

    /// Names of the packages of the workspace: the folders of `crates`, and `xtask`.
    pub(crate) fn packages(&self) -> BTreeSet<&str> {
        let manifest = |path: &'static str| self.files.contains_key(path).then_some("xtask");
        self.files
            .keys()
            .filter_map(|path| path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml"))
            .filter(|name| !name.contains('/'))
            .chain(manifest("xtask/Cargo.toml"))
            .collect()
    }

    /// The folder of a package.
    pub(crate) fn folder(package: &str) -> String {
        if package == "xtask" { package.to_string() } else { format!("crates/{package}") }
    }

    /// The package that a file belongs to, if any.
    pub(crate) fn package_of(path: &str) -> Option<&str> {
        match path.strip_prefix("crates/") {
            Some(rest) => rest.split('/').next(),
            None => path.starts_with("xtask/").then_some("xtask"),
        }
    }
}

/// The lines of a Markdown section, from its heading to the next of the same or a higher rank.
pub(crate) fn section<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let rank = heading.chars().take_while(|c| *c == '#').count();
    let ends = |line: &&str| {
        let marks = line.chars().take_while(|c| *c == '#').count();
        !(1..=rank).contains(&marks)
    };
    text.lines().skip_while(|line| *line != heading).skip(1).take_while(ends).collect()
}

/// The words between backticks of a text.
pub(crate) fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}
