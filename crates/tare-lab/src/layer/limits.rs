//! The limits layer: how much of each resource the system gets.
//!
//! One layer holds all keys, because most of them make sense together (a swap limit extends a
//! memory limit), and because a study that ablates them separately has an environment for each.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

/// The size of the huge pages that a limit counts.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Limits and weights of an environment. `None` is no limit, or the default weight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_high_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swap_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub huge_pages_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_weight: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub io_weight: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_bytes_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reads_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes_per_s: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bytes_per_s: Option<u64>,
}

/// A key of the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Memory,
    MemoryHigh,
    Swap,
    HugePages,
    CpuWeight,
    IoWeight,
    ReadBandwidth,
    WriteBandwidth,
    ReadIops,
    WriteIops,
    NetworkBandwidth,
}

impl Limit {
    /// Every key, in the order of texts.
    pub const ALL: [Self; 11] = [
        Self::Memory,
        Self::MemoryHigh,
        Self::Swap,
        Self::HugePages,
        Self::CpuWeight,
        Self::IoWeight,
        Self::ReadBandwidth,
        Self::WriteBandwidth,
        Self::ReadIops,
        Self::WriteIops,
        Self::NetworkBandwidth,
    ];

    /// Returns the name, which is the key in a study.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::MemoryHigh => "memory_high",
            Self::Swap => "swap",
            Self::HugePages => "huge_pages",
            Self::CpuWeight => "cpu_weight",
            Self::IoWeight => "io_weight",
            Self::ReadBandwidth => "read_bandwidth",
            Self::WriteBandwidth => "write_bandwidth",
            Self::ReadIops => "read_iops",
            Self::WriteIops => "write_iops",
            Self::NetworkBandwidth => "network_bandwidth",
        }
    }

    /// Returns whether the value is an amount of bytes, which a study may write with a unit.
    pub const fn is_bytes(self) -> bool {
        matches!(self, Self::Memory | Self::MemoryHigh | Self::Swap | Self::HugePages)
            || self.is_bandwidth()
    }

    const fn is_bandwidth(self) -> bool {
        matches!(self, Self::ReadBandwidth | Self::WriteBandwidth | Self::NetworkBandwidth)
    }

    /// Returns whether the value is an amount in each second.
    const fn is_rate(self) -> bool {
        matches!(self, Self::ReadIops | Self::WriteIops) || self.is_bandwidth()
    }

    /// Returns whether the value is a weight, which instances do not divide.
    pub const fn is_weight(self) -> bool {
        matches!(self, Self::CpuWeight | Self::IoWeight)
    }

    /// Returns whether it limits the I/O of the block device that holds the data.
    pub const fn is_of_device(self) -> bool {
        matches!(
            self,
            Self::IoWeight
                | Self::ReadBandwidth
                | Self::WriteBandwidth
                | Self::ReadIops
                | Self::WriteIops
        )
    }

    /// Returns the valid values. Weights have the kernel's ranges (cgroup-v2.rst,
    /// block/bfq-iosched.rst). The least bandwidths and rates leave a system able to start.
    pub const fn range(self) -> RangeInclusive<u64> {
        const MOST: u64 = 1 << 60;
        match self {
            Self::Memory | Self::MemoryHigh => 1 << 20..=MOST,
            Self::Swap => 0..=MOST,
            Self::HugePages => HUGE_PAGE_BYTES..=MOST,
            Self::CpuWeight => 1..=10_000,
            Self::IoWeight => 1..=1000,
            Self::ReadBandwidth | Self::WriteBandwidth | Self::NetworkBandwidth => 1 << 16..=MOST,
            Self::ReadIops | Self::WriteIops => 10..=1 << 30,
        }
    }

    /// Returns the valid values in words.
    pub const fn range_text(self) -> &'static str {
        match self {
            Self::Memory | Self::MemoryHigh => "at least 1M, or \"none\"",
            Self::Swap => "an amount of memory, or \"none\"",
            Self::HugePages => "at least 2M, or \"none\"",
            Self::CpuWeight => "from 1 to 10000, or \"none\"",
            Self::IoWeight => "from 1 to 1000, or \"none\"",
            Self::ReadBandwidth | Self::WriteBandwidth | Self::NetworkBandwidth => {
                "at least 64K (bytes per second), or \"none\""
            }
            Self::ReadIops | Self::WriteIops => "at least 10 per second, or \"none\"",
        }
    }
}

