//! Comments are at most [`COLUMNS_MAX`] columns wide. rustfmt holds this for code alone.

use super::REWRITTEN;
use super::tree::Tree;

const COLUMNS_MAX: usize = 100;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    within(tree, &REWRITTEN)
}

fn within(tree: &Tree, packages: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    let held = |path: &str| Tree::package_of(path).is_none_or(|name| packages.contains(&name));
    for (path, text) in tree.ending("rs").filter(|(path, _)| held(path)) {
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && line.trim_start().starts_with("//") {
                found.push(format!("{path}:{}: comment of {columns} columns", number + 1));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_comment_is_found() {
        let line = |columns: usize| format!("// {}\n", "µ".repeat(columns - 3));
        let (fits, wide) = (line(COLUMNS_MAX), line(COLUMNS_MAX + 1));
        let files = [
            ("crates/a/src/lib.rs", fits.as_str()),
            ("crates/a/src/wide.rs", wide.as_str()),
            ("crates/later/src/lib.rs", wide.as_str()),
        ];
        let found = within(&Tree::of(&files), &["a"]);
        assert_eq!(found, ["crates/a/src/wide.rs:1: comment of 101 columns"]);
    }
}
