//! A snapshot in a folder, in a format that people can read, compare and edit.
//!
//! * `host.toml`: format, version of Tare, kernel, date;
//! * `values.txt`: a line `PATH = VALUE` for each file of at most one line, `PATH -> TARGET` for
//!   each link, `PATH/` for each empty folder, sorted;
//! * files of several lines as files of their own, at `DIR/PATH`.
//!
//! Values that do not fit in a line as they are (control characters, a space at an end), and files
//! whose path cannot be used here, are written as JSON strings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Node, Snapshot};

/// The format that this version writes, and the newest that it reads.
const FORMAT: u32 = 1;

const ABOUT: &str = "host.toml";
const VALUES: &str = "values.txt";

/// Why a snapshot could not be saved or loaded.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("cannot write {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "{} has content but is not a recorded host; give an empty folder",
        .path.display()
    )]
    Occupied { path: PathBuf },
    #[error("{} is not a recorded host: it has no host.toml", .path.display())]
    NoHost { path: PathBuf },
    #[error("cannot parse {}", .path.display())]
    About { path: PathBuf, source: toml::de::Error },
    #[error(
        "{} has format {format}, but this version of tare reads up to {FORMAT}; use a newer one",
        .path.display()
    )]
    Newer { path: PathBuf, format: u32 },
    #[error("{}:{line}: cannot parse {text:?}: {reason}", .path.display())]
    Line { path: PathBuf, line: usize, text: String, reason: &'static str },
}

#[derive(Debug, Serialize, Deserialize)]
struct About {
    format: u32,
    tare: String,
    #[serde(default)]
    kernel: String,
    #[serde(default)]
    date: String,
}

impl Snapshot {
    /// Saves the snapshot without identifiers (`sanitised`) in a folder, which is created if
    /// needed. An existing recorded host is replaced.
    ///
    /// # Errors
    /// When the folder has other content or cannot be written.
    pub fn save(&self, folder: &Path) -> Result<(), SnapshotError> {
        clear(folder)?;
        fs::create_dir_all(folder)
            .map_err(|source| SnapshotError::Write { path: folder.into(), source })?;
        let clean = self.sanitised();
        let mut values = Vec::new();
        for (path, node) in clean.nodes() {
            let shown = quoted(path, path.contains(" =") || path.contains(" ->"));
            match node {
                Node::Directory => values.push(format!("{shown}/")),
                Node::Link(target) => values.push(format!("{shown} -> {}", quoted(target, false))),
                Node::File(text) if text.contains('\n') && is_own_path(path) => {
                    let place = folder.join(&path[1..]);
                    write_below(&place, &format!("{text}\n"))?;
                }
                Node::File(text) => values.push(format!("{shown} = {}", quoted(text, false))),
            }
        }
        values.push(String::new());
        write_below(&folder.join(VALUES), &values.join("\n"))?;
        let about = About {
            format: FORMAT,
            tare: env!("CARGO_PKG_VERSION").into(),
            kernel: clean.read("/proc/sys/kernel/osrelease").unwrap_or_default().into(),
            date: today(),
        };
        let about = format!(
            "format = {}\ntare = {}\nkernel = {}\ndate = {}\n",
            about.format,
            toml_text(&about.tare),
            toml_text(&about.kernel),
            toml_text(&about.date)
        );
        write_below(&folder.join(ABOUT), &about)
    }

    /// Loads a snapshot that `save` wrote.
    ///
    /// # Errors
    /// When the folder is not a recorded host, has a newer format, or is damaged.
    pub fn load(folder: &Path) -> Result<Self, SnapshotError> {
        let about_path = folder.join(ABOUT);
        let about = fs::read_to_string(&about_path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SnapshotError::NoHost { path: folder.into() },
            _ => SnapshotError::Read { path: about_path.clone(), source },
        })?;
        let about: About = toml::from_str(&about)
            .map_err(|source| SnapshotError::About { path: about_path.clone(), source })?;
        if about.format > FORMAT {
            return Err(SnapshotError::Newer { path: about_path, format: about.format });
        }
        let mut snapshot = Self::default();
        let values_path = folder.join(VALUES);
        let text = read(&values_path)?;
        for (number, line) in text.lines().enumerate() {
            let bad = |reason| SnapshotError::Line {
                path: values_path.clone(),
                line: number + 1,
                text: line.into(),
                reason,
            };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let (path, node) = parse(line).map_err(bad)?;
            snapshot.nodes.insert(path, node);
        }
        snapshot.load_files(folder, "")?;
        Ok(snapshot)
    }

    fn load_files(&mut self, folder: &Path, path: &str) -> Result<(), SnapshotError> {
        let place = folder.join(path.trim_start_matches('/'));
        let failed = |source| SnapshotError::Read { path: place.clone(), source };
        for entry in fs::read_dir(&place).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if path.is_empty() && !TOP.contains(&name.as_str()) {
                continue;
            }
            let below = format!("{path}/{name}");
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                self.load_files(folder, &below)?;
            } else if kind.is_file() {
                let mut text = read(&entry.path())?;
                if text.ends_with('\n') {
                    text.pop();
                }
                self.nodes.insert(below, Node::File(text));
            }
        }
        Ok(())
    }
}

