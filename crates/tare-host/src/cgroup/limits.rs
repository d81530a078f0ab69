//! Limits and weights of a cgroup other than its CPUs and its memory limit: the files of v1 and v2
//! that hold them, written and read back.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use super::{Cgroup, CgroupError, read, write};

/// A limit of CPU time (`cpu.max`, `cpu.max.burst`; `cpu.cfs_*_us`), in µs. Source:
/// scheduler/sched-bwc.rst of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bandwidth {
    /// CPU time in each period.
    pub quota_us: u64,
    pub period_us: u64,
    /// CPU time that is kept from earlier periods. Linux 5.14 introduced it.
    pub burst_us: u64,
}

impl fmt::Display for Bandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} µs", self.quota_us, self.period_us)?;
        if self.burst_us > 0 {
            write!(f, ", burst {} µs", self.burst_us)?;
        }
        Ok(())
    }
}

/// How the kernel treats a cgroup's memory below its limit, in bytes. Source: cgroup-v2.rst of the
/// kernel, "Memory Interface Files".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryQos {
    /// What is never reclaimed (`memory.min`).
    pub min: u64,
    /// What is reclaimed only if nothing else is left (`memory.low`).
    pub low: u64,
    /// Above this, reclaim slows the cgroup down (`memory.high`); `None` is no bound.
    pub high: Option<u64>,
}

impl fmt::Display for MemoryQos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let high = self.high.map_or_else(|| "max".into(), |bytes| bytes.to_string());
        write!(f, "memory.min {}, memory.low {}, memory.high {high}", self.min, self.low)
    }
}

/// A limit of a cgroup's I/O on one block device (`io.max`; `blkio.throttle.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceLimit {
    /// Bytes per second.
    ReadBandwidth,
    /// Bytes per second.
    WriteBandwidth,
    /// Reads per second.
    ReadRate,
    /// Writes per second.
    WriteRate,
}

impl DeviceLimit {
    /// Returns the key in `io.max` of v2, and the file of v1.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::ReadBandwidth => ("rbps", "blkio.throttle.read_bps_device"),
            Self::WriteBandwidth => ("wbps", "blkio.throttle.write_bps_device"),
            Self::ReadRate => ("riops", "blkio.throttle.read_iops_device"),
            Self::WriteRate => ("wiops", "blkio.throttle.write_iops_device"),
        }
    }
}

/// Converts a weight of v2 (1 to 10,000) to `cpu.shares` of v1 (2 to 262,144).
///
/// It inverts the runtimes' conversion of shares to weights, log10(weight) = (l² + 125 l) / 612 -
/// 7/34 with l = log2(shares), which maps the limits and the defaults (1024 and 100) to each other
/// (`ConvertCPUSharesToCgroupV2Value` of opencontainers/cgroups, since runc 1.3.2; containers/crun
/// pull request 1767).
pub fn shares_of_weight(weight: u64) -> u64 {
    let scaled = 612.0 * ((weight.max(1) as f64).log10() + 7.0 / 34.0);
    let log2 = ((125.0_f64.powi(2) + 4.0 * scaled).sqrt() - 125.0) / 2.0;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float to integer cast saturates, and the result is clamped"
    )]
    let shares = log2.exp2().round() as u64;
    shares.clamp(2, 262_144)
}

impl Cgroup {
    /// Limits CPU time.
    pub fn set_bandwidth(&self, wanted: Bandwidth) -> Result<(), CgroupError> {
        let Bandwidth { quota_us, period_us, burst_us } = wanted;
        let folder = self.folder("cpu")?;
        if self.is_v2() {
            write(&folder.join("cpu.max"), &format!("{quota_us} {period_us}"))?;
        } else {
            write(&folder.join("cpu.cfs_period_us"), &period_us.to_string())?;
            write(&folder.join("cpu.cfs_quota_us"), &quota_us.to_string())?;
        }
        match burst_us {
            0 => Ok(()),
            _ => write(&self.burst_file()?, &burst_us.to_string()),
        }
    }

