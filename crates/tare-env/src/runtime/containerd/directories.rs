//! The directories of containerd: in each it keeps one for every namespace, which it does not
//! remove with the namespace.

use std::fs;
use std::path::{Path, PathBuf};

use toml::Table;

/// The names of the directories in its configuration, of the flags, and the defaults
/// (defaults/defaults_unix.go of containerd).
const DIRECTORIES: [(&str, &str); 2] =
    [("root", "/var/lib/containerd"), ("state", "/run/containerd")];

/// The default path of the configuration.
const CONFIGURATION: &str = "/etc/containerd/config.toml";

/// The directory of the containers of all namespaces, below both directories (the plug-in
/// `io.containerd.runtime.v2` with the name `task`).
const TASKS: &str = "io.containerd.runtime.v2.task";

/// The directories of a containerd for persistent and for temporary data.
pub(super) struct Directories(Vec<PathBuf>);

impl Directories {
    /// Returns those of a running containerd, by its command line and its configuration.
    pub(super) fn of(pid: u32) -> Self {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        let words: Vec<&str> = line.split('\0').collect();
        let path = flag(&words, "config").or_else(|| flag(&words, "c"));
        let text = fs::read_to_string(path.unwrap_or(CONFIGURATION)).unwrap_or_default();
        Self::from_text(&words, &text)
    }

    fn from_text(words: &[&str], configuration: &str) -> Self {
        let table: Table = configuration.parse().unwrap_or_default();
        let one = |(name, usual): (&str, &str)| {
            let configured = table.get(name).and_then(toml::Value::as_str);
            PathBuf::from(flag(words, name).or(configured).unwrap_or(usual))
        };
        Self(DIRECTORIES.map(one).into())
    }

    /// Returns the directories that containerd makes for a namespace.
    pub(super) fn of_namespace(&self, name: &str) -> Vec<PathBuf> {
        self.0.iter().map(|folder| folder.join(Path::new(TASKS)).join(name)).collect()
    }
}

/// Returns the value of a flag: `--root X`, `-root=X`.
fn flag<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().enumerate().skip(1).find_map(|(index, word)| {
        let rest = word.strip_prefix('-')?.trim_start_matches('-').strip_prefix(name)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => words.get(index + 1).copied(),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_of_flags_then_configuration_then_defaults() {
        let check = |words: &[&str], text: &str, expect: [&str; 2]| {
            let found = Directories::from_text(words, text).of_namespace("tare-ab12");
            let expect = expect.map(|folder| Path::new(folder).join(TASKS).join("tare-ab12"));
            assert_eq!(found, expect, "{words:?} {text}");
        };
        check(&["containerd"], "", ["/var/lib/containerd", "/run/containerd"]);
        check(&["containerd"], "version = 2\nroot = \"/r\"\n", ["/r", "/run/containerd"]);
        check(&["containerd", "--state", "/s", "--root=/q"], "root = \"/r\"", ["/q", "/s"]);
        check(&["containerd", "-c", "x"], "broken", ["/var/lib/containerd", "/run/containerd"]);
    }
}