/// The top-level folders of a host whose files a snapshot contains.
const TOP: &[&str] = &["proc", "sys", "etc", "run", "tare"];

/// Removes a recorded host and nothing else.
fn clear(folder: &Path) -> Result<(), SnapshotError> {
    let Ok(mut entries) = fs::read_dir(folder) else { return Ok(()) };
    if !folder.join(ABOUT).exists() {
        return match entries.next() {
            Some(_) => Err(SnapshotError::Occupied { path: folder.into() }),
            None => Ok(()),
        };
    }
    let removed = |path: PathBuf, result: io::Result<()>| match result {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(SnapshotError::Write { path, source })
        }
        _ => Ok(()),
    };
    for name in TOP {
        let path = folder.join(name);
        removed(path.clone(), fs::remove_dir_all(path))?;
    }
    let path = folder.join(VALUES);
    removed(path.clone(), fs::remove_file(path))
}

/// Whether a file can be stored at its own path in the folder: no part of the path leads elsewhere,
/// and the file system accepts it.
fn is_own_path(path: &str) -> bool {
    let mut parts = path.split('/').skip(1);
    let top = path.split('/').nth(1).is_some_and(|top| TOP.contains(&top));
    let plain = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && part.len() <= 200 && !part.contains('\0')
    };
    top && path.split('/').count() > 2 && parts.all(plain)
}

/// Returns the text unchanged if it fits in one line, otherwise as a JSON string.
fn quoted(text: &str, force: bool) -> String {
    let plain = !force
        && !text.starts_with('"')
        && text.trim() == text
        && !text.chars().any(char::is_control)
        && !text.contains(['\u{2028}', '\u{85}']);
    match plain {
        true => text.to_string(),
        false => serde_json::Value::from(text).to_string(),
    }
}

fn unquoted(text: &str) -> Result<String, &'static str> {
    match text.starts_with('"') {
        true => serde_json::from_str(text)
            .map_err(|_| "its quotes do not close, or an escape is unknown"),
        false => Ok(text.to_string()),
    }
}

fn parse(line: &str) -> Result<(String, Node), &'static str> {
    let (path, rest) = match line.starts_with('"') {
        true => {
            let mut quotes = serde_json::Deserializer::from_str(line).into_iter::<String>();
            let path = quotes
                .next()
                .and_then(Result::ok)
                .ok_or("its path has quotes that do not close")?;
            (path, &line[quotes.byte_offset()..])
        }
        false => {
            let ends = [" = ", " -> "].iter().filter_map(|mark| line.find(mark));
            // An empty file, saved by an editor that trims spaces at the end of a line.
            let end = ends.min().or_else(|| line.strip_suffix(" =").map(str::len));
            let end = end.or_else(|| line.strip_suffix('/').map(str::len));
            let end = end.ok_or("there is no `=`, no `->` and no `/` at its end")?;
            (line[..end].to_string(), &line[end..])
        }
    };
    if !path.starts_with('/') || path.ends_with('/') {
        return Err("its path is not absolute");
    }
    let node = if let Some(value) = rest.strip_prefix(" =") {
        Node::File(unquoted(value.strip_prefix(' ').unwrap_or(value))?)
    } else if let Some(target) = rest.strip_prefix(" -> ") {
        Node::Link(unquoted(target)?)
    } else if rest == "/" {
        Node::Directory
    } else {
        return Err("there is no `=`, no `->` and no `/` after its path");
    };
    Ok((path, node))
}

fn write_below(path: &Path, text: &str) -> Result<(), SnapshotError> {
    let failed = |source| SnapshotError::Write { path: path.into(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(path, text).map_err(failed)
}

fn read(path: &Path) -> Result<String, SnapshotError> {
    fs::read_to_string(path).map_err(|source| SnapshotError::Read { path: path.into(), source })
}

/// Returns the text as a basic string of TOML, which has the escapes of JSON.
fn toml_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Returns the current date in UTC, such as `2026-11-21`.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let days = i64::try_from(now.unwrap_or_default().as_secs() / 86_400).unwrap_or_default();
    date(days)
}

/// Returns the date of the Gregorian calendar that is `days` days after 1 January 1970.
fn date(days: i64) -> String {
    // Years start in March, so that the leap day comes last; 400 years have 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests;
