//! The cgroups of this process as far as it can see them: its own and their ancestors, version 1
//! and 2, found through `/proc/self/cgroup` and `/proc/self/mountinfo` (cgroups(7), proc(5)).
//!
//! Limit: ancestors above the root of a cgroup namespace cannot be seen from inside, so a limit
//! that only they set is not found.

use std::path::{Path, PathBuf};

use tare_std::mountinfo::{self, Mount};

use super::{MemoryLimit, Quota};

/// Memory limits above this are "none" of version 1, whose file then shows the largest multiple of
/// the page size that fits (`PAGE_COUNTER_MAX` in linux/page_counter.h).
const UNLIMITED_BYTES: u64 = 1 << 60;

/// Directories of the process in each hierarchy, its own first, ancestors after it.
#[derive(Debug, Default)]
pub(super) struct Groups {
    unified: Vec<PathBuf>,
    cpu: Vec<PathBuf>,
    memory: Vec<PathBuf>,
}

impl Groups {
    /// Finds them below `root`, which is `/` but in tests.
    pub(super) fn find(root: &Path) -> Self {
        let text = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default();
        let (own, mounts) = (text("proc/self/cgroup"), text("proc/self/mountinfo"));
        Self {
            unified: directories(root, &own, &mounts, None),
            cpu: directories(root, &own, &mounts, Some("cpu")),
            memory: directories(root, &own, &mounts, Some("memory")),
        }
    }

    /// The tightest CPU quota (`cpu.max`; `cpu.cfs_quota_us` over `cpu.cfs_period_us`).
    pub(super) fn quota(&self) -> Option<Quota> {
        let second = self.unified.iter().filter_map(|directory| {
            let file = directory.join("cpu.max");
            let text = std::fs::read_to_string(&file).ok()?;
            let (quota, period) = text.trim().split_once(' ')?;
            Quota::new(quota.parse().ok()?, period.parse().ok()?, file)
        });
        let first = self.cpu.iter().filter_map(|directory| {
            let file = directory.join("cpu.cfs_quota_us");
            let quota = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            let period = std::fs::read_to_string(directory.join("cpu.cfs_period_us")).ok()?;
            Quota::new(quota, period.trim().parse().ok()?, file)
        });
        second.chain(first).min_by(|a, b| a.cpus().total_cmp(&b.cpus()))
    }

    /// The tightest memory limit. `memory.high` is one too: above it the process is slowed down
    /// until it stands still.
    pub(super) fn memory_limit(&self) -> Option<MemoryLimit> {
        let second = self
            .unified
            .iter()
            .flat_map(|directory| ["memory.max", "memory.high"].map(|name| directory.join(name)));
        let first = self.memory.iter().map(|directory| directory.join("memory.limit_in_bytes"));
        let limit = |file: PathBuf| {
            let bytes = std::fs::read_to_string(&file).ok()?.trim().parse().ok()?;
            (bytes < UNLIMITED_BYTES).then_some(MemoryLimit { bytes, file })
        };
        second.chain(first).filter_map(limit).min_by_key(|limit| limit.bytes)
    }

    /// Where version 2 says that the CPUs belong to this group alone
    /// (`cpuset.cpus.partition`, Documentation/admin-guide/cgroup-v2.rst).
    pub(super) fn partition(&self) -> Option<PathBuf> {
        let files = self.unified.iter().map(|directory| directory.join("cpuset.cpus.partition"));
        let mut own = files.filter(|file| {
            let text = std::fs::read_to_string(file).unwrap_or_default();
            matches!(text.trim(), "root" | "isolated")
        });
        own.next()
    }
}

/// The directories of one hierarchy: that of a version 1 controller, or version 2's.
fn directories(root: &Path, own: &str, mounts: &str, controller: Option<&str>) -> Vec<PathBuf> {
    let Some(path) = own_path(own, controller) else { return Vec::new() };
    let mut best: Option<(PathBuf, PathBuf)> = None;
    for mount in mountinfo::mounts(mounts) {
        if !is_of(&mount, controller) {
            continue;
        }
        let point = below(root, &mount.point);
        // The mount may show a part of the hierarchy only, such as the container's own group; then
        // the group is where the rest of its path leads, or the mount itself.
        let inside = path.strip_prefix(&mount.root).map(|rest| point.join(rest));
        let directory = inside.ok().filter(|directory| directory.is_dir());
        match directory {
            Some(directory) => {
                best = Some((point, directory));
                break;
            }
            None if best.is_none() && point.is_dir() => best = Some((point.clone(), point)),
            None => {}
        }
    }
    let Some((point, directory)) = best else { return Vec::new() };
    let up = directory.ancestors().take_while(|ancestor| ancestor.starts_with(&point));
    up.map(Path::to_path_buf).collect()
}

/// The path of the process in a hierarchy, from lines such as `4:cpu,cpuacct:/a/b` and `0::/a/b`.
fn own_path(own: &str, controller: Option<&str>) -> Option<PathBuf> {
    own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let wanted = match controller {
            Some(controller) => names.split(',').any(|name| name == controller),
            None => number == "0" && names.is_empty(),
        };
        wanted.then(|| PathBuf::from(path))
    })
}

fn below(root: &Path, absolute: &Path) -> PathBuf {
    root.join(absolute.strip_prefix("/").unwrap_or(absolute))
}

/// Whether a mount is of a version 1 controller, or of version 2.
fn is_of(mount: &Mount<'_>, controller: Option<&str>) -> bool {
    match controller {
        Some(controller) => {
            mount.file_system == "cgroup"
                && mount.super_options.split(',').any(|name| name == controller)
        }
        None => mount.file_system == "cgroup2",
    }
}
