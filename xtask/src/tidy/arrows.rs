//! Crates depend on each other only as the table "Arrows" of ARCHITECTURE.md allows, and only the
//! simulator enables the feature `simulation`.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::{Tree, quoted, section};

const HEADING: &str = "## Arrows";
/// The crate that enables the feature, which costs time on the hot path.
const SIMULATOR: &str = "tare-sim";
const FEATURE: &str = "\"simulation\"";

/// What one crate may depend on: always, and in its tests and benches besides.
struct Allowed<'a> {
    always: BTreeSet<&'a str>,
    in_tests: BTreeSet<&'a str>,
}

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let table = allowed(tree.text("ARCHITECTURE.md").unwrap_or_default());
    let packages = tree.packages();
    let mut found = circles(&table);
    for name in &packages {
        let Some(row) = table.get(name) else {
            found.push(format!("ARCHITECTURE.md, Arrows: no row for `{name}`"));
            continue;
        };
        let manifest = tree.text(&format!("{}/Cargo.toml", Tree::folder(name)));
        let manifest = manifest.unwrap_or_default();
        if *name != SIMULATOR && manifest.contains(FEATURE) {
            found.push(format!("{name} enables the feature {FEATURE}"));
        }
        for (in_tests, other) in dependencies(manifest, &packages) {
            let ok = row.always.contains(other) || (in_tests && row.in_tests.contains(other));
            if !ok {
                let how = if in_tests { "depends in tests on" } else { "depends on" };
                found.push(format!("{name} {how} {other}, which ARCHITECTURE.md does not allow"));
            }
        }
    }
    let named = table.values().flat_map(|row| row.always.union(&row.in_tests));
    for name in table.keys().chain(named).collect::<BTreeSet<_>>() {
        if !packages.contains(name) {
            found.push(format!("ARCHITECTURE.md, Arrows: `{name}` does not exist"));
        }
    }
    found
}

/// The rows of the table by crate.
fn allowed(architecture: &str) -> BTreeMap<&str, Allowed<'_>> {
    let mut table = BTreeMap::new();
    for line in section(architecture, HEADING).into_iter().filter(|line| line.starts_with("| `")) {
        let mut cells = line.split('|').skip(1).map(quoted);
        let name = cells.next().and_then(|cell| cell.first().copied()).unwrap_or_default();
        let mut set = || cells.next().unwrap_or_default().into_iter().collect();
        table.insert(name, Allowed { always: set(), in_tests: set() });
    }
    table
}

/// The crates of the workspace that a manifest names, each with whether tests alone need it.
fn dependencies<'a>(manifest: &'a str, packages: &BTreeSet<&str>) -> Vec<(bool, &'a str)> {
    let mut found = Vec::new();
    let mut in_tests = None;
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_tests = match line {
                "[dependencies]" | "[build-dependencies]" => Some(false),
                "[dev-dependencies]" => Some(true),
                _ => None,
            };
        } else if let Some(in_tests) = in_tests {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if packages.contains(name) {
                found.push((in_tests, name));
            }
        }
    }
    found
}

/// A finding for each crate that the table lets depend on itself through others.
fn circles(table: &BTreeMap<&str, Allowed<'_>>) -> Vec<String> {
    let mut found = Vec::new();
    for name in table.keys() {
        let mut seen = BTreeSet::new();
        let mut next = vec![*name];
        while let Some(at) = next.pop() {
            let targets = table.get(at).into_iter().flat_map(|row| &row.always);
            next.extend(targets.filter(|other| seen.insert(**other)));
        }
        if seen.contains(name) {
            found.push(format!("ARCHITECTURE.md, Arrows: `{name}` may depend on itself"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "## Arrows\n| crate | may depend on | in tests also |\n|---|---|---|\n\
        | `a` | `b` | `c` |\n| `b` | | |\n| `c` | | |\n## Next\n| `d` | | |\n";

    fn findings(architecture: &str, a: &str) -> Vec<String> {
        check(&Tree::of(&[
            ("ARCHITECTURE.md", architecture),
            ("crates/a/Cargo.toml", a),
            ("crates/b/Cargo.toml", "[dependencies]\nserde.workspace = true\n"),
            ("crates/c/Cargo.toml", ""),
        ]))
    }

    #[test]
    fn feature_of_the_simulator_is_found() {
        let manifest = "[dependencies]\nb = { workspace = true, features = [\"simulation\"] }\n";
        assert_eq!(findings(TABLE, manifest), ["a enables the feature \"simulation\""]);
    }

    #[test]
    fn an_arrow_outside_the_table_is_found() {
        let good = "[dependencies]\nb.workspace = true\n[dev-dependencies]\nc = { path = \"\" }\n";
        assert_eq!(findings(TABLE, good), Vec::<String>::new());
        let found = findings(TABLE, "[dependencies]\nc.workspace = true\n");
        assert_eq!(found, ["a depends on c, which ARCHITECTURE.md does not allow"]);
    }

    #[test]
    fn missing_unknown_and_circular_rows_are_found() {
        assert_eq!(findings(&TABLE.replace("| `c` | | |\n", ""), "").len(), 1);
        assert_eq!(findings(&TABLE.replace("| `b` |", "| `b` | `gone` |"), "").len(), 1);
        let circle = TABLE.replace("| `b` |", "| `b` | `a`, `c` |");
        assert_eq!(findings(&circle, "").len(), 2);
    }
}
