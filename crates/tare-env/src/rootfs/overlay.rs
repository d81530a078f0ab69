//! Mounts a container's root file system: an overlay of the bundle's mount points over the unpacked
//! files, which stay unchanged. Without an upper layer the overlay is read-only; that of an image
//! has an upper layer in the directory of the start.

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, mount};

use super::{Root, RootError, fail};

/// Returns whether a path can be written in the overlay's options, where some characters separate
/// values.
pub(crate) fn takes(path: &Path) -> bool {
    !path.to_string_lossy().contains([':', ',', '\\', '"', '\'', '\n'])
}

/// Checks that `folders` of the host can be mounted in the root: their mount points must not hide a
/// link or a file.
///
/// # Errors
/// Names the first folder that cannot.
pub(crate) fn check(root: &Root, folders: &[PathBuf]) -> Result<(), RootError> {
    for folder in folders {
        let mut at = root.path.clone();
        for part in folder.strip_prefix("/").unwrap_or(folder) {
            at.push(part);
            match at.symlink_metadata() {
                Ok(about) if !about.is_dir() => {
                    let (folder, root) = (folder.clone(), root.path.clone());
                    return Err(RootError::Behind { folder, root, at });
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    Ok(())
}

/// Mounts the overlay on the bundle's root in `folder`, over the mount points there.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn mount_at(root: &Root, folder: &Path) -> Result<(), RootError> {
    let point = folder.join("rootfs");
    if !takes(&point) {
        let source = std::io::ErrorKind::InvalidFilename.into();
        return Err(fail(&point, source));
    }
    let mut options = layers(root, folder);
    let mut flags = MountFlags::RDONLY;
    if root.config.is_some() {
        flags = MountFlags::empty();
        for name in ["upper", "work"] {
            let made = folder.join(format!("root-{name}"));
            std::fs::create_dir(&made).map_err(|source| fail(&made, source))?;
            options += &format!(",{name}dir={}", made.display());
        }
    }
    let refused = |source: std::io::Error| RootError::Mount { options: options.clone(), source };
    let data = std::ffi::CString::new(options.as_str()).map_err(|error| refused(error.into()))?;
    mount("overlay", &point, "overlay", flags, data.as_c_str())
        .map_err(|error| refused(error.into()))
}

/// Returns whether an overlay with these layers is mounted, even below another mount.
pub(crate) fn is_mounted(layers: &str) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut mounts = tare_std::mountinfo::mounts(&table);
    mounts.any(|mount| mount.file_system == "overlay" && mount.super_options.contains(layers))
}

/// Returns the option that names the layers. `is_mounted` finds the mount by it.
pub(crate) fn layers(root: &Root, folder: &Path) -> String {
    format!("lowerdir={}:{}", folder.join("rootfs").display(), root.path.display())
}
