//! Tare's own program on another host: copied once, by the hash of its contents.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use sha2::{Digest, Sha256};

use crate::error::RemoteError;
use crate::host::RemoteHost;

/// The directory of the copies on the other host.
const DIRECTORY: &str = "/var/tmp";
/// Stores standard input as the program `$1`. The rename makes the copy whole or absent.
const RECEIVE: &str = "part=$1.$$; umask 022; \
    cat > \"$part\" && chmod 755 \"$part\" && mv \"$part\" \"$1\" || { rm -f \"$part\"; exit 1; }";
/// The status of a shell whose program cannot be executed.
const CANNOT_EXECUTE: &str = "126";

impl RemoteHost {
    /// Copies a program to `/var/tmp/tare-HASH` on the host unless it is there, verifies the copy,
    /// and returns its path. The copy may stay for later runs.
    ///
    /// # Errors
    /// `Architecture` when the host's machine is another than that of this program; `Failed` when
    /// there is no space or the directory refuses programs; `Copy` when the file differs.
    pub fn install(&self, program: &Path) -> Result<String, RemoteError> {
        let ours = std::env::consts::ARCH;
        let theirs = self.basics()?.architecture;
        if theirs != ours {
            return Err(RemoteError::Architecture { host: self.name(), theirs, ours });
        }
        let unreadable = |source| RemoteError::Program { path: program.into(), source };
        let hash = hash(program).map_err(unreadable)?;
        let path = format!("{DIRECTORY}/tare-{}", &hash[..16]);
        let known = self.output("sha256sum", &[&path], io::empty()).unwrap_or_default();
        if !is_hash(&known, &hash) {
            let file = File::open(program).map_err(unreadable)?;
            let stored = self.output("sh", &["-c", RECEIVE, "sh", &path], file);
            stored.map_err(|error| self.not_stored(error, &path))?;
            let copied = self.output("sha256sum", &[&path], io::empty())?;
            if !is_hash(&copied, &hash) {
                return Err(RemoteError::Copy { host: self.name(), path });
            }
        }
        let started = self.output(&path, &["--version"], io::empty());
        started.map_err(|error| self.not_started(error))?;
        Ok(path)
    }

    fn not_stored(&self, error: RemoteError, path: &str) -> RemoteError {
        match error {
            RemoteError::Failed { stderr, .. } => {
                let why = last_line(&stderr);
                RemoteError::Store { host: self.name(), path: path.into(), why }
            }
            other => other,
        }
    }

    fn not_started(&self, error: RemoteError) -> RemoteError {
        match error {
            RemoteError::Failed { status, stderr, .. } if status.contains(CANNOT_EXECUTE) => {
                let why = last_line(&stderr);
                RemoteError::NoExec { host: self.name(), directory: DIRECTORY, why }
            }
            other => other,
        }
    }
}

/// Returns the reason at the end of what a shell printed.
fn last_line(stderr: &str) -> String {
    let line = stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    line.rsplit(": ").next().unwrap_or(line).to_string()
}

/// Returns the SHA-256 of a file in hexadecimal digits.
fn hash(program: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    hasher.update(fs::read(program)?);
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn is_hash(output: &[u8], hash: &str) -> bool {
    output.split(|byte| *byte == b' ').next() == Some(hash.as_bytes())
}
