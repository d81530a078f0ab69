//! Root file systems of containers, from Debian packages, an image or a directory.
//!
//! Method: packages and images are unpacked once, into a directory of the cache, next to a manifest
//! of every file. A later run needs neither network nor engine: it compares the directory with the
//! manifest. Nothing writes to the directory afterwards: a container gets an overlay over it.
//!
//! Limits: packages are not configured (users, alternatives, caches). `packages` adds the few files
//! of that step that a server needs.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use tare_host::exec::{self, ExecError};
use tare_lab::environment::EnvironmentSpec;

use crate::unavailable::Unavailable;

mod image;
pub(crate) mod overlay;
mod packages;
mod program;
mod tree;

pub use image::ImageError;
pub(crate) use oci_spec::image::Config;
pub(crate) use program::PATH;

/// The directory in which all runs unpack root file systems.
pub const CACHE: &str = "/var/cache/tare/rootfs";

/// The programs that download and unpack packages.
pub const TOOLS: &[&str] = &["apt-get", "dpkg-deb", "tar"];

/// Why a root file system cannot be provided.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    #[error("environment {environment:?}: runtime {runtime:?} cannot have a rootfs: {why}")]
    Runtime { environment: String, runtime: String, why: &'static str },
    #[error("environment {environment:?}: {value:?} is not {wanted}")]
    Value { environment: String, value: String, wanted: &'static str },
    #[error("{} is no root file system: it has no directory {missing}", .path.display())]
    NoRoot { path: PathBuf, missing: &'static str },
    #[error("cannot use {}", .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("cannot get the packages {packages}; check their names, and run apt-get update")]
    Download { packages: String, source: ExecError },
    #[error("cannot unpack {}", .path.display())]
    Unpack { path: PathBuf, source: ExecError },
    #[error("cannot unpack the image {}", .path.display())]
    Image { path: PathBuf, source: ImageError },
    #[error(
        "the system is the program of an image, but this environment has no image; set rootfs = {{ image = \"PATH\" }}"
    )]
    NoImage,
    #[error("cannot read the manifest {}; remove its directory, and the next run unpacks it again", .path.display())]
    Manifest { path: PathBuf, source: serde_json::Error },
    #[error(
        "{} has changed since it was unpacked: {count} files differ, {first} the first; remove it, and the next run unpacks it again",
        .path.display()
    )]
    Changed { path: PathBuf, count: usize, first: String },
    #[error(
        "the image {name} is only in an engine; write it to a file (docker save) and name the file"
    )]
    OnlyEngine { name: String },
    #[error("there is no program {name} in the root file system {}", .root.display())]
    NoProgram { name: String, root: PathBuf },
    #[error(
        "cannot show {} in the root file system {}: {} is no directory there",
        .folder.display(), .root.display(), .at.display()
    )]
    Behind { folder: PathBuf, root: PathBuf, at: PathBuf },
    #[error("cannot mount the root file system with options {options:?}")]
    Mount { options: String, source: io::Error },
}

/// The source of a root file system, from a study.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Source {
    Packages(Vec<String>),
    Image(PathBuf),
    /// The name of an image in an engine.
    Named(String),
    Directory(PathBuf),
}

/// A root file system that is unpacked and unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) path: PathBuf,
    /// Its versions and a digest of all files, for the record.
    pub(crate) text: String,
    /// How the program of an image is started. `Some` makes the root writable, which programs of
    /// images expect.
    pub(crate) config: Option<Config>,
}

/// The packages or image that were unpacked, and every file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    /// Names with their versions.
    made_of: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config: Option<Config>,
    files: tree::Files,
}

/// The root file systems of a run, each checked once.
#[derive(Debug, Default)]
pub(crate) struct Roots(Mutex<BTreeMap<Source, Root>>);

