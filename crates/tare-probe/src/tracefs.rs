//! Reads the numbers and fields of the kernel's tracepoints from tracefs.
//!
//! The mount is detached (fsopen(2), fsmount(2)) and ends with its descriptor, so that nothing is
//! mounted on the host. A tracefs that the host has mounted is the same file system.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, openat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::{ProbeError, bpf};

/// A detached mount of tracefs.
pub(crate) struct Tracefs(OwnedFd);

/// A tracepoint with its number and the layout of its fields.
pub(crate) struct Tracepoint {
    pub(crate) id: u64,
    path: PathBuf,
    format: String,
}

impl Tracefs {
    pub(crate) fn open() -> Result<Self, ProbeError> {
        let mounted = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC).and_then(|context| {
            fsconfig_create(&context)?;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())
        });
        let failed = |error: rustix::io::Errno| ProbeError::Open {
            path: "the tracefs".into(),
            needs: bpf::NEEDS,
            source: error.into(),
        };
        mounted.map(Self).map_err(failed)
    }

    fn text(&self, path: &Path) -> Result<String, ProbeError> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut text = String::new();
        openat(&self.0, path, flags, Mode::empty())
            .map_err(std::io::Error::from)
            .and_then(|fd| File::from(fd).read_to_string(&mut text))
            .map_err(|source| ProbeError::Read { path: path.to_path_buf(), source })?;
        Ok(text)
    }

    /// The tracepoint `GROUP/NAME`.
    pub(crate) fn tracepoint(&self, name: &str) -> Result<Tracepoint, ProbeError> {
        let path = Path::new("events").join(name);
        let id = self.text(&path.join("id"))?;
        let format = self.text(&path.join("format"))?;
        let path = path.join("format");
        match id.trim().parse() {
            Ok(id) => Ok(Tracepoint { id, path, format }),
            Err(_) => Err(ProbeError::Missing { path, what: "number".into(), needs: bpf::NEEDS }),
        }
    }
}

impl Tracepoint {
    /// The offset of a field in the program's argument, in bytes.
    pub(crate) fn offset(&self, field: &str) -> Result<i16, ProbeError> {
        let missing = || ProbeError::Missing {
            path: self.path.clone(),
            what: format!("field {field}"),
            needs: bpf::NEEDS,
        };
        offset(&self.format, field).ok_or_else(missing)
    }
}

/// The offset of a field. A line is `field:char rwbs[10]; offset:36; size:10; signed:0;`, with tabs
/// between the parts.
fn offset(format: &str, field: &str) -> Option<i16> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().split(';').map(str::trim);
        let name = parts.next()?.strip_prefix("field:")?.rsplit(' ').next()?;
        if name.split('[').next()? != field {
            return None;
        }
        parts.next()?.strip_prefix("offset:")?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::offset;

    #[test]
    fn finds_fields_by_name() {
        let format = "name: block_rq_issue\nID: 1\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
            \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
            \tfield:char rwbs[10];\toffset:36;\tsize:10;\tsigned:0;\n";
        for (field, expected) in
            [("dev", Some(8)), ("rwbs", Some(36)), ("common_type", Some(0)), ("sector", None)]
        {
            assert_eq!(offset(format, field), expected, "{field}");
        }
    }
}
