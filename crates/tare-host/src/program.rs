//! Finds a program of the host with every file that it needs, so that an environment with its own
//! file system can provide them at the same paths.
//!
//! Method: the ELF header names the dynamic loader, and `LOADER --list PROGRAM` lists the
//! libraries, like ldd does, so that the loader's search rules are not repeated here. A static
//! program needs no other file.
//!
//! Limits: only 64-bit ELF of this machine. The caller must name files that the program opens while
//! it runs (`dlopen`, configuration).

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::exec::{self, Command, ExecError};

/// The loader's cache of libraries outside of the default directories (ld.so(8)).
const LOADER_CACHE: &str = "/etc/ld.so.cache";

/// The type of the program header that names the loader (`PT_INTERP`, elf(5)).
const INTERPRETER: u32 = 3;

/// A program with the files and whole directories that it needs, as sorted absolute paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    /// Includes the program itself.
    pub files: Vec<PathBuf>,
}

/// Why a program cannot be provided in an environment.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("there is no program {name} on this host; install it (apt-get install {name})")]
    NotInstalled { name: String },
    #[error("cannot read {}", .path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} is not a 64-bit ELF program; name the program, not a script that starts it", .path.display())]
    Form { path: PathBuf },
    #[error("cannot query the loader of {} for its libraries", .path.display())]
    Loader { path: PathBuf, source: ExecError },
    #[error(
        "{} needs the library {library}, which is not on this host; reinstall its package",
        .path.display()
    )]
    NoLibrary { path: PathBuf, library: String },
}

impl Program {
    /// Finds a program on PATH or by its path, with its libraries. `more` are files and directories
    /// of files that it opens by name; ELF files among them bring their libraries. `folders` are
    /// added whole.
    ///
    /// # Errors
    /// When it is not installed, or a library is missing.
    pub fn find(name: &str, more: &[PathBuf], folders: &[PathBuf]) -> Result<Self, ProgramError> {
        let not_installed = || ProgramError::NotInstalled { name: name.into() };
        let path = exec::find(name).ok_or_else(not_installed)?;
        let path = std::path::absolute(&path)
            .map_err(|source| ProgramError::Read { path: path.clone(), source })?;
        let mut files = BTreeSet::new();
        if !add_with_libraries(&path, &mut files)? {
            return Err(ProgramError::Form { path });
        }
        for file in more {
            add_all(file, &mut files)?;
        }
        // More than one file means that there is a loader.
        if files.len() > 1 && Path::new(LOADER_CACHE).is_file() {
            files.insert(LOADER_CACHE.into());
        }
        files.retain(|file| !folders.iter().any(|folder| file.starts_with(folder)));
        files.extend(folders.iter().cloned());
        Ok(Self { path, files: files.into_iter().collect() })
    }
}

/// Adds a file, or all files below a directory.
fn add_all(path: &Path, files: &mut BTreeSet<PathBuf>) -> Result<(), ProgramError> {
    let fail = |source| ProgramError::Read { path: path.into(), source };
    if !path.is_dir() {
        return add_with_libraries(path, files).map(drop);
    }
    for entry in fs::read_dir(path).map_err(fail)? {
        add_all(&entry.map_err(fail)?.path(), files)?;
    }
    Ok(())
}

/// Adds a file with the libraries that its loader would load. Returns whether it is an ELF file.
fn add_with_libraries(path: &Path, files: &mut BTreeSet<PathBuf>) -> Result<bool, ProgramError> {
    let elf = Elf::read(path).map_err(|source| ProgramError::Read { path: path.into(), source })?;
    files.insert(path.into());
    let Some(elf) = elf else { return Ok(false) };
    // A plug-in names no loader; it uses the program's, which is in the list already.
    let among = |file: &&PathBuf| {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("ld-") || name.starts_with("ld.so")
    };
    let loader = match elf.loader {
        Some(loader) => Some(loader),
        None if elf.is_library => files.iter().find(among).cloned(),
        None => None,
    };
    let Some(loader) = loader else { return Ok(true) };
    let asked = Command::new(&loader).arg("--list").arg(path).run();
    let asked = asked.map_err(|source| ProgramError::Loader { path: path.into(), source })?;
    files.extend(libraries(&asked.stdout).map_err(|library| {
        let library = library.to_string();
        ProgramError::NoLibrary { path: path.into(), library }
    })?);
    files.insert(loader);
    Ok(true)
}

