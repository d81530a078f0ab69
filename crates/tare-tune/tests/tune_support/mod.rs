//! A directory with the files of a host, and changes of its settings.
#![allow(dead_code, clippy::unwrap_used, reason = "test code, of which every binary uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_tune::plan::{Action, Change, Group, Identity, Item, Key, Requirement, ValueFormat};
use tare_tune::snapshot::{Node, Snapshot};
use tare_tune::{SettingError, SettingErrorClass, SettingStore};

/// A directory tree with the files of a host, which can inject write failures.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
    pub(crate) boot: String,
    /// The pause before each write.
    pub(crate) delay: Duration,
    /// Fails writes to paths that contain one of these.
    pub(crate) refused: Vec<(String, SettingErrorClass)>,
    /// Silently ignores writes to paths that contain one of these.
    pub(crate) ignored: Vec<String>,
    /// A write to the first also sets the second, like a driver that spreads its queues again.
    pub(crate) resets: Vec<(String, String, String)>,
    /// Makes `may_write` fail.
    pub(crate) read_only: bool,
    pub(crate) writes: usize,
}

impl Tree {
    pub(crate) fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("tare-tune-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(root.join("host")).unwrap();
        Self::at(&root)
    }

    /// Uses an existing tree.
    pub(crate) fn at(root: &Path) -> Self {
        Self {
            root: root.into(),
            boot: "boot-1".into(),
            delay: Duration::ZERO,
            refused: Vec::new(),
            ignored: Vec::new(),
            resets: Vec::new(),
            read_only: false,
            writes: 0,
        }
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.root.join("state")
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.root.join("host").join(path.trim_start_matches('/'))
    }

    pub(crate) fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, format!("{text}\n")).unwrap();
    }

    pub(crate) fn get(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_default().trim().to_string()
    }

    /// Returns every file of the host with its content.
    pub(crate) fn all(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut all = Vec::new();
        let mut folders = vec![self.root.join("host")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => folders.push(entry.path()),
                    false => all.push((entry.path(), fs::read(entry.path()).unwrap())),
                }
            }
        }
        all.sort();
        all
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.boot != "child" {
            self.remove();
        }
    }
}

fn file(key: &Key) -> Result<&str, SettingError> {
    match key {
        Key::File { path } => Ok(path),
        _ => Err(SettingError { class: SettingErrorClass::Absent, text: "no such device".into() }),
    }
}

impl SettingStore for Tree {
    fn read(&self, key: &Key) -> Result<String, SettingError> {
        if let Key::Ethtool { nic, setting } = key {
            let (file, name) = setting.pseudo();
            let text = self.get(&format!("/tare/ethtool/{nic}/{file}"));
            let lines = text.lines().filter_map(|line| line.split_once(' '));
            let mut values =
                lines.filter(|(of, _)| *of == name).map(|(_, value)| value.to_string());
            let none =
                SettingError { class: SettingErrorClass::Absent, text: "no such device".into() };
            return values.next().ok_or(none);
        }
        let path = file(key)?;
        fs::read_to_string(self.path(path)).map_err(|error| SettingError {
            class: SettingErrorClass::Absent,
            text: format!("cannot read {path}: {error}"),
        })
    }

    fn write(&mut self, key: &Key, value: &str) -> Result<(), SettingError> {
        std::thread::sleep(self.delay);
        self.writes += 1;
        if let Key::Ethtool { nic, setting } = key {
            let (file, name) = setting.pseudo();
            let path = format!("/tare/ethtool/{nic}/{file}");
            let lines: Vec<String> = self
                .get(&path)
                .lines()
                .map(|line| match line.split_once(' ') {
                    Some((of, _)) if of == name => format!("{name} {value}"),
                    _ => line.to_string(),
                })
                .collect();
            self.put(&path, &lines.join("\n"));
            self.remake_queues(nic, value.parse().unwrap());
            return Ok(());
        }
        let path = file(key)?;
        if let Some((_, class)) = self.refused.iter().find(|(part, _)| path.contains(part)) {
            return Err(SettingError {
                class: *class,
                text: format!("cannot write {path}: refused"),
            });
        }
        if !self.path(path).exists() {
            let text = format!("cannot write {path}: no such file");
            return Err(SettingError { class: SettingErrorClass::Absent, text });
        }
        if !self.ignored.iter().any(|part| path.contains(part)) {
            self.put(path, value);
        }
        for (_, other, value) in self.resets.iter().filter(|(of, _, _)| path.contains(of)) {
            self.put(other, value);
        }
        Ok(())
    }

    fn may_write(&self, key: &Key) -> Result<(), SettingError> {
        match self.read_only {
            false => Ok(()),
            true => Err(SettingError {
                class: SettingErrorClass::Permission,
                text: format!("{}: read-only file system", file(key)?),
            }),
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let host = self.root.join("host");
        for (path, bytes) in self.all() {
            let path = format!("/{}", path.strip_prefix(&host).unwrap().display());
            snapshot.insert(&path, Node::File(String::from_utf8_lossy(&bytes).into_owned()));
        }
        snapshot
    }

    fn boot_id(&self) -> String {
        if self.boot == "child" { "boot-1".into() } else { self.boot.clone() }
    }
}

impl Tree {
    /// Imitates a driver whose channels change: queues vanish and appear, and those that stay get
    /// defaults.
    pub(crate) fn remake_queues(&self, nic: &str, count: u32) {
        let queues = format!("/sys/class/net/{nic}/queues");
        for queue in 0..64 {
            let folder = self.path(&format!("{queues}/rx-{queue}"));
            match queue < count {
                true if !folder.exists() => self.put(&format!("{queues}/rx-{queue}/rps_cpus"), "0"),
                true => {}
                false => {
                    let _ = fs::remove_dir_all(folder);
                }
            }
            if queue < count {
                self.put(&format!("{queues}/tx-{queue}/xps_cpus"), "0");
            } else {
                let _ = fs::remove_dir_all(self.path(&format!("{queues}/tx-{queue}")));
            }
        }
    }
}

/// Returns a change of a file.
pub(crate) fn item(path: &str, form: ValueFormat, wanted: &str, requirement: Requirement) -> Item {
    with_key(Key::file(path), form, wanted, requirement)
}

pub(crate) fn with_key(
    key: Key,
    form: ValueFormat,
    wanted: &str,
    requirement: Requirement,
) -> Item {
    Item {
        knob: "test".into(),
        group: Group::Disk,
        subject: "host".into(),
        what: format!("{key:?}"),
        action: Action::Change(Change {
            key,
            form,
            now: String::new(),
            wanted: wanted.into(),
            requirement,
            identity: Identity::default(),
            stage: 1,
        }),
        why: String::new(),
        risk: String::new(),
        owner: None,
        survives_reboot: false,
    }
}

pub(crate) fn text(path: &str, wanted: &str) -> Item {
    item(path, ValueFormat::Text, wanted, Requirement::Wanted)
}