    /// Returns the limit of CPU time that is in force; `None` means no limit.
    pub fn bandwidth(&self) -> Result<Option<Bandwidth>, CgroupError> {
        let folder = self.folder("cpu")?;
        let (quota, period, burst) = match self.is_v2() {
            true => {
                let text = read(&folder.join("cpu.max"))?;
                let (quota, period) = text.trim().split_once(' ').unwrap_or_default();
                (quota.to_string(), period.to_string(), "cpu.max.burst")
            }
            false => {
                let text = |file| read(&folder.join(file));
                (text("cpu.cfs_quota_us")?, text("cpu.cfs_period_us")?, "cpu.cfs_burst_us")
            }
        };
        let number = |text: &str| text.trim().parse::<u64>().ok();
        // Kernels before 5.14 have no file of bursts.
        let burst_us = fs::read_to_string(folder.join(burst)).ok().and_then(|text| number(&text));
        let limit = number(&quota).zip(number(&period));
        Ok(limit.map(|(quota_us, period_us)| Bandwidth {
            quota_us,
            period_us,
            burst_us: burst_us.unwrap_or(0),
        }))
    }

    /// Sets the amount of memory above which the kernel reclaims and throttles, in bytes.
    ///
    /// # Errors
    /// On v1, whose `memory.soft_limit_in_bytes` only orders the reclaim of a host that lacks
    /// memory (cgroup-v1/memory.rst, section 7).
    pub fn set_memory_high(&self, bytes: u64) -> Result<(), CgroupError> {
        write(&self.memory_high_file()?, &bytes.to_string())
    }

    /// Returns that amount; `None` means none.
    pub fn memory_high(&self) -> Result<Option<u64>, CgroupError> {
        Ok(read(&self.memory_high_file()?)?.trim().parse().ok())
    }

    /// Returns how the kernel treats its memory below the limit.
    ///
    /// # Errors
    /// On v1, which has none of it.
    pub fn memory_qos(&self) -> Result<MemoryQos, CgroupError> {
        let high = self.memory_high()?;
        let folder = self.folder("memory")?;
        // "max" protects all of it.
        let bytes =
            |file| read(&folder.join(file)).map(|text| text.trim().parse().unwrap_or(u64::MAX));
        Ok(MemoryQos { min: bytes("memory.min")?, low: bytes("memory.low")?, high })
    }

    fn memory_high_file(&self) -> Result<PathBuf, CgroupError> {
        existing(self.folder("memory")?.join("memory.high"), "the memory controller of cgroup v2")
    }

    /// Limits the swap that the cgroup may use, in bytes, in addition to its memory limit `memory`.
    pub fn set_swap(&self, bytes: u64, memory: u64) -> Result<(), CgroupError> {
        let file = self.swap_file()?;
        // v1 limits the sum of both.
        let value = if self.is_v2() { bytes } else { bytes.saturating_add(memory) };
        write(&file, &value.to_string())
    }

    /// Returns the limit of the swap that is in force; `None` means no limit.
    pub fn swap(&self) -> Result<Option<u64>, CgroupError> {
        let text = read(&self.swap_file()?)?;
        let value = text.trim().parse().ok().filter(|bytes: &u64| *bytes < 1 << 62);
        Ok(match (self.is_v2(), value) {
            (true, value) => value,
            (false, Some(both)) => self.memory()?.map(|memory| both.saturating_sub(memory)),
            (false, None) => None,
        })
    }

    /// Returns the limit in force of explicit huge pages of 2 MiB, in bytes, and what of it is in
    /// use; `None` means no limit.
    ///
    /// # Errors
    /// If the hierarchy has no controller `hugetlb`.
    pub fn huge_pages(&self) -> Result<(Option<u64>, u64), CgroupError> {
        let folder = self.folder("hugetlb")?;
        let [limit, used] = match self.is_v2() {
            true => ["hugetlb.2MB.max", "hugetlb.2MB.current"],
            false => ["hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.usage_in_bytes"],
        };
        let read_bytes = |file: &str| -> Result<Option<u64>, CgroupError> {
            let file = existing(folder.join(file), "the hugetlb controller")?;
            Ok(read(&file)?.trim().parse().ok())
        };
        // v1 shows "no limit" as the largest whole number of pages.
        let limit = read_bytes(limit)?.filter(|bytes| *bytes < 1 << 62);
        Ok((limit, read_bytes(used)?.unwrap_or_default()))
    }

