//! Programs of a root file system, found as a process inside would find them: every link is
//! followed within the root, never out of it.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};

use super::{Root, RootError};

/// Where a container's PATH leads, unless its image says otherwise.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Where Debian keeps several versions of a program beside each other. Which one is meant is
/// decided when packages are configured; here the last one is.
const VERSIONS: &[&str] = &["/usr/lib/jvm", "/usr/lib/postgresql"];

impl Root {
    /// The program of that name, or of that path, as a path inside. Where a path is not there, a
    /// program of its name is looked for: another version may have another place. Links stay as
    /// they are: some programs tell by their name what they are to do.
    ///
    /// # Errors
    /// When there is none.
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

    /// Whether a path inside leads to a file.
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
