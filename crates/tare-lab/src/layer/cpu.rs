//! The cpu layer: which CPUs the system may run on, and how much of them.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

use tare_std::cpus::CpuSet;
use tare_std::units::parse_duration;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};
use crate::cpus::CpuPlan;

/// A value of the cpu layer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cpu {
    /// Every CPU of the plan that is not the client's, if there are more than two cores.
    Shared,
    /// The system's own CPUs only.
    Pinned,
    /// This many of the system's own CPUs, whole cores first.
    Cpus(u32),
    /// The CPUs of `Shared`, limited to this much of their time.
    Quota(Quota),
    /// The CPUs of `Shared`, of which a pod requests some time.
    Request(Request),
}

/// The CPU time that a pod requests, which is its weight on a busy node, and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// In CPUs, such as 1.5.
    pub cpus: f64,
    /// The limit in CPUs, which is above the request; `None` is none.
    pub limit: Option<f64>,
}

impl Request {
    /// Parses `1.5` or `1.5..3`.
    fn parse(text: &str) -> Option<Self> {
        let (cpus, limit) = text.split_once("..").map_or((text, None), |(c, l)| (c, Some(l)));
        let number = |text: &str| text.parse().ok().filter(|cpus| Quota::CPUS.contains(cpus));
        let cpus: f64 = number(cpus)?;
        let limit: Option<f64> = match limit {
            Some(limit) => Some(number(limit).filter(|limit| *limit > cpus)?),
            None => None,
        };
        Some(Self { cpus, limit })
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cpus)?;
        self.limit.map_or(Ok(()), |limit| write!(f, "..{limit}"))
    }
}

/// A limit of CPU time: in every period the system gets at most `cpus` times the period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quota {
    /// Such as 1.5.
    pub cpus: f64,
    pub period_us: u32,
    /// CPU time that the system may keep from earlier periods and use in a later one, in µs.
    pub burst_us: u32,
}

impl Quota {
    /// Valid quotas in CPUs.
    const CPUS: RangeInclusive<f64> = 0.01..=4096.0;

    /// The kernel's default period, in µs, and docker's.
    pub const PERIOD_US: u32 = 100_000;

    /// Valid periods, in µs (`min_cfs_quota_period` and `max_cfs_quota_period` in the kernel's
    /// kernel/sched/core.c).
    const PERIODS_US: RangeInclusive<u32> = 1_000..=1_000_000;

    /// The least CPU time in a period, in µs (`min_cfs_quota_period` there).
    const RUNTIME_US_MIN: f64 = 1_000.0;

    /// Returns a quota with the default period and without a burst.
    pub const fn of(cpus: f64) -> Self {
        Self { cpus, period_us: Self::PERIOD_US, burst_us: 0 }
    }

    /// Returns the CPU time in a period, in µs.
    pub fn runtime_us(self) -> f64 {
        self.cpus * f64::from(self.period_us)
    }

    /// Returns the same quota, if the kernel accepts it: a burst is at most the CPU time of a
    /// period (`tg_set_cfs_bandwidth` there).
    pub fn accepted(self) -> Option<Self> {
        let runtime = self.runtime_us();
        let valid = Self::CPUS.contains(&self.cpus)
            && Self::PERIODS_US.contains(&self.period_us)
            // A quota such as 0.01 is not exact.
            && runtime > Self::RUNTIME_US_MIN - 0.5
            && f64::from(self.burst_us) <= runtime + 0.5;
        valid.then_some(self)
    }

    /// Returns the share of one of `count` instances.
    pub fn part(self, count: u32) -> Self {
        let count = count.max(1);
        Self { cpus: self.cpus / f64::from(count), burst_us: self.burst_us / count, ..self }
    }

    /// Parses `1.5`, `1.5/10ms` or `1.5/10ms+5ms`.
    fn parse(text: &str) -> Option<Self> {
        let (cpus, times) = text.split_once('/').map_or((text, None), |(c, t)| (c, Some(t)));
        let (period, burst) = match times {
            None => (None, None),
            Some(times) => match times.split_once('+') {
                Some((period, burst)) => (Some(period), Some(burst)),
                None => (Some(times), None),
            },
        };
        let us = |text: &str| -> Option<u32> {
            let time: Duration = parse_duration(text).ok()?;
            u32::try_from(time.as_micros())
                .ok()
                .filter(|_| time.subsec_nanos().is_multiple_of(1000))
        };
        let period_us = period.map_or(Some(Self::PERIOD_US), us)?;
        let burst_us = burst.map_or(Some(0), us)?;
        Self { cpus: cpus.parse().ok()?, period_us, burst_us }.accepted()
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |us: u32| match us % 1000 {
            0 => format!("{}ms", us / 1000),
            _ => format!("{us}us"),
        };
        write!(f, "{}", self.cpus)?;
        if self.period_us != Self::PERIOD_US || self.burst_us > 0 {
            write!(f, "/{}", time(self.period_us))?;
        }
        if self.burst_us > 0 {
            write!(f, "+{}", time(self.burst_us))?;
        }
        Ok(())
    }
}

