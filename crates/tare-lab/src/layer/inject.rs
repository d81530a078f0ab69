//! The inject layer: known costs, injected to test Tare itself (`cargo xtask calibrate`,
//! docs/concepts/trust.md). No study of a real layer uses it.
//!
//! Each kind has one known effect. `+` joins several: `busy=20us+quota=97%`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use tare_std::units::parse_duration;

use super::Layer;
use super::text::{BadLayerValue, serde_as_text};
use crate::cpus::CpuPlan;

/// The longest time per operation that can be injected.
const TIME_MAX: Duration = Duration::from_secs(1);
/// The longest filter that can be injected. The kernel allows 4096 instructions, one of which is
/// the return.
pub const INJECTED_INSTRUCTIONS_MAX: u16 = 4095;

/// The injected costs. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Inject {
    /// CPU time per operation inside the server.
    pub busy: Option<Duration>,
    /// Delay of every answer. 0 is a relay without delay, with which delays are compared.
    pub delay: Option<Duration>,
    /// Quota, in percent of the CPUs that the plan gives the system.
    pub quota_percent: Option<f64>,
    /// Number of instructions of a system call filter.
    pub filter: Option<u16>,
}

impl Inject {
    pub(super) const VALUES: &'static [(&'static str, &'static str)] = &[
        ("none", "no injected cost"),
        ("busy=*", "CPU time per operation, spent by the server itself, such as busy=2us"),
        ("delay=*", "a relay that delays every answer by this time, such as delay=200us"),
        ("quota=*", "a cgroup quota in percent of the system's CPUs, such as quota=97%"),
        ("filter=*", "a system call filter with this many instructions, such as filter=200"),
    ];

    /// Returns whether no cost is injected.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the quota in CPUs.
    pub fn quota_cpus(&self, plan: &CpuPlan) -> Option<f64> {
        Some(self.quota_percent? / 100.0 * plan.system.len() as f64)
    }

    /// Adds one `NAME=VALUE`. Returns `None` if it is unknown, out of range or set already.
    fn add(&mut self, part: &str) -> Option<()> {
        let (name, value) = part.split_once('=')?;
        let again = match name {
            "busy" => {
                let time = duration(value).filter(|time| !time.is_zero())?;
                self.busy.replace(time).is_some()
            }
            "delay" => self.delay.replace(duration(value)?).is_some(),
            "quota" => {
                let percent = value.strip_suffix('%')?.parse().ok()?;
                let known = (1.0..=100.0).contains(&percent);
                self.quota_percent.replace(known.then_some(percent)?).is_some()
            }
            "filter" => {
                let length = value.parse().ok()?;
                let known = (1..=INJECTED_INSTRUCTIONS_MAX).contains(&length);
                self.filter.replace(known.then_some(length)?).is_some()
            }
            _ => return None,
        };
        (!again).then_some(())
    }
}

impl fmt::Display for Inject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            self.busy.map(|time| format!("busy={}", time_text(time))),
            self.delay.map(|time| format!("delay={}", time_text(time))),
            self.quota_percent.map(|percent| format!("quota={percent}%")),
            self.filter.map(|length| format!("filter={length}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.pad(&if parts.is_empty() { "none".to_string() } else { parts.join("+") })
    }
}

impl FromStr for Inject {
    type Err = BadLayerValue;

    fn from_str(text: &str) -> Result<Self, BadLayerValue> {
        let mut inject = Self::default();
        if text == "none" {
            return Ok(inject);
        }
        let bad = || BadLayerValue::unknown(Layer::Inject, text);
        text.split('+').try_for_each(|part| inject.add(part)).ok_or_else(bad)?;
        Ok(inject)
    }
}

serde_as_text!(Inject);

/// Parses `2us`, `350ns`, `1.5ms`. Every value needs a unit, even 0.
fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok().filter(|time| *time <= TIME_MAX)
}

/// Formats a time in the largest unit in which it is a whole number.
fn time_text(time: Duration) -> String {
    let ns = time.as_nanos();
    match ns {
        0 => "0us".to_string(),
        _ if ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ if ns.is_multiple_of(1000) => format!("{}us", ns / 1000),
        _ => format!("{ns}ns"),
    }
}
