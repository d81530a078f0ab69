//! Where the cgroup of a process or a container is: the root of a hierarchy, and the path below it.

use std::path::{Path, PathBuf};

use tare_host::cgroup::Layout;

/// The hierarchies of cgroup v1 in which a cgroup is looked for, the best first.
const CONTROLLERS: [&str; 4] = ["cpu", "memory", "cpuset", "name=systemd"];

/// Returns the cgroup of a process: the root of the best hierarchy, and the path below it.
pub(super) fn cgroup_of(cgroups: &Layout, pid: u32) -> Option<(PathBuf, PathBuf)> {
    let found = cgroups.of_process(Path::new("/proc"), &pid.to_string()).ok()?;
    let rank = |root: &PathBuf| roots(cgroups).iter().position(|one| one == root);
    let known = found.into_iter().filter_map(|(root, path)| Some((rank(&root)?, root, path)));
    // A process may be in the root of a better one.
    let best = known.min_by_key(|(rank, _, path)| (path == "/", *rank));
    best.map(|(_, root, path)| (root, path.into()))
}

/// Returns the cgroup of a container by a process in it: the root of the best hierarchy, and the
/// path below it.
pub(super) fn group_of_container(
    cgroups: &Layout,
    pid: u32,
    id: &str,
) -> Option<(PathBuf, PathBuf)> {
    let (root, path) = cgroup_of(cgroups, pid)?;
    Some((root, up_to_id(&path, id)?))
}

/// Returns the roots of the hierarchies, the best first.
pub(super) fn roots(cgroups: &Layout) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = cgroups.unified().map(Path::to_path_buf).into_iter().collect();
    roots.extend(CONTROLLERS.iter().filter_map(|name| cgroups.root_of(name)));
    roots
}

/// Returns where a cgroup may be: the path as it is, or without the root of a hierarchy.
pub(super) fn folders_of(cgroups: &Layout, path: &Path) -> Vec<(PathBuf, PathBuf)> {
    let roots = roots(cgroups);
    let own = roots.iter().find_map(|root| path.strip_prefix(root).ok());
    let path = Path::new("/").join(own.unwrap_or(path));
    let place = |root: PathBuf| below(&root, &path).is_dir().then(|| (root, path.clone()));
    roots.into_iter().filter_map(place).collect()
}

pub(super) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// Returns the path of a container's cgroup: the part of the path of a process up to the id of the
/// container.
fn up_to_id(path: &Path, id: &str) -> Option<PathBuf> {
    let has_id = |path: &&Path| {
        path.file_name().is_some_and(|name| !id.is_empty() && name.to_string_lossy().contains(id))
    };
    path.ancestors().filter(has_id).last().map(Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_of_a_container_ends_with_its_id() {
        let check = |path: &str, expect: Option<&str>| {
            assert_eq!(up_to_id(Path::new(path), "0a1b").as_deref(), expect.map(Path::new));
        };
        check("/kubepods/burstable/podu/0a1b", Some("/kubepods/burstable/podu/0a1b"));
        check(
            "/kubepods.slice/cri-containerd-0a1b.scope/init",
            Some("/kubepods.slice/cri-containerd-0a1b.scope"),
        );
        check("/kubepods/podu/0c", None);
    }
}