impl Cpu {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        (
            "shared",
            "not pinned: every CPU of the plan but the client's, those of interrupts included; with at \
             most two cores also the client's",
        ),
        ("pinned", "the system's own CPUs only: affinity, and a cpuset where it has a cgroup"),
        (
            "cpus=*",
            "this many of the system's own CPUs, whole cores first, of which each of several instances gets \
             its share, such as cpus=2",
        ),
        (
            "quota=*",
            "the CPUs of `shared`, limited to this many CPUs of time (CFS quota): quota=1.5, or with another \
             period than 100 ms quota=1.5/10ms, or with a burst, which is CPU time that the system may keep from \
             earlier periods (Linux 5.14), such as quota=1.5/10ms+5ms",
        ),
        (
            "request=*",
            "for a pod: the CPUs of `shared`, of which it requests this many CPUs of time, such as request=0.5; with \
             a limit above the request (Burstable), such as request=0.5..2",
        ),
    ];

    /// Returns the CPUs on which the system may run.
    pub fn set(self, plan: &CpuPlan) -> CpuSet {
        match self {
            Self::Pinned => plan.system.clone(),
            Self::Cpus(count) => plan.first(count),
            Self::Shared | Self::Quota(_) | Self::Request(_) if plan.shared.is_empty() => {
                plan.all.clone()
            }
            Self::Shared | Self::Quota(_) | Self::Request(_) => plan.shared.clone(),
        }
    }

    /// Returns whether the system has CPUs of its own, which a cpuset holds where it has a cgroup.
    pub fn has_cpuset(self) -> bool {
        match self {
            Self::Pinned | Self::Cpus(_) => true,
            Self::Shared | Self::Quota(_) | Self::Request(_) => false,
        }
    }

    /// Returns the quota in force: that of `Quota`, or the limit of `Request`.
    pub fn quota(self) -> Option<Quota> {
        match self {
            Self::Quota(quota) => Some(quota),
            Self::Request(request) => request.limit.map(Quota::of),
            Self::Shared | Self::Pinned | Self::Cpus(_) => None,
        }
    }

    /// Returns how many of `usable` CPUs a system has the time of, in whole CPUs: a quota is
    /// rounded up.
    pub fn whole_cpus(self, usable: usize) -> usize {
        match self.quota() {
            Some(quota) => (1..=usable).find(|cpus| *cpus as f64 >= quota.cpus).unwrap_or(usable),
            None => usable,
        }
    }
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.pad("shared"),
            Self::Pinned => f.pad("pinned"),
            Self::Cpus(count) => f.pad(&format!("cpus={count}")),
            Self::Quota(quota) => f.pad(&format!("quota={quota}")),
            Self::Request(request) => f.pad(&format!("request={request}")),
        }
    }
}

impl FromStr for Cpu {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        let bad = |wanted: &str| BadLayerValue::new(Layer::Cpu, text, wanted);
        if let Some(request) = text.strip_prefix("request=") {
            return Request::parse(request).map(Self::Request).ok_or_else(|| {
                bad("a request is a number of CPUs such as request=0.5, and a limit above it may follow \
                     (request=0.5..2)")
            });
        }
        match (text, text.strip_prefix("quota="), text.strip_prefix("cpus=")) {
            ("shared", ..) => Ok(Self::Shared),
            ("pinned", ..) => Ok(Self::Pinned),
            (_, Some(quota), _) => Quota::parse(quota).map(Self::Quota).ok_or_else(|| {
                bad("a quota is a number of CPUs such as quota=1.5, a period from 1ms to 1s may follow \
                     (quota=1.5/10ms), and a burst (quota=1.5/10ms+5ms); the quota of a period is at least 1 ms \
                     of CPU time, and a burst at most that quota")
            }),
            (_, _, Some(count)) => {
                let count = count.parse().ok().filter(|count| (1..=4096).contains(count));
                count.map(Self::Cpus).ok_or_else(|| {
                    bad("cpus is a whole number of CPUs, from 1 to 4096, such as cpus=2")
                })
            }
            _ => Err(BadLayerValue::unknown(Layer::Cpu, text)),
        }
    }
}

serde_as_text!(Cpu);
