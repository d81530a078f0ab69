//! Tests of the options of every kind, and of their runtimes.

use super::*;
use tare_testkit::EnvironmentBuilder;

/// Options as a study writes them.
type Pairs = &'static [(&'static str, &'static str)];

pub(super) fn spec(runtime: &str, kind: &str, options: &[(&str, &str)]) -> EnvironmentSpec {
    EnvironmentBuilder::new(runtime).storage(kind, options).build()
}

#[test]
fn checks_options() {
    let fine: &[(&str, Pairs)] = &[
        ("directory", &[]),
        ("tmpfs", &[("size", "64M")]),
        ("ext4", &[("size", "2G"), ("options", "dioread_nolock,data=journal")]),
        ("ext4", &[("device", "/dev/nvme1n1"), ("mkfs", "-b 4096 -O ^has_journal")]),
        ("xfs", &[("size", "300M"), ("allocate", "full"), ("direct_io", "no")]),
        ("btrfs", &[("options", "nodatacow")]),
        ("loop-lvm", &[("block", "512K"), ("filesystem", "xfs")]),
        ("direct-lvm", &[("pool", "1G"), ("device", "loop")]),
        ("raw", &[("size", "64M"), ("direct_io", "no")]),
        ("raw", &[("device", "/dev/nvme1n1")]),
    ];
    for (kind, options) in fine {
        assert!(parse(&spec("process", kind, options)).is_ok(), "{kind} {options:?}");
    }
    let wrong: &[(&str, Pairs, &str)] = &[
        ("ext5", &[], "known are directory"),
        ("directory", &[("size", "1G")], "it has none"),
        ("tmpfs", &[("size", "1M")], "at least 16M"),
        ("xfs", &[("size", "299M")], "at least 300M"),
        ("ext4", &[("size", "100000001")], "in MiB"),
        ("ext4", &[("options", "ro")], "mount options"),
        ("ext4", &[("options", "journal_path=/dev/sda")], "mount options"),
        ("ext4", &[("mkfs", "-d /etc")], "without paths"),
        ("ext4", &[("device", "sdb")], "path"),
        ("ext4", &[("device", "/dev/../etc/x")], "path"),
        ("ext4", &[("device", "/dev/sdb"), ("size", "1G")], "only for an image"),
        ("loop-lvm", &[("block", "100K")], "multiple of 64K"),
        ("raw", &[("device", "/dev/sdb"), ("allocate", "full")], "only for an image"),
        ("raw", &[("options", "noatime")], "it has size, device"),
        ("rootfs", &[], "root file system"),
        ("volume", &[], "engine"),
    ];
    for (kind, options, words) in wrong {
        let error = parse(&spec("process", kind, options)).unwrap_err().to_string();
        assert!(error.contains(words), "{words:?} in {error:?}");
    }
    let root = |runtime, options: Pairs| parse(&spec(runtime, "rootfs", options));
    assert!(root("oci:runc", &[("filesystem", "xfs"), ("size", "1G")]).is_ok());
    let device = root("oci:runc", &[("filesystem", "xfs"), ("device", "/dev/nvme1n1")]).unwrap();
    assert_eq!(device.device(), Some(Path::new("/dev/nvme1n1")));
    for (runtime, options, words) in [
        ("oci:runc", &[("size", "1G")] as Pairs, "only with filesystem"),
        ("oci:runc", &[("device", "/dev/nvme1n1")], "only with filesystem"),
        ("oci:runc", &[("filesystem", "zfs")], "btrfs or f2fs"),
        ("docker", &[("filesystem", "xfs")], "for an engine"),
    ] {
        let error = root(runtime, options).unwrap_err().to_string();
        assert!(error.contains(words), "{words:?} in {error:?}");
    }
    assert_eq!(image_bytes(&spec("oci:runc", "rootfs", &[])), None);
    let sized = spec("oci:runc", "rootfs", &[("filesystem", "xfs"), ("size", "1G")]);
    assert_eq!(image_bytes(&sized), Some(1 << 30));
    assert!(parse(&spec("process", "nvme", &[])).unwrap_err().to_string().contains("known are"));
    assert!(parse(&spec("docker", "volume", &[])).is_ok());
    let on_device: Pairs = &[("filesystem", "xfs"), ("device", "/dev/nvme1n1")];
    let volume = parse(&spec("docker", "volume", on_device)).unwrap();
    assert_eq!(volume.device(), Some(Path::new("/dev/nvme1n1")));
    let error = parse(&spec("docker", "volume", &[("size", "1G")])).unwrap_err().to_string();
    assert!(error.contains("for a volume, only with filesystem"), "{error}");
    assert_eq!(image_bytes(&spec("docker", "volume", &[])), None);
    let error = parse(&spec("docker", "raw", &[])).unwrap_err().to_string();
    assert!(error.contains("engines get no device here"), "{error}");
}

#[test]
fn refuses_removed_drivers_with_version() {
    let check = |runtime, driver: &str| {
        let spec = spec(runtime, "rootfs", &[("driver", driver)]);
        check(&spec).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(check("oci:runc", "aufs").contains("removed in Docker 24.0"));
    assert!(check("oci:runc", "devicemapper").contains("removed in Docker 25.0"));
    assert_eq!(check("oci:runc", "overlay"), "");
    let engine = |driver: Driver, name| driver.check_engine("docker 28.0", name);
    let error = engine(Driver::Aufs, "overlay2").unwrap_err().to_string();
    assert!(error.contains("overlay2") && error.contains("24.0"), "{error}");
    assert!(engine(Driver::Aufs, "aufs").is_ok());
    assert!(engine(Driver::Overlay, "overlay2").is_ok() && engine(Driver::Engines, "vfs").is_ok());
}
