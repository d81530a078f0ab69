//! The root file system of a container: read-only, with the static program bind-mounted at `/tare`
//! and the data directory at `/data`. It holds only the files of the host's program, or the
//! packages or image that a study sets (`crate::rootfs`).

use std::path::Path;

use tare_std::mountinfo;

pub(crate) use crate::rootfs::PATH;

/// The path of the program inside.
pub const PROGRAM: &str = "/tare";

/// The path of the data directory inside.
pub const DATA: &str = "/data";

/// Returns whether the root is read-only in a process's mount table, or `None` if the table has no
/// root.
pub fn root_is_read_only(table: &str) -> Option<bool> {
    let root = mountinfo::mounts(table).rfind(|mount| mount.point == Path::new("/"))?;
    Some(root.options.split(',').any(|option| option == "ro"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_last_root_mount() {
        let table =
            "1 0 0:1 / / rw - rootfs rootfs rw\n9 1 0:2 /x / ro,relatime - ext4 /dev/a rw\n";
        assert_eq!(root_is_read_only(table), Some(true));
        assert_eq!(root_is_read_only("1 0 0:1 / / rw - ext4 /dev/a rw"), Some(false));
        assert_eq!(root_is_read_only(""), None);
    }
}
