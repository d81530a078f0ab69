//! Shims: the programs between containerd and an OCI runtime.

use std::fs;
use std::path::{Path, PathBuf};

use crate::containerd::shim::PREFIX;
use crate::layer::rootfs::PATH;

/// The shims with a short name.
pub(super) const SHIMS: &[(&str, &str)] = &[
    ("runc", "io.containerd.runc.v2"),
    ("runsc", "io.containerd.runsc.v1"),
    ("kata", "io.containerd.kata.v2"),
];

/// Returns the name of a shim in containerd, by a study's word; `None` if there is no such shim.
pub(super) fn name(word: Option<&str>) -> Option<String> {
    let word = word.unwrap_or("runc");
    let known = SHIMS.iter().find(|(short, _)| *short == word).map(|(_, name)| *name);
    known.or_else(|| (word.split('.').count() >= 3).then_some(word)).map(String::from)
}

/// Returns the program of a shim: `containerd-shim-runc-v2` for `io.containerd.runc.v2`
/// (`BinaryName` in containerd's runtime/v2/shim/util.go).
pub(super) fn program(name: &str) -> String {
    let mut parts = name.rsplit('.');
    let (version, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    format!("{PREFIX}{name}-{version}")
}

/// Finds a program as the containerd with this pid does: on its PATH, or beside its own program.
pub(super) fn find(pid: u32, program: &str) -> Option<PathBuf> {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let path = environment.split('\0').find_map(|pair| pair.strip_prefix("PATH="));
    let beside = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let beside = beside.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let folders = path.unwrap_or(PATH).split(':').map(PathBuf::from).chain(beside);
    folders.map(|folder| folder.join(program)).find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shims_are_found_by_short_and_long_names() {
        for (word, found, file) in [
            (None, "io.containerd.runc.v2", "containerd-shim-runc-v2"),
            (Some("runc"), "io.containerd.runc.v2", "containerd-shim-runc-v2"),
            (Some("runsc"), "io.containerd.runsc.v1", "containerd-shim-runsc-v1"),
            (
                Some("io.containerd.kata-clh.v2"),
                "io.containerd.kata-clh.v2",
                "containerd-shim-kata-clh-v2",
            ),
        ] {
            assert_eq!(name(word).as_deref(), Some(found));
            assert_eq!(program(found), file);
        }
        assert_eq!(name(Some("crun")), None);
    }
}
