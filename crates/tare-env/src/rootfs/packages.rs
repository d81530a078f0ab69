//! Debian packages with their dependencies, unpacked but not configured.
//!
//! Method: an empty status file makes apt-get believe that nothing is installed. It downloads the
//! packages and all their dependencies from the host's sources and checks their signatures. They
//! are unpacked in the order of their file names, and none of their scripts is run. This module
//! creates the few things of those scripts that a server needs: the links of the merged /usr, a
//! shell, and a list of users.
//!
//! Limits: recommended packages are left out. Alternatives (`/usr/bin/java`) are not linked;
//! `program` searches the directories they would link to.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_host::exec::Command;

use super::{RootError, fail, tree};

/// The time limit of all downloads.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(900);
/// The time limit of unpacking one package.
const UNPACK_LIMIT: Duration = Duration::from_secs(120);

/// Provides /bin/sh. Every Debian system has it, so no package depends on it.
const BASE: &[&str] = &["dash"];

/// Directories that are links into /usr (<https://wiki.debian.org/UsrMerge>).
const MERGED: &[&str] = &["bin", "sbin", "lib", "lib64"];

/// Files that packages create when they are configured. Existing ones are kept.
const FILES: &[(&str, &str)] = &[
    (
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
    ),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
];

/// Unpacks `$0` below `$1` and keeps existing links to directories.
const UNPACK: &str = "dpkg-deb --fsys-tarfile \"$0\" | tar --extract --keep-directory-symlink --directory \"$1\" --file -";

/// Returns whether apt-get reads a text as one package to install: a name, or `NAME=VERSION`
/// (deb-version(7)).
pub(super) fn is_name(text: &str) -> bool {
    let (name, version) = text.split_once('=').unwrap_or((text, "0"));
    let word = |text: &str, more: &str| {
        text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    // apt-get removes a package whose name is followed by a minus.
    word(name, "+.-") && !name.ends_with('-') && word(version, ".+~:-")
}

/// Downloads packages with all their dependencies into a folder and unpacks them below `root`.
/// Returns each as `NAME VERSION ARCHITECTURE sha256 DIGEST`.
pub(super) fn unpack(
    names: &[String],
    folder: &Path,
    root: &Path,
) -> Result<Vec<String>, RootError> {
    let downloads = folder.join("packages");
    download(names, &downloads)?;
    for name in MERGED {
        let inside = root.join("usr").join(name);
        fs::create_dir_all(&inside).map_err(|source| fail(&inside, source))?;
        let link = root.join(name);
        symlink(format!("usr/{name}"), &link).map_err(|source| fail(&link, source))?;
    }
    let archives = downloads.join("archives");
    let found = fs::read_dir(&archives).map_err(|source| fail(&archives, source))?;
    let mut archives: Vec<PathBuf> = found.flatten().map(|entry| entry.path()).collect();
    archives.retain(|path| path.extension().is_some_and(|end| end == "deb"));
    archives.sort();
    let made_of =
        archives.iter().map(|path| unpack_archive(path, root)).collect::<Result<_, _>>()?;
    for (name, text) in FILES {
        let path = root.join(name);
        if !path.exists() {
            path.parent()
                .map_or(Ok(()), fs::create_dir_all)
                .map_err(|source| fail(&path, source))?;
            fs::write(&path, text).map_err(|source| fail(&path, source))?;
        }
    }
    fs::remove_dir_all(&downloads).map_err(|source| fail(&downloads, source))?;
    Ok(made_of)
}

fn download(names: &[String], folder: &Path) -> Result<(), RootError> {
    let partial = folder.join("archives/partial");
    fs::create_dir_all(&partial).map_err(|source| fail(&partial, source))?;
    let status = folder.join("status");
    fs::write(&status, "").map_err(|source| fail(&status, source))?;
    let option = |name: &str, value: &str| ["--option".to_string(), format!("{name}={value}")];
    let place = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let options = [
        // apt-get reads only the host's sources and writes nothing of the host.
        option("Dir::State::status", &place("status")),
        option("Dir::State::extended_states", &place("extended_states")),
        option("Dir::Cache", &place("")),
        option("Dir::Cache::archives", &place("archives")),
        option("Dir::Cache::pkgcache", ""),
        option("Dir::Cache::srcpkgcache", ""),
        option("Debug::NoLocking", "true"),
        // Only root can read the folder.
        option("APT::Sandbox::User", "root"),
    ];
    let words = ["--quiet", "--yes", "--download-only", "--no-install-recommends"];
    let command = Command::new("apt-get").args(words).args(options.as_flattened()).arg("install");
    let command = command.args(names).args(BASE).variable("DEBIAN_FRONTEND", "noninteractive");
    let ran = command.variable("LC_ALL", "C").time_limit(DOWNLOAD_LIMIT).run();
    let packages = names.join(" ");
    ran.map(drop).map_err(|source| RootError::Download { packages, source })
}

/// Unpacks one package and returns its name, version, architecture and digest.
fn unpack_archive(path: &Path, root: &Path) -> Result<String, RootError> {
    let unpack = |source| RootError::Unpack { path: path.into(), source };
    let command = Command::new("sh").args(["-c", UNPACK]).arg(path).arg(root);
    command.time_limit(UNPACK_LIMIT).run().map_err(unpack)?;
    let show = Command::new("dpkg-deb").args(["--show", "--showformat"]);
    let show = show.arg("${Package} ${Version} ${Architecture}").arg(path).run().map_err(unpack)?;
    let bytes = fs::read(path).map_err(|source| fail(path, source))?;
    Ok(format!("{} sha256 {}", show.stdout.trim(), tree::sha256(&bytes)))
}
