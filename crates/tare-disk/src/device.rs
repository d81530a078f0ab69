//! The block device below a path, from sysfs: the devices below it, the settings of its queue, and
//! its count of bytes.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The unit of `stat` and `size` for every device (Documentation/block/stat.rst).
const SECTOR_BYTES: u64 = 512;

/// A whole disk; for a partition, the disk that contains it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    pub name: String,
    /// `MAJOR:MINOR` of the disk.
    pub number: String,
    pub size_bytes: u64,
    pub rotational: bool,
    /// The scheduler in force, if any.
    pub scheduler: Option<String>,
    /// `write back` or `write through`.
    pub write_cache: Option<String>,
    /// The device and all devices below it.
    pub layers: Vec<Layer>,
    #[serde(skip)]
    folder: PathBuf,
}

/// One device of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    pub name: String,
    /// The kind of device, if it hides something below it.
    pub note: Option<String>,
}

/// Bytes that a device read and wrote since it appeared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    pub read_bytes: u64,
    pub written_bytes: u64,
}

impl Device {
    /// Reads the disk of a device number, with /sys below `root`.
    pub(crate) fn read(root: &Path, number: &str) -> Option<Self> {
        let folder = fs::canonicalize(root.join("sys/dev/block").join(number)).ok()?;
        let folder = match folder.join("partition").exists() {
            true => folder.parent()?.to_path_buf(),
            false => folder,
        };
        let mut layers = Vec::new();
        walk(&folder, &mut layers);
        let number = text(&folder, "dev").unwrap_or_else(|| number.into());
        Some(Self {
            name: name(&folder),
            number,
            size_bytes: text(&folder, "size")?.parse::<u64>().ok()? * SECTOR_BYTES,
            rotational: text(&folder, "queue/rotational").as_deref() == Some("1"),
            scheduler: text(&folder, "queue/scheduler").map(|text| in_force(&text)),
            write_cache: text(&folder, "queue/write_cache"),
            layers,
            folder,
        })
    }

    /// Returns whether it is memory, from its name.
    pub(crate) fn is_memory(&self) -> bool {
        self.name.starts_with("zram") || self.name.starts_with("ram")
    }

    pub(crate) fn counters(&self) -> Option<Counters> {
        let stat = text(&self.folder, "stat")?;
        let field = |index| stat.split_whitespace().nth(index)?.parse::<u64>().ok();
        Some(Counters {
            read_bytes: field(2)? * SECTOR_BYTES,
            written_bytes: field(6)? * SECTOR_BYTES,
        })
    }
}

/// Collects the device and, depth first, all devices below it.
fn walk(folder: &Path, layers: &mut Vec<Layer>) {
    layers.push(Layer { name: name(folder), note: note(folder) });
    for slave in fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten() {
        if let Ok(folder) = fs::canonicalize(slave.path()) {
            walk(&folder, layers);
        }
    }
}

fn note(folder: &Path) -> Option<String> {
    let name = name(folder);
    if let Some(mapping) = text(folder, "dm/name") {
        return Some(format!("device mapper: {mapping}"));
    }
    if let Some(level) = text(folder, "md/level") {
        return Some(format!("md {level}"));
    }
    if let Some(file) = text(folder, "loop/backing_file") {
        return Some(format!("loop device on {file}"));
    }
    let virtual_disk = name.starts_with("vd") || name.starts_with("xvd");
    virtual_disk.then(|| "virtual disk: the hypervisor hides the devices below".into())
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn text(folder: &Path, file: &str) -> Option<String> {
    fs::read_to_string(folder.join(file)).ok().map(|text| text.trim().to_string())
}

/// Returns the scheduler in brackets: `mq-deadline` for `none [mq-deadline] kyber`.
fn in_force(text: &str) -> String {
    let bracketed = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text, |(name, _)| name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_partition_of_mapping() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices/dm-0/dev", "252:0\n");
        write("devices/dm-0/size", "2048\n");
        write("devices/dm-0/dm/name", "vg-lv\n");
        write("devices/dm-0/queue/scheduler", "none [mq-deadline] kyber bfq\n");
        write("devices/dm-0/queue/rotational", "0\n");
        write("devices/dm-0/queue/write_cache", "write back\n");
        write("devices/dm-0/stat", " 8 0 16 1 4 0 32 3 0 6 14 0 0 0 0 0 0\n");
        write("devices/dm-0/dm-0p1/partition", "1\n");
        write("devices/nvme0n1/dev", "259:0\n");
        write("devices/vdb/dev", "254:16\n");
        let sys = root.path().join("sys");
        let link = |from: &str, to: &str| {
            fs::create_dir_all(sys.join(to).parent().unwrap()).unwrap();
            std::os::unix::fs::symlink(sys.join(from), sys.join(to)).unwrap();
        };
        link("devices/nvme0n1", "devices/dm-0/slaves/nvme0n1");
        link("devices/dm-0/dm-0p1", "dev/block/252:1");

        let device = Device::read(root.path(), "252:1").unwrap();
        assert_eq!((device.name.as_str(), device.number.as_str()), ("dm-0", "252:0"));
        assert_eq!((device.size_bytes, device.rotational), (1 << 20, false));
        assert_eq!(device.scheduler.as_deref(), Some("mq-deadline"));
        assert_eq!(device.write_cache.as_deref(), Some("write back"));
        let notes: Vec<_> = device
            .layers
            .iter()
            .map(|layer| (layer.name.as_str(), layer.note.as_deref()))
            .collect();
        assert_eq!(notes, [("dm-0", Some("device mapper: vg-lv")), ("nvme0n1", None)]);
        let counters = device.counters().unwrap();
        assert_eq!(counters, Counters { read_bytes: 8192, written_bytes: 16384 });
        assert_eq!(Device::read(root.path(), "8:0"), None);
    }

    #[test]
    fn reads_scheduler() {
        for (text, expect) in [("[none]", "none"), ("none [kyber]", "kyber"), ("none", "none")] {
            assert_eq!(in_force(text), expect);
        }
    }
}
