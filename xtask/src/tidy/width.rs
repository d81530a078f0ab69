//! Comments are at most [`COLUMNS_MAX`] columns wide. rustfmt holds this for code alone.
//!
//! Rows of tables and lines that are one address are exempt: neither can be broken.

use super::tree::Tree;

const COLUMNS_MAX: usize = 100;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.ending("rs") {
        for (number, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX && breakable_comment(line) {
                found.push(format!("{path}:{}: comment of {columns} columns", number + 1));
            }
        }
    }
    found
}

fn breakable_comment(line: &str) -> bool {
    let Some(comment) = line.trim_start().strip_prefix("//") else { return false };
    let prose = comment.trim_start_matches(['/', '!']).trim();
    let is_address = prose.starts_with('<') && prose.ends_with('>');
    !prose.starts_with('|') && !is_address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wide_comment_is_found() {
        let line = |columns: usize| format!("// {}\n", "µ".repeat(columns - 3));
        let (fits, wide) = (line(COLUMNS_MAX), line(COLUMNS_MAX + 1));
        let exempt = format!("//! | {} |\n/// <https://{}>\n", "a".repeat(100), "b".repeat(100));
        let files = [
            ("crates/a/src/lib.rs", fits.as_str()),
            ("crates/a/src/exempt.rs", exempt.as_str()),
            ("crates/a/src/wide.rs", wide.as_str()),
        ];
        let found = check(&Tree::of(&files));
        assert_eq!(found, ["crates/a/src/wide.rs:1: comment of 101 columns"]);
    }
}
