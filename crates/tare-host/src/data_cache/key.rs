//! What loaded data depends on, as names and values.

use std::fmt;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Digits of a digest that a key or a name has: 64 bits.
const DIGITS: usize = 16;

/// Everything that loaded data depends on. Data with the same key is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DataKey(Vec<(String, String)>);

impl DataKey {
    /// Adds a name with its value.
    pub fn add(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.push((name.into(), value.into()));
    }

    /// Returns the names and values in the order of their addition.
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// Returns the first value of a name.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Returns the name of the entry with this key.
    pub fn id(&self) -> String {
        let mut hash = Sha256::new();
        for text in self.0.iter().flat_map(|(name, value)| [name, value]) {
            // With its length, no two keys are the same text.
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        }
        let digest = digest_of(&hash.finalize());
        digest.trim_start_matches(PREFIX).to_string()
    }
}

impl fmt::Display for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pairs = self.0.iter().map(|(name, value)| format!("{name} {value}"));
        f.write_str(&pairs.collect::<Vec<_>>().join(", "))
    }
}

/// Returns whether a file name is that of an entry.
pub(super) fn is_id(name: &str) -> bool {
    name.len() == DIGITS && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Returns the digest of a text that is too long for a key.
pub fn text_digest(text: &str) -> String {
    digest_of(&Sha256::digest(text.as_bytes()))
}

/// Returns the digest of a file's content, for a key.
///
/// # Errors
/// If the file cannot be read.
pub fn file_digest(path: &Path) -> io::Result<String> {
    let (mut file, mut hash) = (File::open(path)?, Sha256::new());
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(digest_of(&hash.finalize())),
            count => hash.update(&block[..count]),
        }
    }
}

const PREFIX: &str = "sha256 ";

fn digest_of(bytes: &[u8]) -> String {
    bytes.iter().take(DIGITS / 2).fold(PREFIX.to_string(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(pairs: &[(&str, &str)]) -> DataKey {
        let mut key = DataKey::default();
        pairs.iter().for_each(|(name, value)| key.add(*name, *value));
        key
    }

    #[test]
    fn id_depends_on_every_name_and_value() {
        let first = key(&[("system", "redis"), ("rows", "20")]);
        assert!(is_id(&first.id()), "{}", first.id());
        assert_eq!(first.id(), key(&[("system", "redis"), ("rows", "20")]).id());
        for other in [
            key(&[("system", "redis"), ("rows", "21")]),
            key(&[("system", "redis"), ("row", "s20")]),
            key(&[("system", "redisrows"), ("", "20")]),
            key(&[("system", "redis")]),
        ] {
            assert_ne!(first.id(), other.id(), "{other}");
        }
        assert_eq!(first.to_string(), "system redis, rows 20");
        assert_eq!((first.value("rows"), first.value("seed")), (Some("20"), None));
    }

    #[test]
    fn file_digest_is_that_of_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        std::fs::write(&path, "abc").unwrap();
        // The example of FIPS 180-2, B.1.
        assert_eq!(file_digest(&path).unwrap(), "sha256 ba7816bf8f01cfea");
        assert_eq!(text_digest("abc"), "sha256 ba7816bf8f01cfea");
        assert!(file_digest(&folder.path().join("none")).is_err());
    }
}