    fn swap_file(&self) -> Result<PathBuf, CgroupError> {
        let file = if self.is_v2() { "memory.swap.max" } else { "memory.memsw.limit_in_bytes" };
        existing(self.folder("memory")?.join(file), "CONFIG_SWAP and swap accounting")
    }

    /// Sets its weight for CPU time against the groups beside it, on the scale of v2.
    pub fn set_cpu_weight(&self, weight: u64) -> Result<(), CgroupError> {
        let file = self.folder("cpu")?.join(self.cpu_weight_file());
        write(&file, &self.cpu_weight_written(weight).to_string())
    }

    /// Returns what `set_cpu_weight` writes for a weight: a weight on v2, shares on v1.
    pub fn cpu_weight_written(&self, weight: u64) -> u64 {
        if self.is_v2() { weight } else { shares_of_weight(weight) }
    }

    /// Returns the name of the file to which it writes.
    pub fn cpu_weight_file(&self) -> &'static str {
        if self.is_v2() { "cpu.weight" } else { "cpu.shares" }
    }

    /// Returns what that file has.
    pub fn cpu_weight_found(&self) -> Result<u64, CgroupError> {
        let text = read(&self.folder("cpu")?.join(self.cpu_weight_file()))?;
        Ok(text.trim().parse().unwrap_or(0))
    }

    /// Checks that the kernel knows bursts.
    ///
    /// # Errors
    /// On kernels before 5.14, and without the cpu controller.
    pub fn check_burst(&self) -> Result<(), CgroupError> {
        self.burst_file().map(drop)
    }

    fn burst_file(&self) -> Result<PathBuf, CgroupError> {
        let file = if self.is_v2() { "cpu.max.burst" } else { "cpu.cfs_burst_us" };
        existing(self.folder("cpu")?.join(file), "Linux 5.14 for a burst")
    }

    /// Sets its weight for I/O against the groups beside it, on devices with the scheduler BFQ.
    pub fn set_io_weight(&self, weight: u64) -> Result<(), CgroupError> {
        write(&self.io_weight_file()?, &weight.to_string())
    }

    /// Returns that weight.
    pub fn io_weight(&self) -> Result<u64, CgroupError> {
        let text = read(&self.io_weight_file()?)?;
        // v2 also lists devices: "default 100", "8:16 50".
        let words = text.split_whitespace();
        Ok(words.filter_map(|word| word.parse().ok()).next().unwrap_or(0))
    }

    fn io_weight_file(&self) -> Result<PathBuf, CgroupError> {
        let file = if self.is_v2() { "io.bfq.weight" } else { "blkio.bfq.weight" };
        existing(self.io_folder()?.join(file), "CONFIG_BFQ_GROUP_IOSCHED")
    }

    /// Limits I/O on the block device with this number, such as `254:0`, per second.
    pub fn set_device_limit(
        &self,
        device: &str,
        limit: DeviceLimit,
        value: u64,
    ) -> Result<(), CgroupError> {
        let value = match self.is_v2() {
            true => format!("{device} {}={value}", limit.names().0),
            false => format!("{device} {value}"),
        };
        write(&self.device_file(limit)?, &value)
    }

    /// Returns the limit of a device that is in force; `None` means no limit.
    pub fn device_limit(
        &self,
        device: &str,
        limit: DeviceLimit,
    ) -> Result<Option<u64>, CgroupError> {
        let text = read(&self.device_file(limit)?)?;
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let Some((_, values)) = lines.find(|(number, _)| *number == device) else {
            return Ok(None);
        };
        let key = limit.names().0;
        let value = match self.is_v2() {
            true => values.split(' ').find_map(|pair| pair.strip_prefix(key)?.strip_prefix('=')),
            false => Some(values.trim()),
        };
        Ok(value.and_then(|value| value.parse().ok()))
    }

    fn device_file(&self, limit: DeviceLimit) -> Result<PathBuf, CgroupError> {
        let file = if self.is_v2() { "io.max" } else { limit.names().1 };
        existing(self.io_folder()?.join(file), "CONFIG_BLK_DEV_THROTTLING")
    }

    /// Returns the directory of the I/O controller, which v1 calls blkio.
    fn io_folder(&self) -> Result<PathBuf, CgroupError> {
        let folder = self.folder(if self.is_v2() { "io" } else { "blkio" })?;
        let missing = self.is_v2() && !self.layout.controllers().iter().any(|one| one == "io");
        if missing { Err(CgroupError::NoController { controller: "io" }) } else { Ok(folder) }
    }

    /// Returns the cgroups whose weights decide what this one gets against the other groups of a
    /// run: itself, and those above it but for the topmost, which is the run's.
    pub fn competing(&self) -> Vec<Self> {
        let parts: Vec<&str> = self.name.split('/').collect();
        let depths = (2..=parts.len()).rev();
        depths.map(|depth| Self { name: parts[..depth].join("/"), ..self.clone() }).collect()
    }
}

