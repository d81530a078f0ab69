//! Finds programs in a root file system as a process inside would: links are followed within the
//! root and never lead out of it.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

use super::{Root, RootError};

/// A container's PATH, unless its image sets another.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Directories in which Debian installs several versions of a program. Configuring the packages
/// would choose one; this search takes the last.
const VERSIONS: &[&str] = &["/usr/lib/jvm", "/usr/lib/postgresql"];

impl Root {
    /// Returns a program as a path inside, by name or by path. If there is no file at the path,
    /// any program of the same name is taken: another version may be installed elsewhere. Links are
    /// not resolved, because some programs choose their function by their name.
    ///
    /// # Errors
    /// When there is no such program.
    pub(crate) fn program(&self, name: &str) -> Result<PathBuf, RootError> {
        let file = Path::new(name).file_name().unwrap_or_default();
        let of_path = std::env::split_paths(PATH).map(|folder| folder.join(file));
        let mut places: Vec<PathBuf> = of_path.collect();
        for folder in VERSIONS {
            let versions = fs::read_dir(self.path.join(&folder[1..])).into_iter().flatten();
            let mut names: Vec<_> = versions.flatten().map(|entry| entry.file_name()).collect();
            names.sort();
            let versions = names.iter().rev();
            places.extend(versions.map(|name| Path::new(folder).join(name).join("bin").join(file)));
        }
        if name.contains('/') {
            places.insert(0, name.into());
        }
        let found = places.into_iter().find(|place| self.has_file(place));
        found.ok_or_else(|| RootError::NoProgram { name: name.into(), root: self.path.clone() })
    }

    /// Returns whether a path inside leads to a file.
    fn has_file(&self, path: &Path) -> bool {
        let Ok(root) = open(&self.path, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()) else {
            return false;
        };
        let inside = path.strip_prefix("/").unwrap_or(path);
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let file = openat2(&root, inside, flags, Mode::empty(), ResolveFlags::IN_ROOT);
        let about = file.and_then(|file| fstat(&file));
        about.is_ok_and(|about| FileType::from_raw_mode(about.st_mode).is_file())
    }
}
