//! Reads the limits on the disk I/O of this process: cgroup v1 `blkio.throttle.*` and v2 `io.max`,
//! of its own cgroup and all parents.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time slice whose allowance a limit releases at once: `DFL_THROTL_SLICE` of the kernel's
/// block/blk-throttle.c, a tenth of a second.
pub(crate) const SLICE: Duration = Duration::from_millis(100);

/// One limit: its file and its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Limit {
    pub file: PathBuf,
    pub text: String,
}

const V1: [&str; 4] = [
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

/// Returns the limits of this process on a device (`MAJOR:MINOR`), with /proc and /sys below
/// `root`.
pub(crate) fn limits(root: &Path, device: &str) -> Vec<Limit> {
    let own = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mut found = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let mount = match controllers {
            "" => ["sys/fs/cgroup", "sys/fs/cgroup/unified"].as_slice(),
            list if list.split(',').any(|name| name == "blkio") => {
                ["sys/fs/cgroup/blkio"].as_slice()
            }
            _ => continue,
        };
        let files: &[&str] = if controllers.is_empty() { &["io.max"] } else { &V1 };
        for mount in mount {
            for folder in Path::new(path.trim_start_matches('/')).ancestors() {
                for name in files {
                    let file = Path::new("/").join(mount).join(folder).join(name);
                    let text = fs::read_to_string(root.join(mount).join(folder).join(name));
                    found.extend(of_device(&file, &text.unwrap_or_default(), device));
                }
            }
        }
    }
    found
}

/// Returns the lines of one file that limit this device.
fn of_device(file: &Path, text: &str, device: &str) -> Vec<Limit> {
    let limits = |line: &&str| {
        let Some((number, rest)) = line.split_once(' ') else { return false };
        let unlimited = |word: &str| word.ends_with("=max") || word == "0";
        number == device && !rest.split_whitespace().all(unlimited)
    };
    let limit = |line: &str| Limit { file: file.into(), text: line.trim().into() };
    text.lines().filter(limits).map(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)], device: &str, expect: &[&str]) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found: Vec<String> = limits(root.path(), device)
            .iter()
            .map(|limit| format!("{} {}", limit.file.display(), limit.text))
            .collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn limits_of_both_versions_and_parents() {
        let v2 = ("proc/self/cgroup", "0::/a/b\n");
        let io = "254:0 rbps=1048576 wbps=max riops=max wiops=max\n";
        check(
            &[v2, ("sys/fs/cgroup/a/io.max", io)],
            "254:0",
            &["/sys/fs/cgroup/a/io.max 254:0 rbps=1048576 wbps=max riops=max wiops=max"],
        );
        check(&[v2, ("sys/fs/cgroup/a/b/io.max", io)], "8:0", &[]);
        let free = "254:0 rbps=max wbps=max riops=max wiops=max\n";
        check(&[v2, ("sys/fs/cgroup/a/b/io.max", free)], "254:0", &[]);
        let v1 = ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:blkio:/x\n");
        let file = "sys/fs/cgroup/blkio/x/blkio.throttle.write_bps_device";
        check(
            &[v1, (file, "8:0 5\n254:0 8388608\n")],
            "254:0",
            &["/sys/fs/cgroup/blkio/x/blkio.throttle.write_bps_device 254:0 8388608"],
        );
        check(&[v1], "254:0", &[]);
        check(&[], "254:0", &[]);
    }
}