/// Returns the path of a file if the kernel has it.
fn existing(path: PathBuf, needs: &'static str) -> Result<PathBuf, CgroupError> {
    // A missing directory is another error, which the caller's access reports.
    let missing = path.parent().is_some_and(std::path::Path::exists) && !path.exists();
    if missing { Err(CgroupError::NoFile { path, needs }) } else { Ok(path) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::Layout;
    use super::*;

    #[test]
    fn weights_convert_as_in_the_runtimes() {
        // The limits and the defaults of both versions, and values of runc's own test.
        for (weight, shares) in [(1, 2), (100, 1024), (10_000, 262_144)] {
            assert_eq!(shares_of_weight(weight), shares);
        }
        let all: Vec<u64> = (1..=10_000).map(shares_of_weight).collect();
        assert!(all.is_sorted_by(|one, next| one < next), "every weight has shares of its own");
    }

    /// Creates the files of a cgroup as the kernel does, with these contents.
    fn with_files(v2: bool, files: &[(&str, &str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let root = tempfile::tempdir().unwrap();
        let folder = |controller: &str| root.path().join(if v2 { "v2" } else { controller });
        let layout = match v2 {
            true => Layout { v1: BTreeMap::new(), v2: Some(folder("")) },
            false => {
                let names = ["cpu", "memory", "blkio", "hugetlb"];
                let roots = names.map(|name| (name.to_string(), folder(name)));
                Layout { v1: roots.into_iter().collect(), v2: None }
            }
        };
        for (controller, file, text) in files {
            let folder = folder(controller).join("run/e1");
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(file), text).unwrap();
        }
        (root, layout.group("run/e1"))
    }

    #[test]
    fn writes_and_reads_files_of_v2() {
        let none = "max\n";
        let files = [
            ("cpu", "cpu.max", "max 100000\n"),
            ("cpu", "cpu.max.burst", "0\n"),
            ("memory", "memory.high", none),
            ("memory", "memory.min", "268435456\n"),
            ("memory", "memory.low", "0\n"),
            ("memory", "memory.swap.max", none),
            ("hugetlb", "hugetlb.2MB.max", "67108864\n"),
            ("hugetlb", "hugetlb.2MB.current", "2097152\n"),
            ("io", "io.max", ""),
            ("io", "io.bfq.weight", "default 100\n"),
        ];
        let (root, group) = with_files(true, &files);
        let missing = group.set_device_limit("8:0", DeviceLimit::ReadRate, 9).unwrap_err();
        assert!(missing.to_string().contains("no io cgroup controller"), "{missing}");
        fs::write(root.path().join("v2/cgroup.controllers"), "cpu io memory\n").unwrap();
        let limits = [group.memory_high(), group.swap()];
        assert!(limits.iter().all(|limit| matches!(limit, Ok(None))), "{limits:?}");
        assert_eq!(group.bandwidth().unwrap(), None);
        assert_eq!(group.huge_pages().unwrap(), (Some(64 << 20), 2 << 20));
        let qos = group.memory_qos().unwrap().to_string();
        assert_eq!(qos, "memory.min 268435456, memory.low 0, memory.high max");
        group.set_memory_high(5).unwrap();
        assert_eq!(group.memory_qos().unwrap().high, Some(5));
        group.set_swap(6, 100).unwrap();
        group.set_cpu_weight(50).unwrap();
        group.set_io_weight(70).unwrap();
        let wanted = Bandwidth { quota_us: 5000, period_us: 10_000, burst_us: 2000 };
        group.set_bandwidth(wanted).unwrap();
        group.set_device_limit("8:0", DeviceLimit::WriteBandwidth, 7).unwrap();
        assert_eq!((group.memory_high().unwrap(), group.swap().unwrap()), (Some(5), Some(6)));
        assert_eq!((group.io_weight().unwrap(), group.bandwidth().unwrap()), (70, Some(wanted)));
        let file = |file: &str| fs::read_to_string(root.path().join("v2/run/e1").join(file));
        assert_eq!(file("cpu.weight").unwrap(), "50");
        assert_eq!(file("io.max").unwrap(), "8:0 wbps=7");
        let whole = "8:16 rbps=1 wbps=2 riops=max wiops=3\n8:0 rbps=max wbps=7 riops=8 wiops=max\n";
        fs::write(root.path().join("v2/run/e1/io.max"), whole).unwrap();
        let found = |limit| group.device_limit("8:0", limit).unwrap();
        assert_eq!(found(DeviceLimit::WriteBandwidth), Some(7));
        assert_eq!(found(DeviceLimit::ReadRate), Some(8));
        assert_eq!(found(DeviceLimit::WriteRate), None);
    }

    #[test]
    fn writes_and_reads_files_of_v1() {
        let files = [
            ("cpu", "cpu.cfs_quota_us", "-1\n"),
            ("cpu", "cpu.cfs_period_us", "100000\n"),
            ("memory", "memory.limit_in_bytes", "100\n"),
            ("memory", "memory.memsw.limit_in_bytes", "9223372036854771712\n"),
            ("hugetlb", "hugetlb.2MB.limit_in_bytes", "9223372036852678656\n"),
            ("hugetlb", "hugetlb.2MB.usage_in_bytes", "0\n"),
            ("blkio", "blkio.throttle.write_iops_device", ""),
            ("blkio", "blkio.bfq.weight", "100\n"),
        ];
        let (root, group) = with_files(false, &files);
        assert_eq!((group.bandwidth().unwrap(), group.swap().unwrap()), (None, None));
        assert_eq!(group.huge_pages().unwrap(), (None, 0));
        group.set_swap(6, 100).unwrap();
        group.set_cpu_weight(100).unwrap();
        group.set_io_weight(70).unwrap();
        group.set_device_limit("8:0", DeviceLimit::WriteRate, 30).unwrap();
        assert_eq!((group.swap().unwrap(), group.io_weight().unwrap()), (Some(6), 70));
        let limit = |device| group.device_limit(device, DeviceLimit::WriteRate).unwrap();
        assert_eq!((limit("8:0"), limit("8:1")), (Some(30), None));
        let file = |file: &str| fs::read_to_string(root.path().join(file)).unwrap();
        assert_eq!(file("memory/run/e1/memory.memsw.limit_in_bytes"), "106");
        assert_eq!(file("cpu/run/e1/cpu.shares"), "1024");
        assert_eq!(
            (group.cpu_weight_written(100), group.cpu_weight_found().unwrap()),
            (1024, 1024)
        );
        // What this version or an old kernel lacks is one line.
        let burst = Bandwidth { quota_us: 5000, period_us: 10_000, burst_us: 1 };
        let refused = [
            (group.set_bandwidth(burst), "Linux 5.14"),
            (group.set_memory_high(1), "cgroup v2"),
            (group.memory_qos().map(drop), "cgroup v2"),
            (group.set_device_limit("8:0", DeviceLimit::ReadRate, 1), "CONFIG_BLK_DEV_THROTTLING"),
        ];
        for (result, expect) in refused {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
        let none = Layout { v1: BTreeMap::new(), v2: None }.group("run/e1");
        let error = none.set_device_limit("8:0", DeviceLimit::ReadRate, 1).unwrap_err();
        assert!(error.to_string().contains("no blkio cgroup controller"), "{error}");
        group.set_bandwidth(Bandwidth { burst_us: 0, ..burst }).unwrap();
        assert_eq!(group.bandwidth().unwrap(), Some(Bandwidth { burst_us: 0, ..burst }));
    }

    #[test]
    fn groups_above_compete_too() {
        let (_root, group) = with_files(true, &[]);
        let names = |name: &str| -> Vec<String> {
            let groups = group.layout.group(name).competing();
            groups.iter().map(|group| group.name().to_string()).collect()
        };
        assert_eq!(names("run/e1/own"), ["run/e1/own", "run/e1"]);
        assert_eq!(names("run.slice/docker-1.scope"), ["run.slice/docker-1.scope"]);
    }
}
