//! Cargo, as a shell would start it.

use std::path::Path;
use std::process::Command;

/// The variables that `cargo run` gives to a program about the program's own package. Names that
/// end with `_` stand for all that begin with them.
const OF_PACKAGE: [&str; 4] =
    ["CARGO_BIN_NAME", "CARGO_CRATE_NAME", "CARGO_MANIFEST_", "CARGO_PKG_"];

/// Returns a command that starts cargo in a folder.
pub(crate) fn cargo(folder: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(folder);
    without_package(&mut cargo);
    cargo
}

/// Removes the variables of this package from a command's environment. Build scripts read them
/// (ring's does), so that cargo would compile all that depends on such a package again.
pub(crate) fn without_package(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        let is_of = |of: &&str| text == *of || (of.ends_with('_') && text.starts_with(*of));
        if OF_PACKAGE.iter().any(is_of) {
            command.env_remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cargo gives the variables to this test, too.
    #[test]
    fn cargo_is_started_without_the_variables_of_this_package() {
        let cargo = cargo(Path::new("."));
        let removed =
            |name: &str| cargo.get_envs().any(|(one, value)| one == name && value.is_none());
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        assert!(removed("CARGO_MANIFEST_DIR") && removed("CARGO_PKG_NAME"));
        assert!(!removed("PATH"));
    }
}
