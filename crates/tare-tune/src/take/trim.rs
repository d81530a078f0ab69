//! Trims a snapshot to what the planner reads: mounts without options, boot parameters that matter,
//! options of irqbalance without comments.

use super::patterns::BOOT_PARAMETERS;
use crate::snapshot::Snapshot;

/// The maximum length of a part of a mount point without a block device; longer ones are left out.
const MOUNT_PART_LENGTH_MAX: usize = 32;

/// The lines of /proc/meminfo that are kept.
const MEMORY: &[&str] = &["MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree", "Huge"];

/// Trims a snapshot that was just taken.
pub(super) fn trim(snapshot: &mut Snapshot) {
    let mut mounts = String::new();
    snapshot.edit("/proc/self/mountinfo", |text| {
        mounts = mountinfo(text);
        mounts.clone()
    });
    snapshot.edit("/proc/cmdline", boot_parameters);
    for process in ["1", "self"] {
        // The capabilities show how far limits can be raised; the rest is about the process.
        let capabilities = |text: &str| keep_lines(text, |line| line.starts_with("CapBnd"));
        snapshot.edit(&format!("/proc/{process}/status"), capabilities);
    }
    for folder in ["default", "sysconfig", "conf.d"] {
        snapshot.edit(&format!("/etc/{folder}/irqbalance"), irqbalance_options);
    }
    let memory = |text: &str| {
        keep_lines(text, |line| {
            let name =
                line.trim_start_matches("Node ").trim_start_matches(|c: char| c.is_ascii_digit());
            MEMORY.iter().any(|wanted| name.trim_start().starts_with(wanted))
        })
    };
    let paths: Vec<String> = snapshot.nodes().map(|(path, _)| path.to_string()).collect();
    for path in paths {
        if path.ends_with("/dm/uuid") {
            // `LVM-...`, `CRYPT-LUKS2-...`, `mpath-...`: the first word is the kind.
            snapshot.edit(&path, |text| text.split('-').next().unwrap_or_default().to_string());
        } else if path.ends_with("/loop/backing_file") {
            snapshot.edit(&path, |text| backing_file(text, &mounts));
        } else if path.ends_with("/meminfo") {
            snapshot.edit(&path, memory);
        } else if path.starts_with("/sys/kernel/debug/irq/irqs/") {
            // The flags: `IRQD_AFFINITY_MANAGED` means that the kernel sets the affinity.
            snapshot.edit(&path, |text| {
                let flags = text.split_whitespace().filter(|word| word.starts_with("IRQD_"));
                flags.collect::<Vec<_>>().join(" ")
            });
        }
    }
}

/// Keeps mounts without their options, and sources only if they are devices. Mounts without a block
/// device are kept only if their names are plain: others are in home directories, containers or
/// pods.
fn mountinfo(text: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        // id parent major:minor root mountpoint options optional* - fstype source superoptions
        // (proc_pid_mountinfo(5))
        let (left, right) = line.split_once(" - ")?;
        let left: Vec<&str> = left.split(' ').collect();
        let [id, parent, device, _root, point, ..] = left.as_slice() else { return None };
        let mut right = right.split(' ');
        let (kind, source) = (right.next()?, right.next().unwrap_or("none"));
        let source = if source.starts_with("/dev/") { source } else { "none" };
        let block = source != "none" || !device.starts_with("0:");
        (block || is_plain(point))
            .then(|| format!("{id} {parent} {device} / {point} rw - {kind} {source} rw"))
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn is_plain(point: &str) -> bool {
    let mut parts = point.split('/').skip(1);
    let home = point == "/root" || point.starts_with("/root/") || point.starts_with("/home/");
    let plain = |part: &str| {
        part.len() <= MOUNT_PART_LENGTH_MAX
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    !home && !point.starts_with("/run/user/") && parts.all(plain)
}

fn boot_parameters(text: &str) -> String {
    let wanted = |word: &&str| {
        let name = word.split_once('=').map_or(*word, |(name, _)| name);
        BOOT_PARAMETERS.iter().any(|wanted| match wanted.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => name == *wanted,
        })
    };
    text.split_whitespace().filter(wanted).collect::<Vec<_>>().join(" ")
}

fn irqbalance_options(text: &str) -> String {
    keep_lines(text, |line| {
        let line = line.trim_start().trim_start_matches("export ");
        let options = line.starts_with("IRQBALANCE_") || line.starts_with("OPTIONS");
        options || line.starts_with(crate::irqbalance::options_file::MARK)
    })
}

/// Replaces the path of a loop device's file with its mount, which leads to the disk.
fn backing_file(text: &str, mounts: &str) -> String {
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    let over = |point: &&str| {
        let below = text.strip_prefix(point.trim_end_matches('/'));
        below.is_some_and(|below| below.starts_with('/'))
    };
    let longest = points.filter(over).max_by_key(|point| point.len()).unwrap_or("/");
    format!("{}/file", longest.trim_end_matches('/'))
}

fn keep_lines(text: &str, wanted: impl Fn(&str) -> bool) -> String {
    text.lines().filter(|line| wanted(line)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_parts_of_mounts_that_lead_to_disks() {
        let text = "22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,seclabel\n\
            30 22 0:40 / /mnt/nfs rw shared:9 master:3 - nfs4 fileserver:/export rw,addr=10.1.2.3\n\
            31 22 0:41 / /home/alice/remote rw - fuse.sshfs alice@box:/ rw\n\
            32 22 259:2 /sub /home/alice/data rw - xfs /dev/nvme1n1 rw\n\
            33 22 0:50 / /var/lib/kubelet/pods/8ea46ef1-4d2c-4ae7-a7bb-b86c9add4d7c/volumes/x rw - tmpfs tmpfs rw";
        let kept = "22 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw\n\
            30 22 0:40 / /mnt/nfs rw - nfs4 none rw\n\
            32 22 259:2 / /home/alice/data rw - xfs /dev/nvme1n1 rw";
        assert_eq!(mountinfo(text), kept);
    }

    #[test]
    fn keeps_relevant_boot_parameters() {
        let text = "BOOT_IMAGE=/vmlinuz root=UUID=8ea46ef1-4d2c-4ae7-a7bb-b86c9add4d7c isolcpus=2-3 \
            ip=10.0.0.1 hugepagesz=1G hugepages=4 nosmt password=secret nvme_core.io_timeout=9";
        assert_eq!(
            boot_parameters(text),
            "isolcpus=2-3 hugepagesz=1G hugepages=4 nosmt nvme_core.io_timeout=9"
        );
    }

    #[test]
    fn keeps_irqbalance_options() {
        let text =
            "# called by ops@example.org\nIRQBALANCE_ARGS=\"--banirq=5\"\nTOKEN=x\nOPTIONS=\n";
        assert_eq!(irqbalance_options(text), "IRQBALANCE_ARGS=\"--banirq=5\"\nOPTIONS=");
    }

    #[test]
    fn replaces_loop_file_with_its_mount() {
        let mounts = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n32 22 8:2 / /data rw - xfs /dev/sdb rw";
        let check = |file: &str, expect: &str| assert_eq!(backing_file(file, mounts), expect);
        check("/data/images/bob.img", "/data/file");
        check("/home/bob/disk.img", "/file");
        check("/database/x.img", "/file");
    }
}
