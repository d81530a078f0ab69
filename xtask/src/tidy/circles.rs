//! No circle of modules inside a crate.
//!
//! The children of one module are the nodes of a graph; an arrow leads from the child whose files
//! name a path (`crate::`, `super::`) to the child that the path leads into, re-exports followed.
//! Arrows between a module and its own parent do not count: a parent is the contract of its parts.
//! Code that tests alone have does not count either.

use std::collections::{BTreeMap, BTreeSet};

use super::source;
use super::tree::Tree;

/// A circle that stays for now: package, its modules, and the reason. At most four in the end.
type Exception = (&'static str, &'static [&'static str], &'static str);

const EXCEPTIONS: &[Exception] = &[];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    against(tree, EXCEPTIONS)
}

fn against(tree: &Tree, exceptions: &[Exception]) -> Vec<String> {
    let mut found = Vec::new();
    let mut met = vec![false; exceptions.len()];
    for package in tree.packages() {
        for circle in Modules::read(tree, package).circles() {
            let covers = |(name, modules, _): &Exception| {
                *name == package && circle.iter().all(|module| modules.contains(&module.as_str()))
            };
            match exceptions.iter().position(covers) {
                Some(at) => met[at] = true,
                None => found.push(format!("{package}: a circle of {}", circle.join(", "))),
            }
        }
    }
    let stale = exceptions.iter().zip(met).filter(|(_, met)| !met);
    found.extend(stale.map(|((package, modules, _), _)| {
        format!("{package}: no circle of {}; take it off the list", modules.join(", "))
    }));
    found
}

/// Path of a module from its crate's root; the root's is empty.
type Path = Vec<String>;

/// The modules of one crate with what each names.
#[derive(Default)]
struct Modules {
    /// Paths that a module's code names, and what it re-exports: the last name to the full path.
    modules: BTreeMap<Path, (Vec<Path>, BTreeMap<String, Path>)>,
}

impl Modules {
    fn read(tree: &Tree, package: &str) -> Modules {
        let root = format!("{}/src/", Tree::folder(package));
        let mut codes: BTreeMap<Path, String> = BTreeMap::new();
        for (path, text) in tree.ending("rs") {
            let Some(module) = path.strip_prefix(&root).and_then(module_of) else { continue };
            codes.insert(module, source::without_tests(&source::parse(text).code));
        }
        // A module of tests is declared behind `#[cfg(test)]`, which is left out of its parent's
        // code.
        let declared = |module: &Path| {
            let mut ancestors = (1..=module.len()).map(|length| &module[..length]);
            ancestors.all(|part| {
                let (name, parent) = part.split_last().expect("a part has a name");
                codes.get(parent).is_some_and(|code| source::has_word(code, &format!("mod {name}")))
            })
        };
        let kept: Vec<&Path> = codes.keys().filter(|module| declared(module)).collect();
        let mut modules = Modules::default();
        for module in kept {
            let named = paths(&codes[module], module);
            let exports = exports(&codes[module], module);
            modules.modules.insert(module.clone(), (named, exports));
        }
        modules
    }

    /// The module that a path leads into; re-exports are followed a few times.
    fn resolve(&self, path: &[String]) -> Path {
        let mut path = path.to_vec();
        for _ in 0..4 {
            let length = (0..=path.len()).rev().find(|n| self.modules.contains_key(&path[..*n]));
            let length = length.unwrap_or(0);
            let exports = self.modules.get(&path[..length]).map(|(_, exports)| exports);
            match exports.zip(path.get(length)).and_then(|(exports, name)| exports.get(name)) {
                Some(target) => path = target.clone(),
                None => return path[..length].to_vec(),
            }
        }
        path
    }

    /// Every circle among the children of one module, each as the paths of its modules.
    fn circles(&self) -> Vec<Vec<String>> {
        let mut graphs: BTreeMap<Path, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        for (from, (named, _)) in &self.modules {
            for path in named {
                let to = self.resolve(path);
                let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
                if let (Some(a), Some(b)) = (from.get(common), to.get(common)) {
                    let graph = graphs.entry(from[..common].to_vec()).or_default();
                    graph.entry(a.clone()).or_default().insert(b.clone());
                }
            }
        }
        let mut found = Vec::new();
        for (parent, graph) in graphs {
            let full = |name: &String| {
                parent.iter().chain([name]).map(String::as_str).collect::<Vec<_>>().join("::")
            };
            found.extend(components(&graph).iter().map(|part| part.iter().map(full).collect()));
        }
        found
    }
}

/// The module of a file below `src`; nothing for programs besides the crate's own.
fn module_of(file: &str) -> Option<Path> {
    let stem = file.strip_suffix(".rs")?;
    let mut path: Path = stem.split('/').map(String::from).collect();
    match path.last().map(String::as_str) {
        Some("mod") => drop(path.pop()),
        Some("lib" | "main") if path.len() == 1 => path.clear(),
        _ => {}
    }
    Some(path)
}

