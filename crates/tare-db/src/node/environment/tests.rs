use super::*;

/// A host as files in a temporary directory.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            let path = tree.0.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        tree
    }

    fn find(&self, allowed: &str) -> Environment {
        Environment::below(self.0.path(), CpuSet::parse_list(allowed).unwrap())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }
}

const ONLINE: (&str, &str) = ("sys/devices/system/cpu/online", "0-3\n");
const UNIFIED: (&str, &str) = (
    "proc/self/mountinfo",
    "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n",
);

#[test]
fn quota_of_the_group_or_an_ancestor_is_found() {
    let check = |own: &str, above: &str, expect: Option<(f64, usize, &str)>| {
        let tree = Tree::new(&[
            ONLINE,
            UNIFIED,
            ("proc/self/cgroup", "0::/slice/own\n"),
            ("sys/fs/cgroup/slice/own/cpu.max", own),
            ("sys/fs/cgroup/slice/cpu.max", above),
        ]);
        let quota = tree.find("0-3").quota;
        let got = quota.as_ref().map(|quota| (quota.cpus(), quota.whole_cpus(), &quota.file));
        let path = expect.map(|(_, _, path)| tree.path(path));
        assert_eq!(
            got,
            expect.zip(path.as_ref()).map(|((cpus, whole, _), path)| (cpus, whole, path)),
            "{own} {above}"
        );
    };
    check("max 100000\n", "max 100000\n", None);
    check("150000 100000\n", "max 100000\n", Some((1.5, 1, "sys/fs/cgroup/slice/own/cpu.max")));
    check("max 100000\n", "50000 100000\n", Some((0.5, 1, "sys/fs/cgroup/slice/cpu.max")));
    check("300000 100000\n", "20000 10000\n", Some((2.0, 2, "sys/fs/cgroup/slice/cpu.max")));
    check("nonsense\n", "max\n", None);
}

#[test]
fn cgroup_version_1_is_read() {
    // As in a container without a cgroup namespace: the paths are those of the host.
    let mounts = "\
        32 31 0:29 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n\
        35 31 0:32 /docker/abc /sys/fs/cgroup/memory ro shared:4 - cgroup cgroup rw,memory\n";
    let tree = Tree::new(&[
        ONLINE,
        ("proc/self/mountinfo", mounts),
        ("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n0::/\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
    ]);
    let found = tree.find("0-3");
    assert_eq!(found.quota.map(|quota| quota.cpus()), Some(2.5));
    assert_eq!(found.memory_limit.map(|limit| limit.bytes), Some(256 << 20));
    let unlimited = Tree::new(&[
        ("proc/self/mountinfo", mounts),
        ("proc/self/cgroup", "4:memory:/docker/abc\n3:cpu,cpuacct:/docker/abc\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
    ]);
    let found = unlimited.find("0-3");
    assert_eq!((found.quota, found.memory_limit), (None, None));
}

#[test]
fn tightest_memory_limit_counts() {
    let tree = Tree::new(&[
        UNIFIED,
        ("proc/self/cgroup", "0::/a/b\n"),
        ("proc/meminfo", "MemTotal: 100 kB\nMemAvailable:    2048 kB\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/b/memory.high", "2147483648\n"),
        ("sys/fs/cgroup/a/memory.max", "1073741824\n"),
    ]);
    let found = tree.find("0");
    let limit = found.memory_limit.unwrap();
    assert_eq!((limit.bytes, limit.file), (1 << 30, tree.path("sys/fs/cgroup/a/memory.max")));
    assert_eq!(found.memory_available_bytes, Some(2 << 20));
}

#[test]
fn cpu_ownership_is_recognised() {
    let partition = "sys/fs/cgroup/own/cpuset.cpus.partition";
    let check = |allowed: &str, files: &[(&str, &str)], expect: Ownership| {
        let common = [ONLINE, UNIFIED, ("proc/self/cgroup", "0::/own\n")];
        let tree = Tree::new(&[&common[..], files].concat());
        assert_eq!(tree.find(allowed).ownership, expect, "{allowed} {files:?}");
    };
    check("0-3", &[], Ownership::Shared);
    check("2-3", &[], Ownership::Presumed);
    check("2-3", &[(partition, "isolated\n")], Ownership::Exclusive);
    check("2-3", &[(partition, "root invalid (no cpu)\n")], Ownership::Presumed);
    check("2-3", &[(partition, "member\n")], Ownership::Presumed);
    check("2-3", &[("sys/devices/system/cpu/isolated", "1-3\n")], Ownership::Exclusive);
    check("0-3", &[("sys/devices/system/cpu/isolated", "\n")], Ownership::Shared);
}

#[test]
fn host_without_cgroups_is_accepted() {
    let found = Tree::new(&[]).find("0-1");
    assert_eq!(found.online_cpus, found.allowed_cpus);
    assert_eq!((found.quota, found.memory_limit), (None, None));
    assert_eq!(found.huge_pages, "unknown");
    let tree =
        Tree::new(&[("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n")]);
    assert_eq!(tree.find("0").huge_pages, "madvise");
    assert!(!Environment::find().unwrap().allowed_cpus.is_empty());
}

#[test]
fn table_columns_are_aligned() {
    let lines = [Line::new("CPUs", "0-1", "2 shards"), Line::new("quota", "none", "polling")];
    assert_eq!(table(&lines), ["CPUs   0-1   2 shards", "quota  none  polling"]);
    let check = |bytes, expect: &str| assert_eq!(Bytes(bytes).to_string(), expect);
    check(12, "12 B");
    check(64 << 20, "64.0 MiB");
    check(3 << 29, "1.50 GiB");
}
