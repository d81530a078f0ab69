//! A test is skipped through `tare_testkit::skip` alone, so that `cargo xtask ci` counts every skip
//! and knows its reason. A bench may print by itself that it does nothing.

use super::source;
use super::tree::Tree;

const MARK: &str = "skipped: ";

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.ending("rs") {
        let is_checked = Tree::package_of(path).is_some_and(|name| name != "tare-testkit");
        let is_xtask = path.starts_with("xtask/src/");
        if !is_checked || is_xtask || path.contains("/benches/") || !text.contains(MARK) {
            continue;
        }
        for (line, literal) in source::parse(text).strings {
            if literal.starts_with(MARK) {
                found.push(format!("{path}:{line}: skip through tare_testkit::skip"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_of_its_own_is_found() {
        let print = "eprintln!(\"skipped: {test}: needs root\"); // \"skipped: \"";
        let found = check(&Tree::of(&[
            ("crates/a/tests/it.rs", print),
            ("crates/a/benches/it.rs", print),
            ("crates/tare-testkit/src/skip.rs", print),
            ("crates/b/tests/it.rs", "assert!(text.contains(\"was skipped: x\"));"),
        ]));
        assert_eq!(found, ["crates/a/tests/it.rs:1: skip through tare_testkit::skip"]);
    }
}
