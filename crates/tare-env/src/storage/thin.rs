//! Thin pools of the device mapper, as Docker's devicemapper driver made them: `loop-lvm` on two
//! sparse files, `direct-lvm` on a block device that is divided into metadata and data.
//!
//! Method: dm-thin through `dmsetup` with one thin volume and a file system. As in Docker's driver,
//! blocks are 64 KiB and new ones are not zeroed. A full pool fails at once (`error_if_no_space`)
//! instead of queueing writes for a minute. Tables and limits come from the kernel's
//! Documentation/admin-guide/device-mapper/thin-provisioning.rst.
//!
//! Limits: LVM itself is not used: it would add its own metadata and no other I/O path.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use tare_host::block::{self, SECTOR_BYTES};
use tare_host::exec::Command;
use tare_host::journal::Entry;

use super::backing::make_image;
use super::filesystem::{self, Format};
use super::options::Options;
use super::{At, Kind, MountView, ReadBack, Storage, StorageError, device, need_program};
use crate::unavailable::Unavailable;

const CLEANUP: &str = "unmounted; mappings removed, loop devices detached, images removed";
const READ_BACK: &str = "the mount table inside, the mapping's table, the superblock's size";
const NEEDS: &str = "dm-thin in the kernel, dmsetup, loop devices, the file system's mkfs";
const SIZE: (&str, &str) = ("size", "of the volume, such as 2G (default)");
const POOL: (&str, &str) =
    ("pool", "of the pool's data; as the volume unless given, and may be less");
const BLOCK: (&str, &str) =
    ("block", "of the pool, such as 64K (default): a multiple of 64K up to 1G");
const FILESYSTEM: (&str, &str) = ("filesystem", "on the volume: ext4 (default) or xfs");
const OPTIONS: (&str, &str) = ("options", "mount options of the file system");

