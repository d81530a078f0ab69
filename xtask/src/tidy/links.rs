//! Relative links in Markdown lead to files that exist.

use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in tree.ending("md") {
        let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            let path = target.split('#').next().unwrap_or_default();
            let elsewhere = path.is_empty() || path.contains("://") || path.contains(' ');
            if !elsewhere && !tree.exists(&resolve(folder, path)) {
                found.push(format!("{file}: the link to {target} leads nowhere"));
            }
        }
    }
    found
}

/// A path relative to a folder, without `.` and `..`.
fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_is_found() {
        let text = "[a](../b.md#part) [c](c/) [d](d.md) [e](https://example.org)";
        let found = check(&Tree::of(&[("docs/a.md", text), ("b.md", ""), ("docs/c/x.md", "")]));
        assert_eq!(found, ["docs/a.md: the link to d.md leads nowhere"]);
    }
}
