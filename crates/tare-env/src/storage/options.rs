//! Parses and checks the options of a kind of storage.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use tare_lab::environment::EnvironmentSpec;
use tare_std::units::parse_bytes;

use super::{Kind, StorageError};

/// The options of one environment's storage. The kind has every option named here.
#[derive(Debug)]
pub(super) struct Options<'a> {
    environment: &'a str,
    runtime: &'a str,
    values: &'a [(String, String)],
}

impl<'a> Options<'a> {
    pub(super) fn new(
        spec: &'a EnvironmentSpec,
        kind: &Kind,
        values: &'a [(String, String)],
    ) -> Result<Self, StorageError> {
        let known = |name: &str| kind.options.iter().any(|(option, _)| *option == name);
        match values.iter().find(|(name, _)| !known(name)) {
            None => Ok(Self { environment: &spec.name, runtime: spec.runtime.as_str(), values }),
            Some((name, _)) => {
                let known: Vec<&str> = kind.options.iter().map(|(name, _)| *name).collect();
                Err(StorageError::Option {
                    environment: spec.name.clone(),
                    kind: kind.name,
                    name: name.clone(),
                    known: if known.is_empty() { "none".into() } else { known.join(", ") },
                })
            }
        }
    }

    /// Returns the text of an option, if the study sets it.
    pub(super) fn get(&self, name: &str) -> Option<&'a str> {
        self.values.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str())
    }

    /// Returns the runtime without its argument: `oci` for `oci:runc`.
    pub(super) fn runtime_family(&self) -> &'a str {
        self.runtime.split(':').next().unwrap_or_default()
    }

    /// Returns the block size of a thin pool in bytes, by default 64 KiB (thin-provisioning.rst).
    pub(super) fn thin_block(&self, name: &'static str) -> Result<u64, StorageError> {
        let unit = 64 << 10;
        let Some(text) = self.get(name) else { return Ok(unit) };
        let fits = |bytes: &u64| (unit..=1 << 30).contains(bytes) && bytes.is_multiple_of(unit);
        let bytes = parse_bytes(text).ok().filter(fits);
        bytes.ok_or_else(|| self.bad(name, "a multiple of 64K up to 1G"))
    }

    pub(super) fn bad(&self, name: &str, wanted: &'static str) -> StorageError {
        StorageError::Value {
            environment: self.environment.to_string(),
            name: name.to_string(),
            value: self.get(name).unwrap_or_default().to_string(),
            wanted,
        }
    }

    /// Returns a size in bytes, a whole number of MiB.
    pub(super) fn size(
        &self,
        name: &'static str,
        default: u64,
        least: u64,
        wanted: &'static str,
    ) -> Result<u64, StorageError> {
        let Some(text) = self.get(name) else { return Ok(default) };
        let bytes = parse_bytes(text).ok().filter(|bytes| *bytes >= least);
        let bytes = bytes.filter(|bytes| bytes.is_multiple_of(1 << 20));
        bytes.ok_or_else(|| self.bad(name, wanted))
    }

    /// Refuses an option that has no effect together with the others.
    pub(super) fn refuse(&self, name: &str, wanted: &'static str) -> Result<(), StorageError> {
        self.get(name).map_or(Ok(()), |_| Err(self.bad(name, wanted)))
    }

    /// Returns a whole number within limits, if the study sets it.
    pub(super) fn number(
        &self,
        name: &'static str,
        limits: RangeInclusive<u32>,
        wanted: &'static str,
    ) -> Result<Option<u32>, StorageError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| limits.contains(number));
        number.map(Some).ok_or_else(|| self.bad(name, wanted))
    }

    /// Returns an IP address, if the study sets it.
    pub(super) fn address(&self, name: &'static str) -> Result<Option<IpAddr>, StorageError> {
        let parse = |text: &str| text.parse().map_err(|_| self.bad(name, "an IP address"));
        self.get(name).map(parse).transpose()
    }

    /// Returns the index of a word in `words`, whose first is the default.
    pub(super) fn word(
        &self,
        name: &'static str,
        words: &[&'static str],
        wanted: &'static str,
    ) -> Result<usize, StorageError> {
        let Some(text) = self.get(name) else { return Ok(0) };
        words.iter().position(|word| *word == text).ok_or_else(|| self.bad(name, wanted))
    }

    /// Returns `true` for `yes`, the default, and `false` for `no`.
    pub(super) fn flag(&self, name: &'static str) -> Result<bool, StorageError> {
        match self.get(name) {
            None | Some("yes" | "true") => Ok(true),
            Some("no" | "false") => Ok(false),
            Some(_) => Err(self.bad(name, "yes or no")),
        }
    }

    /// Returns mount options, split at commas. Options that change the kind of mount are refused.
    pub(super) fn mount_options(&self) -> Result<Vec<String>, StorageError> {
        let text = self.get("options").unwrap_or_default();
        let words: Vec<String> = text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
            .map(Into::into)
            .collect();
        let other_mount = ["ro", "bind", "rbind", "move", "remount", "loop", "offset", "sizelimit"];
        let fine = |word: &String| {
            let name = word.split('=').next().unwrap_or_default();
            let plain = |c: char| c.is_ascii_alphanumeric() || "_-=.:".contains(c);
            !other_mount.contains(&name) && word.chars().all(plain)
        };
        match words.iter().all(fine) {
            true => Ok(words),
            false => Err(self.bad(
                "options",
                "mount options of the file system, separated by commas, such as \"nodatacow\"",
            )),
        }
    }

    /// Returns words for mkfs, split at spaces. None may be a path: mkfs would write to the file.
    pub(super) fn mkfs_words(&self) -> Result<Vec<String>, StorageError> {
        let words = self.get("mkfs").unwrap_or_default().split_whitespace();
        let words: Vec<String> = words.map(Into::into).collect();
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-=.,:^".contains(c);
        match words.iter().all(|word| word.chars().all(plain)) {
            true => Ok(words),
            false => Err(self.bad("mkfs", "options of mkfs without paths, such as \"-b 4096\"")),
        }
    }

    /// Returns an absolute path below /dev, or `None` for `loop`, the default.
    pub(super) fn device(&self) -> Result<Option<PathBuf>, StorageError> {
        match self.get("device") {
            None | Some("loop") => Ok(None),
            Some(path) if path.starts_with("/dev/") && !path.contains("..") => {
                Ok(Some(path.into()))
            }
            Some(_) => Err(self.bad("device", "loop or a device's path, such as /dev/nvme1n1")),
        }
    }
}
