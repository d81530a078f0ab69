//! Reads the files of a unit of systemd, as `systemctl cat` shows them. Systemd need not run.
//!
//! Source: man 5 systemd.unit, "Unit File Load Path": of two files of the same name, that in the
//! earlier directory counts; drop-ins are read in the order of their names.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use tare_tune::flags::unit_file::{DROP_IN, Unit, UnitFile, drop_in_path};

use crate::exit::{Exit, ExitWith};

/// Directories of the system's units, the first one counts most.
const DIRECTORIES: [&str; 11] = [
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "run/systemd/generator.early",
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
];

/// Reads a unit below a root directory.
pub(super) fn read(root: &Path, name: &str) -> anyhow::Result<Unit> {
    let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let refuse = |text: String| Err(anyhow!(text)).exit_with(Exit::Input);
    if !name.ends_with(".service") || name.starts_with('.') || !name.chars().all(plain) {
        return refuse(format!(
            "{name:?} is not the whole name of a service; write unit:NAME.service"
        ));
    }
    let names = [Some(name.to_string()), template(name)];
    let found = names.iter().flatten().find_map(|name| {
        let paths = DIRECTORIES.iter().map(|directory| root.join(directory).join(name));
        paths.into_iter().find(|path| path.exists())
    });
    let Some(path) = found else {
        return refuse(format!(
            "this host has no unit {name}; systemctl list-unit-files --type service lists them"
        ));
    };
    if path.canonicalize().is_ok_and(|path| path == Path::new("/dev/null")) {
        return refuse(format!(
            "the unit {name} is masked; systemctl unmask {name} makes it usable"
        ));
    }
    let mut files = vec![file(&path)?];
    for path in drop_ins(root, &names) {
        files.push(file(&path)?);
    }
    Ok(Unit { name: name.into(), files, drop_in: own_drop_in(root, name)? })
}

/// Takes a unit from a file of the user, with the drop-in that this host has for it.
pub(super) fn of_file(root: &Path, path: &Path, text: &str) -> anyhow::Result<Unit> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if !name.ends_with(".service") {
        return Err(anyhow!(
            "cannot tell the unit of {}: its file is named NAME.service",
            path.display()
        ))
        .exit_with(Exit::Input);
    }
    if !text.lines().any(|line| line.trim() == "[Service]") {
        return Err(anyhow!("{} has no section [Service]", path.display())).exit_with(Exit::Input);
    }
    let own = UnitFile { path: path.display().to_string(), text: text.into() };
    Ok(Unit { drop_in: own_drop_in(root, &name)?, files: vec![own], name })
}

fn own_drop_in(root: &Path, name: &str) -> anyhow::Result<Option<String>> {
    let path = root.join(drop_in_path(name).trim_start_matches('/'));
    match fs::read_to_string(&path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error)
            .with_context(|| format!("cannot read {}", path.display()))
            .exit_with(Exit::Input),
    }
}

/// Returns the template of an instance: `redis@.service` of `redis@1.service`.
fn template(name: &str) -> Option<String> {
    let (start, rest) = name.split_once('@')?;
    let (_, end) = rest.rsplit_once('.')?;
    Some(format!("{start}@.{end}"))
}

/// Returns the drop-ins of a unit in the order in which they are read, without that of Tare.
fn drop_ins(root: &Path, names: &[Option<String>]) -> Vec<PathBuf> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    let own = names.iter().flatten().map(String::as_str);
    for unit in own.chain(["service"]) {
        for directory in DIRECTORIES {
            let folder = root.join(directory).join(format!("{unit}.d"));
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(".conf") && name != DROP_IN {
                    found.entry(name).or_insert(entry.path());
                }
            }
        }
    }
    found.into_values().collect()
}

fn file(path: &Path) -> anyhow::Result<UnitFile> {
    let text = fs::read_to_string(path);
    let text = text.with_context(|| format!("cannot read {}", path.display()));
    Ok(UnitFile { path: path.display().to_string(), text: text.exit_with(Exit::Input)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_unit_are_read_in_systemds_order() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("usr/lib/systemd/system/db@.service", "vendor");
        write("etc/systemd/system/db@.service", "own");
        write("usr/lib/systemd/system/db@.service.d/b.conf", "b of the template");
        write("etc/systemd/system/db@1.service.d/a.conf", "a");
        write("etc/systemd/system/db@1.service.d/tare.conf", "tare");
        write("usr/lib/systemd/system/db@1.service.d/a.conf", "hidden");
        let unit = read(root.path(), "db@1.service").unwrap();
        let texts: Vec<&str> = unit.files.iter().map(|file| file.text.as_str()).collect();
        assert_eq!(texts, ["own", "a", "b of the template"]);
        assert_eq!(unit.drop_in.as_deref(), Some("tare"));
        let refused = |name: &str, reason: &str| {
            let error = read(root.path(), name).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        };
        refused("redis.service", "has no unit redis.service");
        refused("db@1", "not the whole name");
        refused("../x.service", "not the whole name");
        std::os::unix::fs::symlink("/dev/null", root.path().join("etc/systemd/system/x.service"))
            .unwrap();
        refused("x.service", "is masked");
    }
}
