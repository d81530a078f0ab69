//! What crate READMEs, ARCHITECTURE.md and the guides name exists.
//!
//! - A path (`src/layer`, `docs/store.md`, `flags/quote.rs`) exists below the root or the crate, or
//!   a file of theirs ends so.
//! - A name (`record::Record`, `planner`) occurs in the code or in a string literal of the crate
//!   whose README or row it is in; in the other parts of ARCHITECTURE.md, of any crate.
//! - `cargo xtask CHORE` is a chore, `--bench NAME` a bench, `tare COMMAND` a command.

use std::collections::{BTreeMap, BTreeSet};

use super::source;
use super::tree::{Tree, quoted};

/// Names of the world outside, which no code of ours has to spell.
const FOREIGN: [&str; 5] = ["aws-lc-rs", "axum", "bpftrace", "procfs", "tiny_http"];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let crates = Crates::read(tree);
    let mut found = Vec::new();
    for name in tree.packages() {
        let file = format!("{}/README.md", Tree::folder(name));
        let text = tree.text(&file).unwrap_or_default();
        found.extend(missing(tree, &crates, text, Some(name)).map(|word| quote(&file, word)));
    }
    let architecture = tree.text("ARCHITECTURE.md").unwrap_or_default();
    for line in architecture.lines() {
        let row = quoted(line).first().copied().unwrap_or_default();
        // The chores are checked below.
        if row == "xtask" {
            continue;
        }
        let name = row.strip_prefix("crates/").unwrap_or(row);
        let name = Some(name).filter(|name| line.starts_with("| `") && crates.has(name));
        found.extend(missing(tree, &crates, line, name).map(|word| quote("ARCHITECTURE.md", word)));
    }
    for (file, text) in tree.ending("md") {
        let wrong = commands(tree, &crates, text);
        found.extend(wrong.into_iter().map(|word| quote(file, word)));
    }
    found
}

fn quote(file: &str, word: &str) -> String {
    format!("{file} names `{word}`, which does not exist")
}

/// The words of every crate's code.
struct Crates<'a> {
    words: BTreeMap<&'a str, BTreeSet<String>>,
    dependencies: BTreeSet<&'a str>,
}

impl<'a> Crates<'a> {
    fn read(tree: &'a Tree) -> Crates<'a> {
        let mut words: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (path, text) in tree.ending("rs") {
            let Some(package) = Tree::package_of(path) else { continue };
            let words = words.entry(package).or_default();
            let source = source::parse(text);
            split(&source.code, words);
            source.strings.iter().for_each(|(_, text)| split(text, words));
        }
        let manifest = tree.text("Cargo.toml").unwrap_or_default();
        let lock = tree.text("Cargo.lock").unwrap_or_default();
        let locked = lock.lines().filter_map(|line| line.strip_prefix("name = "));
        let locked = locked.map(|name| name.trim_matches('"'));
        let dependencies =
            manifest.lines().filter_map(|line| line.split_once(" = ")).map(|(n, _)| n);
        Crates { words, dependencies: dependencies.chain(locked).collect() }
    }

    fn has(&self, package: &str) -> bool {
        self.words.contains_key(package)
    }

    fn knows(&self, word: &str, package: Option<&str>) -> bool {
        match package.and_then(|package| self.words.get(package)) {
            Some(words) => words.contains(word),
            None => self.words.values().any(|words| words.contains(word)),
        }
    }
}

fn split(text: &str, words: &mut BTreeSet<String>) {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for word in text.split(|c: char| !part(c)).filter(|word| !word.is_empty()) {
        if !words.contains(word) {
            words.insert(word.to_string());
        }
    }
}

/// The quoted words of a text that name nothing.
fn missing<'t>(
    tree: &'t Tree,
    crates: &'t Crates<'_>,
    text: &'t str,
    package: Option<&'t str>,
) -> impl Iterator<Item = &'t str> {
    quoted(text).into_iter().filter(move |word| !known(tree, crates, word, package))
}

fn known(tree: &Tree, crates: &Crates<'_>, word: &str, package: Option<&str>) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':' | '/' | '.' | '-');
    let letter = word.starts_with(|c: char| c.is_ascii_alphabetic());
    let other = !letter || !word.chars().all(plain) || word.contains("...") || has_blank(word);
    if other || FOREIGN.contains(&word) || crates.dependencies.contains(word) {
        return true;
    }
    let folder = package.map(Tree::folder).unwrap_or_default();
    let below = |base: &str| tree.exists(&format!("{base}/{word}").replace("//", "/"));
    if tree.exists(word) || below(&folder) || below(&format!("{folder}/src")) {
        return true;
    }
    if word.contains('/') || word.ends_with(".md") || word.ends_with(".rs") {
        return tree.has_suffix(&folder, word);
    }
    let mut parts = word.split([':', '.', '-']).filter(|part| !part.is_empty());
    parts.all(|part| crates.has(part) || crates.knows(part, package))
        || crates.has(word)
        || tree.packages().contains(word)
}

