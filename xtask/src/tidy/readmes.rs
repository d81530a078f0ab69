//! Each crate has a row in ARCHITECTURE.md and a README of at most [`LINES_MAX`] lines.

use super::tree::{Tree, quoted};

const LINES_MAX: usize = 20;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let architecture = tree.text("ARCHITECTURE.md").unwrap_or_default();
    let mut found = Vec::new();
    for name in tree.packages().into_iter().filter(|name| *name != "xtask") {
        let readme = format!("crates/{name}/README.md");
        match tree.text(&readme) {
            Some(text) if text.lines().count() > LINES_MAX => {
                found.push(format!("{readme}: more than {LINES_MAX} lines"));
            }
            Some(_) => {}
            None => found.push(format!("{readme}: missing")),
        }
        if !architecture.contains(&format!("`crates/{name}`")) {
            found.push(format!("ARCHITECTURE.md does not name `crates/{name}`"));
        }
    }
    for word in quoted(architecture).into_iter().filter_map(|word| word.strip_prefix("crates/")) {
        let name = word.split('/').next().unwrap_or(word);
        if !tree.packages().contains(name) {
            found.push(format!("ARCHITECTURE.md names `crates/{name}`, which does not exist"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_rows_and_readmes_are_found() {
        let long = "x\n".repeat(LINES_MAX + 1);
        let found = check(&Tree::of(&[
            ("ARCHITECTURE.md", "| `crates/a` | `crates/b` | `crates/gone` |"),
            ("crates/a/Cargo.toml", ""),
            ("crates/a/README.md", "A."),
            ("crates/b/Cargo.toml", ""),
            ("crates/b/README.md", &long),
            ("crates/c/Cargo.toml", ""),
        ]));
        let wanted =
            ["crates/b/README.md: more", "crates/c/README.md: missing", "`crates/c`", "gone"];
        assert_eq!(found.len(), wanted.len(), "{found:?}");
        assert!(
            found.iter().zip(wanted).all(|(found, wanted)| found.contains(wanted)),
            "{found:?}"
        );
    }
}