impl Source {
    /// Returns the source that an environment names, checked against its runtime, or `None` if the
    /// environment has no root file system of its own.
    pub(crate) fn parse(spec: &EnvironmentSpec) -> Result<Option<Self>, RootError> {
        let Some((name, value)) = spec.rootfs.option() else { return Ok(None) };
        let own = matches!(spec.runtime.kind(), "oci" | "containerd");
        let why = match spec.runtime.kind() {
            "oci" | "containerd" | "docker" | "podman" => None,
            "process" => Some("a process uses the host's; use a container"),
            "kubernetes" => Some("a pod has that of the pause program; use a container"),
            _ => Some("a guest holds only Tare's program; use a container"),
        };
        if let Some(why) = why {
            let (environment, runtime) = (spec.name.clone(), spec.runtime.to_string());
            return Err(RootError::Runtime { environment, runtime, why });
        }
        let wrong = |value: &str, wanted| {
            let (environment, value) = (spec.name.clone(), value.to_string());
            RootError::Value { environment, value, wanted }
        };
        match name {
            "packages" => {
                let names: Vec<String> = value.split_whitespace().map(String::from).collect();
                match names.iter().find(|name| !packages::is_name(name)) {
                    Some(bad) => Err(wrong(bad, "the name of a package, or NAME=VERSION")),
                    None if names.is_empty() => Err(wrong(value, "a list of packages")),
                    None => Ok(Some(Self::Packages(names))),
                }
            }
            "image" if !value.starts_with('/') && !own => {
                match value.starts_with(|c: char| c.is_ascii_alphanumeric()) {
                    true => Ok(Some(Self::Named(value.to_string()))),
                    false => Err(wrong(value, "an absolute path, or the name of an image")),
                }
            }
            _ => {
                let path = PathBuf::from(value);
                match path.is_absolute() && overlay::takes(&path) {
                    true if name == "image" => Ok(Some(Self::Image(path))),
                    true => Ok(Some(Self::Directory(path))),
                    false => Err(wrong(value, "an absolute path without : , \\ and quotes")),
                }
            }
        }
    }

    /// Checks that this host has the programs that unpacking needs.
    ///
    /// # Errors
    /// Names the missing program.
    pub(crate) fn needs(&self) -> Result<(), Unavailable> {
        let Self::Packages(_) = self else { return Ok(()) };
        if self.place(Path::new(CACHE)).is_ok_and(|place| place.is_dir()) {
            return Ok(());
        }
        let missing = TOOLS.iter().find(|name| exec::find(name).is_none());
        missing.map_or(Ok(()), |name| {
            Err(Unavailable {
                what: "a root file system of packages".into(),
                why: format!("there is no program {name}"),
                remedy: "use Debian or Ubuntu, or an image or a directory".into(),
            })
        })
    }

    /// Returns its directory in the cache, the same for the same package names or the same image.
    fn place(&self, cache: &Path) -> Result<PathBuf, RootError> {
        let (name, words) = match self {
            Self::Packages(names) => {
                let first = names.first().and_then(|name| name.split('=').next());
                (first.unwrap_or_default().to_string(), names.join(" "))
            }
            Self::Image(path) => {
                let identity = image::identity(path).map_err(|source| fail(path, source))?;
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
                (name.chars().map(plain).collect(), format!("{}\0{identity}", path.display()))
            }
            Self::Directory(path) => return Ok(path.clone()),
            Self::Named(name) => return Err(RootError::OnlyEngine { name: name.clone() }),
        };
        Ok(cache.join(format!("{name}-{}", &tree::sha256(words.as_bytes())[..12])))
    }
}

impl Root {
    /// Returns a short name, the same for the same files.
    pub(crate) fn name(&self) -> String {
        tree::sha256(format!("{}\0{}", self.path.display(), self.text).as_bytes())[..12].to_string()
    }
}

impl Roots {
    /// Returns the root file system, and unpacks it first if the cache does not have it.
    ///
    /// # Errors
    /// When it cannot be unpacked, or has changed since it was unpacked.
    pub(crate) fn provide(&self, source: &Source) -> Result<Root, RootError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(root) = known.get(source) {
            return Ok(root.clone());
        }
        let root = provide(source, Path::new(CACHE))?;
        known.insert(source.clone(), root.clone());
        Ok(root)
    }
}

