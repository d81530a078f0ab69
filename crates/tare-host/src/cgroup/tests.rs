use super::*;

const HYBRID: &str = "\
30 24 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";
const PURE: &str =
    "24 22 0:22 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";

#[test]
fn parses_hybrid_v2_and_absent_layouts() {
    let hybrid = Layout::parse(HYBRID);
    assert_eq!(hybrid.version(), Version::Hybrid);
    assert_eq!(hybrid.controllers(), ["cpu", "cpuacct", "cpuset", "systemd"]);
    // One directory per hierarchy: cpu and cpuacct share theirs.
    assert_eq!(hybrid.folders("/tare-ab12/e1").len(), 4);
    assert_eq!(Layout::parse(PURE).version(), Version::V2);
    assert_eq!(Layout::parse(PURE).folders("x"), [PathBuf::from("/sys/fs/cgroup/x")]);
    assert_eq!(Layout::parse("").version(), Version::None);
}

#[test]
fn writes_files_of_both_versions() {
    let root = std::env::temp_dir().join(format!("tare-test-cgroup-{}", std::process::id()));
    let v1 = ["cpu", "cpuset", "memory", "freezer"].map(|c| (c.to_string(), root.join(c)));
    let v1 = Layout { v1: v1.into_iter().collect(), v2: None }.group("/g");
    let v2 = Layout { v1: BTreeMap::new(), v2: Some(root.join("v2")) }.group("/g");
    for folder in v1.layout.folders("g").iter().chain(&v2.layout.folders("g")) {
        fs::create_dir_all(folder).unwrap();
    }
    let cpus = CpuSet::parse_list("1,3").unwrap();
    for group in [&v1, &v2] {
        group.set_cpuset(&cpus).unwrap();
        group.set_memory_nodes(&CpuSet::parse_list("1").unwrap()).unwrap();
        // The kernel has these files.
        for file in ["cpu.cfs_burst_us", "cpu.max.burst"] {
            let folder = group.folder("cpu").unwrap();
            if file.ends_with("max.burst") == group.is_v2() {
                fs::write(folder.join(file), "0\n").unwrap();
            }
        }
        let bandwidth = Bandwidth { quota_us: 150_000, period_us: 100_000, burst_us: 0 };
        group.set_bandwidth(bandwidth).unwrap();
        group.set_memory(6 << 30).unwrap();
        assert_eq!(group.bandwidth().unwrap(), Some(bandwidth));
        assert_eq!(group.memory().unwrap(), Some(6 << 30));
    }
    let file = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(file("cpuset/g/cpuset.cpus"), "1,3");
    assert_eq!(file("v2/g/cpu.max"), "150000 100000");
    assert_eq!((file("cpuset/g/cpuset.mems"), file("v2/g/cpuset.mems")), ("1".into(), "1".into()));
    fs::write(root.join("cpu/g/cpu.stat"), "nr_periods 9\nthrottled_time 77\n").unwrap();
    fs::write(root.join("v2/g/cpu.stat"), "usage_usec 9\nthrottled_usec 5\n").unwrap();
    assert_eq!(v1.throttled_ns().unwrap(), 77);
    assert_eq!(v2.throttled_ns().unwrap(), 5000);
    fs::remove_dir_all(&root).unwrap();
}
