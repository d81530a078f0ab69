//! No Rust file is longer than [`LINES_MAX`].

use super::tree::Tree;

/// Longest source file. A file above it is split, not listed.
const LINES_MAX: usize = 1000;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let lines = tree.ending("rs").map(|(path, text)| (path, text.lines().count()));
    lines
        .filter(|(_, lines)| *lines > LINES_MAX)
        .map(|(path, lines)| format!("{path}: {lines} lines; split it (at most {LINES_MAX})"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_file_is_found() {
        let (longest, longer) = ("x\n".repeat(LINES_MAX), "x\n".repeat(LINES_MAX + 1));
        let found = check(&Tree::of(&[("a.rs", &longest), ("b.rs", &longer), ("c.md", &longer)]));
        assert_eq!(found, ["b.rs: 1001 lines; split it (at most 1000)"]);
    }
}
