//! The users who may log in, with argon2 hashes of their passwords, one per line of a file. The
//! check of a user who does not exist takes as long as that of any other.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::phc::PasswordHash;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};

/// Why the users cannot be read, or an entry cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("cannot read the users in {}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("line {line} of {} is not USER:HASH as `tare db password USER` makes it", .path.display())]
    Line { path: PathBuf, line: usize },
    #[error("user {user:?} appears twice in {}", .path.display())]
    Twice { path: PathBuf, user: String },
    #[error("{} names no user", .path.display())]
    Empty { path: PathBuf },
    #[error(
        "{user:?} cannot be the name of a user: it must not be empty or contain \":\", \"#\" or control characters"
    )]
    Name { user: String },
    #[error("the password is empty")]
    NoPassword,
    #[error("cannot hash the password: {reason}")]
    Hash { reason: argon2::password_hash::Error },
}

/// The users of a file, with their hashes in the PHC form.
#[derive(Debug)]
pub(crate) struct Users(BTreeMap<String, String>);

impl Users {
    /// Reads lines of `USER:HASH`. Skips empty lines and those that begin with `#`.
    pub(crate) fn read(path: &Path) -> Result<Self, AuthError> {
        let path = path.to_path_buf();
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(AuthError::Read { path, source }),
        };
        Self::parse(&text, path)
    }

    /// Parses lines of `USER:HASH`, which come from the file at `path`.
    pub(crate) fn parse(text: &str, path: PathBuf) -> Result<Self, AuthError> {
        let mut users = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line_text = line.trim();
            if line_text.is_empty() || line_text.starts_with('#') {
                continue;
            }
            let entry =
                line_text.split_once(':').filter(|(_, hash)| PasswordHash::new(hash).is_ok());
            let Some((user, hash)) = entry else {
                return Err(AuthError::Line { path, line: number });
            };
            if users.insert(user.to_string(), hash.to_string()).is_some() {
                return Err(AuthError::Twice { path, user: user.to_string() });
            }
        }
        if users.is_empty() {
            return Err(AuthError::Empty { path });
        }
        Ok(Self(users))
    }

    /// Whether the password is the user's. The check of a user who does not exist takes about as
    /// long.
    pub(crate) fn verify(&self, user: &str, password: &[u8]) -> bool {
        let there = self.0.get(user);
        let hash = there.or_else(|| self.0.values().next());
        let hash = hash.and_then(|hash| PasswordHash::new(hash).ok());
        let right =
            hash.is_some_and(|hash| Argon2::default().verify_password(password, &hash).is_ok());
        right && there.is_some()
    }
}

/// Makes the line of a user for the file.
pub fn entry(user: &str, password: &str) -> Result<String, AuthError> {
    entry_by(&Argon2::default(), user, password)
}

/// Makes the line of a user with a hash of one pass over 8 KiB. It protects no password: the
/// simulator checks many logins.
#[cfg(feature = "simulation")]
pub(crate) fn cheap_entry(user: &str, password: &str) -> Result<String, AuthError> {
    let params = argon2::Params::new(8, 1, 1, None).expect("these are the smallest parameters");
    let argon = Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
    entry_by(&argon, user, password)
}

fn entry_by(argon: &Argon2<'_>, user: &str, password: &str) -> Result<String, AuthError> {
    if user.is_empty() || user.contains([':', '#']) || user.contains(char::is_control) {
        return Err(AuthError::Name { user: user.into() });
    }
    if password.is_empty() {
        return Err(AuthError::NoPassword);
    }
    let hash = argon.hash_password(password.as_bytes());
    let hash: PasswordHash = hash.map_err(|reason| AuthError::Hash { reason })?;
    Ok(format!("{user}:{hash}"))
}