fn provide(source: &Source, cache: &Path) -> Result<Root, RootError> {
    let place = source.place(cache)?;
    if let Source::Directory(path) = source {
        let files = tree::read(path).map_err(|source| fail(path, source))?;
        if !path.join("usr").is_dir() && !path.join("bin").is_dir() {
            return Err(RootError::NoRoot { path: path.clone(), missing: "usr or bin" });
        }
        let text = text("the directory", &files);
        return Ok(Root { path: path.clone(), text, config: None });
    }
    fs::create_dir_all(cache).map_err(|source| fail(cache, source))?;
    // Two runs may unpack the same directory at once.
    let lock = cache.join("lock");
    let held = File::create(&lock).and_then(|file| file.lock().map(|()| file));
    let _held = held.map_err(|source| fail(&lock, source))?;
    let manifest = match place.is_dir() {
        true => verify(&place)?,
        false => create(source, &place)?,
    };
    let made_of = match (source, manifest.made_of.as_slice()) {
        // The manifest lists the dependencies.
        (Source::Packages(names), all) => {
            let is_requested = |line: &&String| {
                names.iter().any(|name| line.split(' ').next() == name.split('=').next())
            };
            let requested: Vec<&str> =
                all.iter().filter(is_requested).map(String::as_str).collect();
            format!("{} and {} packages more", requested.join(", "), all.len() - requested.len())
        }
        (_, all) => all.join(", "),
    };
    let text = text(&made_of, &manifest.files);
    Ok(Root { path: place.join("root"), text, config: manifest.config })
}

/// Returns the text for the record: packages or image, and a digest of all files.
fn text(made_of: &str, files: &tree::Files) -> String {
    format!("{made_of}; {} files, sha256 {}", files.len(), tree::digest(files))
}

/// Creates a directory of the cache, or leaves nothing there on an error.
fn create(source: &Source, place: &Path) -> Result<Manifest, RootError> {
    let draft = place.with_extension("draft");
    let clear = || match fs::remove_dir_all(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fail(&draft, error)),
        _ => Ok(()),
    };
    clear()?;
    let root = draft.join("root");
    let made = fs::create_dir_all(&root).map_err(|source| fail(&root, source)).and_then(|()| {
        let (made_of, config) = match source {
            Source::Packages(names) => (packages::unpack(names, &draft, &root)?, None),
            Source::Image(path) => {
                let (made_of, config) = image::unpack(path, &draft, &root)?;
                (made_of, Some(config))
            }
            Source::Directory(_) | Source::Named(_) => (Vec::new(), None),
        };
        let files = tree::read(&root).map_err(|source| fail(&root, source))?;
        let manifest = Manifest { made_of, config, files };
        let path = draft.join(MANIFEST);
        let text = serde_json::to_vec_pretty(&manifest);
        let text = text.map_err(|source| RootError::Manifest { path: path.clone(), source })?;
        fs::write(&path, text).map_err(|source| fail(&path, source))?;
        fs::rename(&draft, place).map_err(|source| fail(place, source))?;
        Ok(manifest)
    });
    if made.is_err() {
        // The first error names the cause.
        let _ = clear();
    }
    made
}

const MANIFEST: &str = "manifest.json";

/// Compares a directory of the cache with its manifest.
fn verify(place: &Path) -> Result<Manifest, RootError> {
    let path = place.join(MANIFEST);
    let text = fs::read(&path).map_err(|source| fail(&path, source))?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|source| RootError::Manifest { path: path.clone(), source })?;
    let root = place.join("root");
    let found = tree::read(&root).map_err(|source| fail(&root, source))?;
    let changed = tree::differences(&manifest.files, &found);
    match changed.first() {
        None => Ok(manifest),
        Some(first) => {
            let (count, first) = (changed.len(), first.clone());
            Err(RootError::Changed { path: place.into(), count, first })
        }
    }
}

fn fail(path: &Path, source: io::Error) -> RootError {
    RootError::File { path: path.into(), source }
}

/// Returns the names of the root file systems in the cache, sorted, for `tare doctor`.
pub fn cached() -> Vec<String> {
    let places = fs::read_dir(CACHE).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut names: Vec<String> = places
        .filter(|place| place.join(MANIFEST).is_file())
        .filter_map(|place| Some(place.file_name()?.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests;