pub(super) const LOOP_LVM: Kind = Kind {
    name: "loop-lvm",
    help: "a volume of a thin pool on two sparse files, as Docker's devicemapper did by default",
    options: &[SIZE, POOL, BLOCK, FILESYSTEM, OPTIONS],
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: Some(|options: &Options<'_>| parse(options, Backing::Files)),
};

pub(super) const DIRECT_LVM: Kind = Kind {
    name: "direct-lvm",
    help: "a volume of a thin pool on a block device, as Docker advised for production",
    options: &[
        SIZE,
        POOL,
        BLOCK,
        FILESYSTEM,
        OPTIONS,
        ("device", "loop (default), or a device named with --destroy-data-on too"),
    ],
    needs: NEEDS,
    cleanup: CLEANUP,
    read_back: READ_BACK,
    parse: Some(|options: &Options<'_>| parse(options, Backing::Device(options.device()?))),
};

/// The least size of a pool's metadata and the largest useful one (thin-provisioning.rst).
const METADATA_BYTES: std::ops::RangeInclusive<u64> = 2 << 20..=16 << 30;

#[derive(Debug)]
enum Backing {
    /// A sparse file for the data and one for the metadata, through the page cache as in Docker.
    Files,
    /// One block device; `None` for a loop device that Tare creates, with direct I/O.
    Device(Option<PathBuf>),
}

#[derive(Debug)]
struct Thin {
    backing: Backing,
    format: &'static Format,
    bytes: u64,
    pool_bytes: u64,
    block_bytes: u64,
    options: Vec<String>,
}

fn parse(options: &Options<'_>, backing: Backing) -> Result<Box<dyn Storage>, StorageError> {
    let format = match options.word("filesystem", &["ext4", "xfs"], "ext4 or xfs")? {
        0 => &filesystem::ext4::FORMAT,
        _ => &filesystem::xfs::FORMAT,
    };
    let bytes = options.size("size", 2 << 30, format.least_bytes, format.least)?;
    let pool_bytes = options.size("pool", bytes, 64 << 20, "a size in MiB of at least 64M")?;
    Ok(Box::new(Thin {
        backing,
        format,
        bytes,
        pool_bytes,
        block_bytes: options.thin_block("block")?,
        options: options.mount_options()?,
    }))
}

/// Returns the bytes of metadata that a pool needs: 48 for each block of data, within the limits.
fn metadata_bytes(data_bytes: u64, block_bytes: u64) -> u64 {
    let needed = (48 * data_bytes / block_bytes).next_multiple_of(1 << 20);
    needed.clamp(*METADATA_BYTES.start(), *METADATA_BYTES.end())
}

/// Returns the table `START LENGTH linear DEVICE OFFSET`, in sectors.
fn linear_table(device: &Path, offset_bytes: u64, bytes: u64) -> String {
    let (length, offset) = (bytes / SECTOR_BYTES, offset_bytes / SECTOR_BYTES);
    format!("0 {length} linear {} {offset}", device.display())
}

/// Returns the table `START LENGTH thin-pool METADATA DATA BLOCK LOW_WATER_MARK FEATURES
/// FEATURE...`. The length is whole blocks; the low water mark is 0 because nothing uses its event.
fn pool_table(metadata: &Path, data: &Path, bytes: u64, block_bytes: u64) -> String {
    let length = bytes / block_bytes * block_bytes / SECTOR_BYTES;
    let block = block_bytes / SECTOR_BYTES;
    let (metadata, data) = (metadata.display(), data.display());
    format!(
        "0 {length} thin-pool {metadata} {data} {block} 0 2 skip_block_zeroing error_if_no_space"
    )
}

/// Returns the table `START LENGTH thin POOL VOLUME`.
fn thin_table(pool: &Path, bytes: u64) -> String {
    format!("0 {} thin {} 0", bytes / SECTOR_BYTES, pool.display())
}

impl Thin {
    fn data_image(at: &At<'_>) -> PathBuf {
        at.folder.join("pool-data.img")
    }

    fn metadata_image(at: &At<'_>) -> PathBuf {
        at.folder.join("pool-metadata.img")
    }

    /// Creates the devices of metadata and data, and returns them with the bytes of data.
    fn devices(&self, at: &At<'_>) -> Result<(PathBuf, PathBuf, u64), StorageError> {
        let run = at.context.run();
        let metadata_bytes = metadata_bytes(self.pool_bytes, self.block_bytes);
        let whole = match &self.backing {
            Backing::Files => {
                make_image(&Self::data_image(at), self.pool_bytes, false)?;
                make_image(&Self::metadata_image(at), metadata_bytes, false)?;
                let metadata = block::attach(run, &Self::metadata_image(at), false)?;
                let data = block::attach(run, &Self::data_image(at), false)?;
                return Ok((metadata, data, self.pool_bytes));
            }
            Backing::Device(Some(path)) => {
                device::check(path, at.context.destroy(), Path::new("/"))?;
                path.clone()
            }
            Backing::Device(None) => {
                let image = Self::data_image(at);
                make_image(&image, metadata_bytes + self.pool_bytes, false)?;
                block::attach(run, &image, true)?
            }
        };
        let table = linear_table(&whole, 0, metadata_bytes);
        let metadata = block::map(run, &at.name("metadata"), &table)?;
        let table = linear_table(&whole, metadata_bytes, self.pool_bytes);
        let data = block::map(run, &at.name("data"), &table)?;
        Ok((metadata, data, self.pool_bytes))
    }
}

impl Storage for Thin {
    fn needs(&self) -> Result<(), Unavailable> {
        let missing = |why: &str, remedy: &str| Unavailable {
            what: "storage on a thin pool".into(),
            why: why.into(),
            remedy: remedy.into(),
        };
        need_program("on a thin pool", "dmsetup", "dmsetup")?;
        need_program("on a thin pool", "losetup", "mount")?;
        self.format.needs()?;
        if !Path::new("/sys/class/misc/device-mapper").exists() {
            return Err(missing(
                "this kernel has no device mapper (CONFIG_BLK_DEV_DM), or its module is not loaded",
                "modprobe dm_thin_pool, or --inside vm:qemu, a guest whose kernel has it",
            ));
        }
        let targets = Command::new("dmsetup").arg("targets").run();
        let targets = targets.map(|output| output.stdout).unwrap_or_default();
        match targets.lines().any(|line| line.starts_with("thin-pool")) {
            true => Ok(()),
            false => Err(missing(
                "the device mapper has no target thin-pool (CONFIG_DM_THIN_PROVISIONING)",
                "modprobe dm_thin_pool, or --inside vm:qemu, a guest whose kernel has it",
            )),
        }
    }

    fn device(&self) -> Option<&Path> {
        match &self.backing {
            Backing::Device(Some(path)) => Some(path),
            _ => None,
        }
    }

    fn entries(&self, at: &At<'_>) -> Vec<Entry> {
        let mapping = |what| Entry::mapping(at.name(what));
        let image = Entry::loop_device(Self::data_image(at));
        let mut entries = match &self.backing {
            Backing::Files => vec![Entry::loop_device(Self::metadata_image(at)), image],
            Backing::Device(None) => vec![image, mapping("metadata"), mapping("data")],
            Backing::Device(Some(_)) => vec![mapping("metadata"), mapping("data")],
        };
        entries.extend([mapping("pool"), mapping("thin"), Entry::mount(at.data())]);
        entries
    }

    fn make(&self, at: &At<'_>) -> Result<(), StorageError> {
        let run = at.context.run();
        let (metadata, data, bytes) = self.devices(at)?;
        // dm-thin formats a pool whose first metadata block is zero, and otherwise opens it.
        let fail = |source| StorageError::File { path: metadata.clone(), source };
        let zeroed = File::options().write(true).open(&metadata).and_then(|mut file| {
            file.write_all(&[0; 4096])?;
            file.sync_all()
        });
        zeroed.map_err(fail)?;
        let name = at.name("pool");
        let table = pool_table(&metadata, &data, bytes, self.block_bytes);
        let pool = block::map(run, &name, &table)?;
        block::message(run, &name, "create_thin 0")?;
        let volume = block::map(run, &at.name("thin"), &thin_table(&pool, self.bytes))?;
        self.format.create(at, &volume, &[], true)?;
        self.format.mount(at, &volume, &self.options)
    }

    fn read_back(&self, at: &At<'_>, seen: &MountView) -> ReadBack {
        let name = at.name("thin");
        let table = Command::new("dmsetup").args(["table", &name]).run();
        let table = table.map(|output| output.stdout.trim().to_string()).unwrap_or_default();
        let is_thin = table.split(' ').nth(2) == Some("thin");
        let missing = self.format.missing_options(seen, &self.options);
        let on_it = self.format.is_seen(seen, &Path::new("/dev/mapper").join(&name), self.bytes);
        let text = format!("{}; table of {name}: {table}", seen.text());
        ReadBack { text, in_force: is_thin && on_it && missing.is_empty() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected tables follow the examples and limits of thin-provisioning.rst.
    #[test]
    fn tables_match_kernel_documentation() {
        let (metadata, data) = (Path::new("/dev/loop1"), Path::new("/dev/loop2"));
        assert_eq!(
            pool_table(metadata, data, 10 << 30, 64 << 10),
            "0 20971520 thin-pool /dev/loop1 /dev/loop2 128 0 2 skip_block_zeroing \
             error_if_no_space"
        );
        // A partial block at the end is left out.
        assert!(pool_table(metadata, data, (64 << 10) * 3 + 512, 64 << 10).starts_with("0 384 "));
        assert_eq!(
            thin_table(Path::new("/dev/mapper/pool"), 1 << 30),
            "0 2097152 thin /dev/mapper/pool 0"
        );
        assert_eq!(
            linear_table(Path::new("/dev/sdb"), 2 << 20, 1 << 30),
            "0 2097152 linear /dev/sdb 4096"
        );
    }

    #[test]
    fn metadata_has_48_bytes_per_block() {
        assert_eq!(metadata_bytes(1 << 30, 64 << 10), 2 << 20);
        assert_eq!(metadata_bytes(100 << 30, 64 << 10), 75 << 20);
        assert_eq!(metadata_bytes(1 << 50, 64 << 10), 16 << 30);
    }
}
