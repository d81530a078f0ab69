//! CHANGELOG.md has the headings of Keep a Changelog and `Comparability`, and no others.

use super::tree::Tree;

const HEADINGS: [&str; 7] =
    ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Comparability"];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let text = tree.text("CHANGELOG.md").unwrap_or_default();
    let headings = text.lines().filter_map(|line| line.strip_prefix("### "));
    headings
        .filter(|heading| !HEADINGS.contains(heading))
        .map(|heading| format!("CHANGELOG.md: the heading {heading:?} is not one of {HEADINGS:?}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_heading_is_found() {
        let found = check(&Tree::of(&[("CHANGELOG.md", "## 1.0\n### Added\n### Improved\n")]));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("\"Improved\""), "{found:?}");
    }
}