/// Whether a name has a part to fill in, as `layer_cpu_PART_ns`.
fn has_blank(word: &str) -> bool {
    let capital = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
    word.contains(|c: char| c.is_ascii_lowercase()) && word.split(['_', '-', '.', '/']).any(capital)
}

/// Commands of the project in a text that name nothing.
fn commands<'t>(tree: &Tree, crates: &Crates<'_>, text: &'t str) -> Vec<&'t str> {
    let mut found = Vec::new();
    let word_after = |rest: &'t str| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '_' | '-'));
        &rest[..end.unwrap_or(rest.len())]
    };
    for (at, mark) in text.match_indices("cargo xtask ") {
        let chore = word_after(&text[at + mark.len()..]);
        if !chore.is_empty() && !is_chore(tree, chore) {
            found.push(chore);
        }
    }
    for row in text.lines().filter(|line| line.starts_with("| `xtask` | chores:")) {
        let chores = quoted(row).into_iter().skip(1).filter(|word| !word.starts_with('-'));
        found.extend(chores.filter(|chore| !is_chore(tree, chore)));
    }
    for (at, mark) in text.match_indices("--bench ") {
        let bench = word_after(&text[at + mark.len()..]);
        let file = |package: &&str| {
            let base = format!("{}/benches/{bench}", Tree::folder(package));
            tree.exists(&format!("{base}.rs")) || tree.exists(&base)
        };
        if !bench.is_empty() && !tree.packages().iter().any(file) {
            found.push(bench);
        }
    }
    for (at, mark) in text.match_indices("`tare ") {
        let command = word_after(&text[at + mark.len()..]);
        // The command line's type has a variant of that name.
        let parts = command.split('-').map(|part| match part.split_at_checked(1) {
            Some((first, rest)) => first.to_ascii_uppercase() + rest,
            None => String::new(),
        });
        let variant = parts.collect::<String>();
        let lower = command.starts_with(|c: char| c.is_ascii_lowercase());
        if lower && !crates.knows(&variant, Some("tare")) {
            found.push(command);
        }
    }
    found
}

/// Whether the program of the chores has an arm for it.
fn is_chore(tree: &Tree, chore: &str) -> bool {
    tree.text("xtask/src/main.rs").is_some_and(|text| text.contains(&format!("[\"{chore}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(readme: &str, architecture: &str) -> Vec<String> {
        check(&Tree::of(&[
            ("Cargo.toml", "serde = \"1\""),
            ("ARCHITECTURE.md", architecture),
            ("xtask/Cargo.toml", ""),
            ("xtask/src/main.rs", "match word { [\"ci\"] => {} }"),
            ("crates/a/Cargo.toml", ""),
            ("crates/a/README.md", readme),
            ("crates/a/benches/speed.rs", ""),
            ("crates/a/src/lib.rs", "mod study; // checker\npub fn run() {}"),
            ("crates/a/src/study.rs", "pub struct Study;"),
            ("crates/tare/src/cli.rs", "enum Command { Weigh, StartSystem }"),
        ]))
    }

    #[test]
    fn what_exists_passes() {
        let readme = "`study::Study`, `run`, `src/study.rs`, `serde`, `--flag`, `cargo xtask ci`,\n\
            `cargo bench -p a --bench speed`, `tare start-system`, `cpu_PART_ns`";
        assert_eq!(findings(readme, "| `crates/a` | `study` |\n`run`"), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_found() {
        assert_eq!(findings("`checker`", "").len(), 1, "a word in a comment is no module");
        assert_eq!(findings("`src/gone.rs`", "").len(), 1);
        assert_eq!(findings("", "| `xtask` | chores: `ci`, `main` |").len(), 1);
        assert_eq!(findings("`study::Gone`", "").len(), 1);
        assert_eq!(findings("cargo xtask bench", "").len(), 1);
        assert_eq!(findings("cargo bench --bench gone", "").len(), 1);
        assert_eq!(findings("`tare wiegh FILE`", "").len(), 1);
    }
}