/// Parses a loader's list: `libz.so.1 => /lib/libz.so.1 (0x7f...)`, or a path alone. Libraries of
/// the kernel have no path. The error is the name of a missing library.
fn libraries(list: &str) -> Result<Vec<PathBuf>, &str> {
    let mut found = Vec::new();
    for line in list.lines().map(str::trim) {
        let (name, place) = line.split_once(" => ").unwrap_or((line, line));
        if place.starts_with("not found") {
            return Err(name);
        }
        let path = place.rsplit_once(" (").map_or(place, |(path, _)| path);
        if path.starts_with('/') {
            found.push(path.into());
        }
    }
    Ok(found)
}

/// The parts of an ELF header that are used here.
struct Elf {
    loader: Option<PathBuf>,
    /// A shared object (`ET_DYN`), which position-independent programs are too.
    is_library: bool,
}

impl Elf {
    /// Reads a header; `None` when the file is not a 64-bit ELF file of this machine's byte order.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        let file = File::open(path)?;
        let mut head = [0; 64];
        if file.read_exact_at(&mut head, 0).is_err() {
            return Ok(None);
        }
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        if head[..4] != *b"\x7fELF" || head[4] != 2 || head[5] != order {
            return Ok(None);
        }
        // Offsets of struct Elf64_Ehdr and Elf64_Phdr (elf(5)).
        let (table, entry) = (long(&head, 32), u64::from(short(&head, 54)));
        let is_library = short(&head, 16) == 3;
        for number in 0..u64::from(short(&head, 56)) {
            let mut one = [0; 56];
            let at = table.saturating_add(number.saturating_mul(entry));
            file.read_exact_at(&mut one, at)?;
            if u32::from_ne_bytes([one[0], one[1], one[2], one[3]]) != INTERPRETER {
                continue;
            }
            // Paths are at most 4096 bytes long.
            let size = usize::try_from(long(&one, 32)).unwrap_or(0).min(4096);
            let mut name = vec![0; size];
            file.read_exact_at(&mut name, long(&one, 8))?;
            let name = String::from_utf8_lossy(&name);
            let loader = Some(PathBuf::from(name.trim_end_matches('\0')));
            return Ok(Some(Self { loader, is_library }));
        }
        Ok(Some(Self { loader: None, is_library }))
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u64::from_ne_bytes(*raw))
}

fn short(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u16::from_ne_bytes(*raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_loader_list() {
        let list = "\tlinux-vdso.so.1 (0x00007ffe)\n\
                    \tlibaio.so.1 => /lib/x86_64-linux-gnu/libaio.so.1 (0x00007f)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\
                    \tstatically linked\n";
        let expect = ["/lib/x86_64-linux-gnu/libaio.so.1", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(libraries(list).unwrap(), expect.map(PathBuf::from));
        assert_eq!(libraries("\tlibgone.so.3 => not found\n"), Err("libgone.so.3"));
    }

    #[test]
    fn finds_libraries_and_refuses_script() {
        let shell = Program::find("sh", &[], &[]).unwrap();
        assert!(shell.path.is_absolute() && shell.files.contains(&shell.path), "{shell:?}");
        let named =
            |part: &str| shell.files.iter().any(|file| file.to_string_lossy().contains(part));
        assert!(named("libc.") && named("/ld-"), "{shell:?}");
        assert!(shell.files.iter().all(|file| file.is_file()), "{shell:?}");

        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let refused = Program::find(&script.to_string_lossy(), &[], &[]).unwrap_err().to_string();
        assert!(refused.contains("not a 64-bit ELF"), "{refused}");
        let missing = Program::find("tare-no-such-program", &[], &[]).unwrap_err().to_string();
        assert!(missing.contains("apt-get install tare-no-such-program"), "{missing}");
        // Named files are included, whatever they hold.
        let more = Program::find("sh", &[folder.path().into()], &[]).unwrap();
        assert!(more.files.contains(&script), "{more:?}");
        let whole =
            Program::find("sh", std::slice::from_ref(&script), &[folder.path().into()]).unwrap();
        assert!(whole.files.contains(&folder.path().into()) && !whole.files.contains(&script));
    }
}
