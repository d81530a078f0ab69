//! Tare's own program on another host: copied once, by the hash of its contents. A pod whose image
//! has the program copies that, and nothing is sent.
//!
//! A host of another architecture gets the program for it, which is named `tare-ARCHITECTURE` (as
//! `uname -m` says it) and is beside this program, or in the directory `TARE_PROGRAMS`.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::error::RemoteError;
use crate::host::{HostBasics, RemoteHost};
use crate::placed::PlacedProgram;
use crate::program_copy::{DIRECTORY, VERSION, hash_of, path_of_copy};

/// Stores standard input as the program `$1`. The rename makes the copy whole or absent.
const RECEIVE: &str = "part=$1.$$; umask 022; \
    cat > \"$part\" && chmod 755 \"$part\" && mv \"$part\" \"$1\" || { rm -f \"$part\"; exit 1; }";
/// The status of a shell whose program cannot be executed.
const CANNOT_EXECUTE: &str = "126";
/// Machines by the name of `uname -m`, and their number in the header of a program (elf.h).
const MACHINES: [(&str, u16); 2] = [("x86_64", 62), ("aarch64", 183)];
/// Names the directory of the programs for other architectures.
const PROGRAMS_VARIABLE: &str = "TARE_PROGRAMS";

/// The program on another host.
#[derive(Clone, Debug)]
pub struct InstalledProgram {
    /// Its path there.
    pub path: String,
    /// What the host said of itself.
    pub basics: HostBasics,
}

impl RemoteHost {
    /// Copies this program, which is at `own`, to `/var/tmp/tare-HASH` on the host unless it is
    /// there, verifies the copy, and returns where it is. The copy may stay for later runs. A host
    /// of another architecture gets the program for that.
    ///
    /// # Errors
    /// `Architecture` when there is no program for the host; `OtherProgram` and `OtherVersion` when
    /// it is not the one for the host; `Store` when there is no space; `NoExec` when the directory
    /// refuses programs; `Copy` when the file differs; `Placed` and `OtherImage` when the image of
    /// a pod is not the one of this program.
    pub fn install(&self, own: &Path) -> Result<InstalledProgram, RemoteError> {
        if let Some(printed) = self.place_program().map_err(|error| self.not_placed(error))? {
            return self.placed(own, &printed);
        }
        let basics = self.basics()?;
        let other = self.other_program(own, &basics.architecture)?;
        let program = other.as_deref().unwrap_or(own);
        let unreadable = |source| RemoteError::Program { path: program.into(), source };
        let hash = hash(program).map_err(unreadable)?;
        let path = path_of_copy(&hash);
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
        let version = started.map_err(|error| self.not_started(error))?;
        let (found, ours) = (String::from_utf8_lossy(&version), format!("tare {VERSION}"));
        if other.is_some() && found.trim() != ours {
            let found = found.lines().next().unwrap_or("no program of Tare").to_string();
            return Err(RemoteError::OtherVersion { path: program.into(), found, ours });
        }
        Ok(InstalledProgram { path, basics })
    }

    /// Returns the program for the host's architecture; `None` if this one is.
    fn other_program(&self, own: &Path, theirs: &str) -> Result<Option<PathBuf>, RemoteError> {
        let ours = std::env::consts::ARCH;
        if theirs == ours {
            return Ok(None);
        }
        let named = std::env::var_os(PROGRAMS_VARIABLE).map(PathBuf::from);
        let directory = named.or_else(|| own.parent().map(Path::to_path_buf)).unwrap_or_default();
        // What a host says of itself is not part of a path before it was looked at.
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name: String = theirs.chars().filter(|c| plain(*c)).collect();
        let wanted = directory.join(format!("tare-{name}"));
        let (host, theirs, version) = (self.name(), theirs.to_string(), VERSION);
        match machine(&wanted) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(RemoteError::Architecture { host, theirs, ours, version, wanted })
            }
            Err(source) => Err(RemoteError::Program { path: wanted, source }),
            Ok(Some(other)) if other != theirs => {
                Err(RemoteError::OtherProgram { path: wanted, theirs, host })
            }
            Ok(_) => Ok(Some(wanted)),
        }
    }

    /// Reads where the program of a pod's image is, which has to be this one, or for another
    /// architecture one of this version.
    fn placed(&self, own: &Path, printed: &[u8]) -> Result<InstalledProgram, RemoteError> {
        let placed: PlacedProgram = serde_json::from_slice(printed).map_err(|error| {
            RemoteError::Placed { host: self.name(), why: format!("it printed no JSON: {error}") }
        })?;
        let PlacedProgram { path, hash: theirs, version, basics } = placed;
        let short = |hash: &str| hash.chars().take(16).collect::<String>();
        let host = self.name();
        if basics.architecture == std::env::consts::ARCH {
            let unreadable = |source| RemoteError::Program { path: own.into(), source };
            let ours = hash(own).map_err(unreadable)?;
            if theirs != ours {
                let theirs = format!("{version}, {}", short(&theirs));
                let ours = format!("{VERSION}, {}", short(&ours));
                return Err(RemoteError::OtherImage { host, theirs, ours });
            }
        } else if version != VERSION {
            return Err(RemoteError::OtherImage { host, theirs: version, ours: VERSION.into() });
        }
        Ok(InstalledProgram { path, basics })
    }

    fn not_placed(&self, error: RemoteError) -> RemoteError {
        match error {
            RemoteError::Failed { stderr, .. } => {
                let why = stderr.trim().trim_start_matches("tare: ").to_string();
                RemoteError::Placed { host: self.name(), why }
            }
            other => other,
        }
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

/// Returns the machine that a program is for; `None` for one without a header or of another
/// machine than those known.
fn machine(program: &Path) -> io::Result<Option<&'static str>> {
    let mut header = Vec::new();
    File::open(program)?.take(20).read_to_end(&mut header)?;
    let Some([0x7f, b'E', b'L', b'F', .., low, high]) = header.get(..20) else { return Ok(None) };
    let number = u16::from_le_bytes([*low, *high]);
    Ok(MACHINES.iter().find(|(_, known)| *known == number).map(|(name, _)| *name))
}

/// Returns the reason at the end of what a shell printed.
fn last_line(stderr: &str) -> String {
    let line = stderr.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    line.rsplit(": ").next().unwrap_or(line).to_string()
}

/// Returns the SHA-256 of a file in hexadecimal digits.
fn hash(program: &Path) -> io::Result<String> {
    fs::read(program).map(|bytes| hash_of(&bytes))
}

fn is_hash(output: &[u8], hash: &str) -> bool {
    output.split(|byte| *byte == b' ').next() == Some(hash.as_bytes())
}