/// Full paths from the crate's root that a module's code names by `crate::` or `super::`.
fn paths(code: &str, module: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    for word in ["crate::", "super::"] {
        for (at, _) in code.match_indices(word) {
            let before = code[..at].chars().next_back().unwrap_or(' ');
            if before.is_alphanumeric() || matches!(before, '_' | ':' | '$') {
                continue;
            }
            let mut rest = &code[at..];
            let mut base = if word == "crate::" { Vec::new() } else { module.to_vec() };
            rest = rest.strip_prefix("crate::").unwrap_or(rest);
            while let Some(after) = rest.strip_prefix("super::") {
                base.pop();
                rest = after;
            }
            expand(rest, &base, &mut found);
        }
    }
    found
}

/// What a module re-exports: for each `pub use` the name that it gets and where it comes from.
fn exports(code: &str, module: &[String]) -> BTreeMap<String, Path> {
    let mut found = BTreeMap::new();
    for (at, _) in code.match_indices("use ") {
        let line = code[..at].rsplit(['\n', ';', '}']).next().unwrap_or_default().trim();
        if !line.starts_with("pub") {
            continue;
        }
        let rest = &code[at + 4..];
        let mut base = module.to_vec();
        let rest = match rest.strip_prefix("crate::") {
            Some(rest) => {
                base.clear();
                rest
            }
            None => rest.strip_prefix("self::").unwrap_or(rest),
        };
        let mut rest = rest;
        while let Some(after) = rest.strip_prefix("super::") {
            base.pop();
            rest = after;
        }
        let mut paths = Vec::new();
        expand(rest, &base, &mut paths);
        for path in paths.into_iter().filter(|path| path.len() > module.len() + 1) {
            found.extend(path.last().cloned().map(|name| (name, path)));
        }
    }
    found
}

/// Adds the paths of the use tree or path that the text begins with, each below `base`.
fn expand(text: &str, base: &[String], found: &mut Vec<Path>) {
    let text = text.trim_start();
    if let Some(inside) = text.strip_prefix('{') {
        let mut depth = 0;
        let mut begin = 0;
        for (at, character) in inside.char_indices() {
            match character {
                '{' => depth += 1,
                '}' if depth == 0 => return expand(&inside[begin..at], base, found),
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    expand(&inside[begin..at], base, found);
                    begin = at + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let mut path = base.to_vec();
    if end > 0 && &text[..end] != "self" {
        path.push(text[..end].to_string());
    }
    match text[end..].strip_prefix("::") {
        Some(rest) => expand(rest, &path, found),
        None if path.is_empty() => {}
        None => found.push(path),
    }
}

/// The nodes that a node's arrows lead to, at once or through others.
fn reached<'a>(
    graph: &'a BTreeMap<String, BTreeSet<String>>,
    from: &'a String,
) -> BTreeSet<&'a String> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        let targets = graph.get(at).into_iter().flatten();
        next.extend(targets.filter(|target| seen.insert(*target)));
    }
    seen
}

/// The sets of two nodes and more that all reach each other.
fn components(graph: &BTreeMap<String, BTreeSet<String>>) -> Vec<BTreeSet<String>> {
    let all: BTreeMap<&String, BTreeSet<&String>> =
        graph.keys().map(|node| (node, reached(graph, node))).collect();
    let mut found: BTreeSet<BTreeSet<String>> = BTreeSet::new();
    for (node, seen) in &all {
        let back = |other: &&&String| all.get(**other).is_some_and(|seen| seen.contains(*node));
        let part: BTreeSet<String> = seen.iter().filter(back).map(|n| (*n).clone()).collect();
        if part.len() > 1 {
            found.insert(part);
        }
    }
    found.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crate_of(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> = files.iter().map(|(p, _)| format!("crates/a/src/{p}")).collect();
        let texts = files.iter().map(|(_, text)| *text);
        let mut all: Vec<(&str, &str)> = paths.iter().map(String::as_str).zip(texts).collect();
        all.push(("crates/a/Cargo.toml", ""));
        against(&Tree::of(&all), &[])
    }

    #[test]
    fn a_circle_is_found_through_groups_and_reexports() {
        let found = crate_of(&[
            ("lib.rs", "mod one; mod two; mod three; mod zero; pub use three::Thing;"),
            ("one.rs", "use crate::{two::{self, f}, zero, other};"),
            ("zero.rs", "pub struct Leaf;"),
            ("two.rs", "fn f() { crate::Thing::new() }"),
            ("three/mod.rs", "mod part; pub struct Thing;"),
            ("three/part.rs", "use super::super::one::g; use super::Thing;"),
        ]);
        assert_eq!(found, ["a: a circle of one, three, two"]);
    }

    #[test]
    fn a_parent_and_tests_make_no_circle() {
        let found = crate_of(&[
            ("lib.rs", "mod one; mod two; #[cfg(test)] mod tests;"),
            ("one.rs", "use crate::two::f; // crate::tests"),
            (
                "two.rs",
                "#[cfg(test)] mod tests { use crate::one::g; } const A: &str = \"crate::one\";",
            ),
            ("tests.rs", "use crate::one::g;"),
        ]);
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn a_listed_circle_passes_until_it_is_gone() {
        let circle = [
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "mod one; mod two;"),
            ("crates/a/src/one.rs", "use crate::two::f;"),
            ("crates/a/src/two.rs", "use super::one::g;"),
        ];
        let listed: [Exception; 1] = [("a", &["one", "two"], "why")];
        assert_eq!(against(&Tree::of(&circle), &listed), Vec::<String>::new());
        assert_eq!(against(&Tree::of(&circle[..3]), &listed).len(), 1);
    }
}