impl Limits {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        (
            "memory",
            "an amount such as 512M or 6G, page cache included; without it there is no limit",
        ),
        (
            "memory_high",
            "the amount above which the kernel reclaims and slows the system down instead of killing it \
             (memory.high); cgroup v2 only, because the soft limit of v1 is another thing",
        ),
        (
            "swap",
            "the swap that it may use in addition to `memory`, which it needs; 0 forbids swapping",
        ),
        (
            "huge_pages",
            "the explicit huge pages of 2 MiB that it may use (hugetlb), such as 512M; pods only, on a node that has some",
        ),
        (
            "cpu_weight",
            "its weight against other groups of the run where CPUs are scarce, from 1 to 10000 (default 100); \
             on cgroup v1 cpu.shares, by the conversion of the runtimes",
        ),
        (
            "io_weight",
            "its weight against other groups on the data's device, from 1 to 1000 (default 100); only the \
             scheduler bfq honours it",
        ),
        (
            "read_bandwidth",
            "bytes per second that it may read from the block device of the data, such as 20M",
        ),
        (
            "write_bandwidth",
            "bytes per second that it may write there; cgroup v1 does not limit what the kernel writes \
             back later from the page cache",
        ),
        ("read_iops", "reads per second from that device"),
        ("write_iops", "writes per second to that device, as write_bandwidth"),
        (
            "network_bandwidth",
            "bytes per second in each direction between the system and its bridge, such as 10M; needs \
             network = \"bridge\"",
        ),
    ];

    /// Returns the value of a key.
    pub const fn get(&self, limit: Limit) -> Option<u64> {
        match limit {
            Limit::Memory => self.memory_bytes,
            Limit::MemoryHigh => self.memory_high_bytes,
            Limit::Swap => self.swap_bytes,
            Limit::HugePages => self.huge_pages_bytes,
            Limit::CpuWeight => self.cpu_weight,
            Limit::IoWeight => self.io_weight,
            Limit::ReadBandwidth => self.read_bytes_per_s,
            Limit::WriteBandwidth => self.write_bytes_per_s,
            Limit::ReadIops => self.reads_per_s,
            Limit::WriteIops => self.writes_per_s,
            Limit::NetworkBandwidth => self.network_bytes_per_s,
        }
    }

    /// Sets the value of a key.
    pub fn set(&mut self, limit: Limit, value: Option<u64>) {
        *match limit {
            Limit::Memory => &mut self.memory_bytes,
            Limit::MemoryHigh => &mut self.memory_high_bytes,
            Limit::Swap => &mut self.swap_bytes,
            Limit::HugePages => &mut self.huge_pages_bytes,
            Limit::CpuWeight => &mut self.cpu_weight,
            Limit::IoWeight => &mut self.io_weight,
            Limit::ReadBandwidth => &mut self.read_bytes_per_s,
            Limit::WriteBandwidth => &mut self.write_bytes_per_s,
            Limit::ReadIops => &mut self.reads_per_s,
            Limit::WriteIops => &mut self.writes_per_s,
            Limit::NetworkBandwidth => &mut self.network_bytes_per_s,
        } = value;
    }

    /// Returns the keys that have a value, with it.
    pub fn all(self) -> impl Iterator<Item = (Limit, u64)> {
        Limit::ALL.into_iter().filter_map(move |limit| Some((limit, self.get(limit)?)))
    }

    /// Returns the share of one of `count` instances: of limits its part, of weights the whole.
    pub fn part(self, count: u32) -> Self {
        let mut part = self;
        for (limit, value) in self.all().filter(|(limit, _)| !limit.is_weight()) {
            part.set(limit, Some(value / u64::from(count.max(1))));
        }
        part
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |(limit, value): (Limit, u64)| {
            let amount = if limit.is_bytes() { in_unit(value) } else { value.to_string() };
            let per = if limit.is_rate() { "/s" } else { "" };
            format!("{} {amount}{per}", limit.name().replace('_', " "))
        };
        let texts: Vec<String> = self.all().map(text).collect();
        f.pad(if texts.is_empty() { "none".into() } else { texts.join(", ") }.as_str())
    }
}

/// Returns an amount of bytes in the largest unit of which it is a multiple.
fn in_unit(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = units.into_iter().find(|(unit, _)| bytes > 0 && bytes.is_multiple_of(*unit));
    let (unit, name) = unit.unwrap_or((1, "bytes"));
    format!("{} {name}", bytes / unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_values_of_the_layer() {
        let names: Vec<&str> = Limits::VALUES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, Limit::ALL.map(Limit::name));
    }

    #[test]
    fn instances_divide_limits_but_not_weights() {
        let mut limits = Limits::default();
        assert_eq!(limits.to_string(), "none");
        for limit in Limit::ALL {
            limits.set(limit, Some(1 << 20));
        }
        let part = limits.part(2);
        for limit in Limit::ALL {
            let expect = if limit.is_weight() { 1 << 20 } else { 1 << 19 };
            assert_eq!(part.get(limit), Some(expect), "{limit:?}");
        }
        let few = Limits { memory_bytes: Some(7), writes_per_s: Some(30), ..Limits::default() };
        assert_eq!(few.to_string(), "memory 7 bytes, write iops 30/s");
        assert_eq!(few.part(1), few);
        let round = Limits {
            memory_bytes: Some(2 << 30),
            read_bytes_per_s: Some(1536 << 10),
            ..Limits::default()
        };
        assert_eq!(round.to_string(), "memory 2 GiB, read bandwidth 1536 KiB/s");
    }
}
