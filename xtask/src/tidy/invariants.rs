//! Every invariant of ARCHITECTURE.md names the checks that hold it, and they exist.
//!
//! A check is a rule of tidy (`tidy arrows`), a test (`the_name_of_its_function`), a disallowed
//! path (`std::thread::spawn in tare-store`: the crate's clippy.toml) or a lint
//! (`forbid(unsafe_code)`).

use std::collections::BTreeSet;

use super::RULES;
use super::tree::{Tree, quoted, section};

const MARK: &str = "Checked by";

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let architecture = tree.text("ARCHITECTURE.md").unwrap_or_default();
    let tests = tests(tree);
    let mut found = Vec::new();
    for invariant in
        section(architecture, "## Invariants").join("\n").split("- **Invariant:**").skip(1)
    {
        let name: String = invariant.split_whitespace().take(6).collect::<Vec<_>>().join(" ");
        let Some((_, checks)) = invariant.split_once(MARK) else {
            found.push(format!("ARCHITECTURE.md: \"{name} ...\" names no check"));
            continue;
        };
        let checks = quoted(checks);
        if checks.is_empty() {
            found.push(format!("ARCHITECTURE.md: \"{name} ...\" names no check"));
        }
        for check in checks.into_iter().filter(|check| !exists(check, tree, &tests)) {
            found.push(format!("ARCHITECTURE.md: \"{name} ...\": there is no check `{check}`"));
        }
    }
    found
}

/// Names of all functions behind a `#[test]`, and of the functions that programs of tests list.
fn tests(tree: &Tree) -> BTreeSet<&str> {
    let mut found = BTreeSet::new();
    for (_, text) in tree.ending("rs") {
        for rest in text.split("#[test]").skip(1) {
            let after = rest.split("fn ").nth(1);
            found.extend(after.and_then(|after| after.split('(').next()));
        }
    }
    found
}

fn exists(check: &str, tree: &Tree, tests: &BTreeSet<&str>) -> bool {
    if let Some(rule) = check.strip_prefix("tidy ") {
        return RULES.iter().any(|(name, _)| *name == rule);
    }
    match check.split_once(" in ") {
        Some((path, package)) => {
            let file = |name: &str| tree.text(&format!("{}/{name}", Tree::folder(package)));
            let texts = [file("clippy.toml"), file("src/lib.rs")];
            texts.into_iter().flatten().any(|text| text.contains(path))
        }
        None => tests.contains(check),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(checked: &str) -> Vec<String> {
        let architecture =
            format!("## Invariants\n- **Invariant:** a holds.\n  {checked}\n## Next\n");
        check(&Tree::of(&[
            ("ARCHITECTURE.md", &architecture),
            (
                "crates/a/src/lib.rs",
                "#![forbid(unsafe_code)]\n#[test]\n#[cfg(x)]\nfn it_holds() {}",
            ),
            ("crates/a/clippy.toml", "path = \"std::thread::spawn\""),
        ]))
    }

    #[test]
    fn an_invariant_without_a_check_is_found() {
        assert_eq!(findings("").len(), 1);
        assert_eq!(findings("Checked by nobody.").len(), 1);
        assert_eq!(findings("Checked by `it_fails`, `tidy nothing`, `it_holds`.").len(), 2);
    }

    #[test]
    fn tests_rules_and_lints_are_checks() {
        let all = "Checked by `it_holds`, `tidy arrows`, `std::thread::spawn in a`, \
            `forbid(unsafe_code) in a`.";
        assert_eq!(findings(all), Vec::<String>::new());
    }
}
