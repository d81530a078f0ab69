//! The Rust version is the same wherever it is written.

use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let pinned = tree.text("rust-toolchain.toml").and_then(|text| text.split('"').nth(1));
    let manifest = tree.text("Cargo.toml").unwrap_or_default();
    let line = manifest.lines().find(|line| line.starts_with("rust-version"));
    let wanted = line.and_then(|line| line.split('"').nth(1));
    let (Some(pinned), Some(wanted)) = (pinned, wanted) else {
        return vec!["rust-toolchain.toml or Cargo.toml names no Rust version".to_string()];
    };
    let same =
        pinned == wanted || pinned.strip_prefix(wanted).is_some_and(|rest| rest.starts_with('.'));
    let finding = format!("rust-toolchain.toml pins {pinned}, Cargo.toml wants {wanted}");
    if same { Vec::new() } else { vec![finding] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_versions_are_found() {
        let tree = |pinned: &str| {
            let pinned = format!("channel = \"{pinned}\"");
            Tree::of(&[("rust-toolchain.toml", &pinned), ("Cargo.toml", "rust-version = \"1.95\"")])
        };
        assert_eq!(check(&tree("1.95.0")), Vec::<String>::new());
        assert_eq!(check(&tree("1.96.0")).len(), 1);
        assert_eq!(check(&tree("1.950")).len(), 1);
    }
}
