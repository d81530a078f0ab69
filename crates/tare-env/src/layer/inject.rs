//! The inject layer: known costs, added so that the instrument itself can be tried
//! (`cargo xtask calibrate`, docs/concepts/trust.md). No study of a real layer uses it.
//!
//! Each kind has a truth in one figure. Several are joined by `+`: `busy=20us+quota=97%`.
//! They are for `runtime = "process"`: elsewhere the layer's own cost would stand beside the truth.

use std::fs;
use std::io;
use std::net::SocketAddrV4;
use std::process::{Child, Stdio};
use std::time::Duration;

use tare_host::RUN_VARIABLE;
use tare_host::cgroup::{self, Cgroup};
use tare_host::exec::{Command, ExecError};
use tare_lab::environment::{CpuPlan, EnvironmentSpec, Launch, LayerState, NOTHING_INJECTED};
use tare_std::units::parse_duration;

use super::network::{NetworkError, free_port};
use super::{CpuLayer, Layer, LayerError, NetworkLayer};
use crate::site::Ground;
use crate::system::{self, System};

pub const LAYER: Layer = Layer {
    name: "inject",
    help: "a known cost that is added, so that Tare itself can be tried (runtime = \"process\")",
    values: &[
        (NOTHING_INJECTED, "nothing is added"),
        ("busy=*", "so much CPU time per operation, burnt by the server itself, such as busy=2us"),
        ("delay=*", "a relay that holds every answer back for so long, such as delay=200us"),
        ("quota=*", "a cgroup quota of so many percent of the system's CPUs, such as quota=97%"),
        ("filter=*", "a system call filter of so many instructions, such as filter=200"),
    ],
    needs: "the system tare-db; for quota the cpu cgroup controller and cgroup = \"own\"; for delay network = \"host\"",
    cleanup: "the relay is killed; the rest goes with the process and its cgroup",
    read_back: "the arguments of the running system and of the relay; the quota's file; the Seccomp line",
};

/// The longest cost per operation that can be injected.
const TIME_MAX: Duration = Duration::from_secs(1);
/// The kernel takes 4096 instructions at most; one of them is the return.
const INSTRUCTIONS_MAX: u16 = 4095;

/// What is added. Nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InjectLayer {
    /// CPU time per operation inside the server.
    pub busy: Option<Duration>,
    /// By which every answer is held back. 0 is a relay without delay: what a delay is compared with.
    pub delay: Option<Duration>,
    /// Quota in percent of the CPUs that the plan gives the system.
    pub quota_percent: Option<f64>,
    /// Instructions of the filter.
    pub filter: Option<u16>,
}

/// Why a cost cannot be injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    #[error(
        "cannot inject {what} into this system: only tare-db can do that; set inject = \"none\""
    )]
    System { what: &'static str },
    #[error("cannot start the relay that delays")]
    Relay(#[from] ExecError),
    #[error("cannot place the relay that delays")]
    Place(#[from] NetworkError),
}

impl InjectLayer {
    pub fn parse(text: &str) -> Option<Self> {
        let mut layer = Self::default();
        if text == NOTHING_INJECTED {
            return Some(layer);
        }
        for part in text.split('+') {
            let (name, value) = part.split_once('=')?;
            let again = match name {
                "busy" => {
                    let time = duration(value).filter(|time| !time.is_zero())?;
                    layer.busy.replace(time).is_some()
                }
                "delay" => layer.delay.replace(duration(value)?).is_some(),
                "quota" => {
                    let percent = value.strip_suffix('%')?.parse().ok()?;
                    let known = (1.0..=100.0).contains(&percent);
                    layer.quota_percent.replace(known.then_some(percent)?).is_some()
                }
                "filter" => {
                    let length = value.parse().ok()?;
                    let known = (1..=INSTRUCTIONS_MAX).contains(&length);
                    layer.filter.replace(known.then_some(length)?).is_some()
                }
                _ => return None,
            };
            if again {
                return None;
            }
        }
        Some(layer)
    }

    /// Whether the other layers leave room for it.
    pub(super) fn check(
        self,
        spec: &EnvironmentSpec,
        network: NetworkLayer,
        cpu: CpuLayer,
    ) -> Result<(), LayerError> {
        let environment = spec.name.clone();
        if self != Self::default() && spec.runtime != "process" {
            let (value, runtime) = (spec.inject.clone(), spec.runtime.clone());
            return Err(LayerError::InjectRuntime { environment, value, runtime });
        }
        if self.delay.is_some() && network != NetworkLayer::Host {
            let network = spec.network.clone();
            return Err(LayerError::InjectNetwork { environment, network });
        }
        if self.quota_percent.is_some() && matches!(cpu, CpuLayer::Quota(_)) {
            return Err(LayerError::TwoQuotas { environment, cpu: spec.cpu.clone() });
        }
        Ok(())
    }

    /// The quota in CPUs.
    pub(crate) fn quota_cpus(self, plan: &CpuPlan) -> Option<f64> {
        Some(self.quota_percent? / 100.0 * plan.system.len() as f64)
    }

    /// The arguments of `tare db` that inject.
    fn arguments(self) -> Vec<String> {
        let busy = self.busy.map(|time| ("--inject-busy-ns", time.as_nanos().to_string()));
        let filter = self.filter.map(|length| ("--inject-filter", length.to_string()));
        let words = [busy, filter].into_iter().flatten();
        words.flat_map(|(name, value)| [name.to_string(), value]).collect()
    }

    /// The launch of a system with what it has to do to itself.
    ///
    /// # Errors
    /// When the system cannot do that.
    pub(crate) fn launch(self, launch: &Launch) -> Result<Launch, InjectError> {
        let mut launch = launch.clone();
        let arguments = self.arguments();
        if !arguments.is_empty() && launch.arguments.first().is_none_or(|word| word != "db") {
            let what = if self.busy.is_some() { "a busy loop" } else { "a filter" };
            return Err(InjectError::System { what });
        }
        launch.arguments.extend(arguments);
        Ok(launch)
    }

    /// What is found of it while the system runs. `None` where nothing was asked for: then a filter or
    /// a quota that is there shows in the layers that it belongs to.
    pub(crate) fn read_back(
        self,
        system: &System,
        plan: &CpuPlan,
        wanted: &str,
    ) -> Option<LayerState> {
        if self == Self::default() {
            return None;
        }
        let mut found = Vec::new();
        let mut in_force = true;
        let wants = self.arguments();
        if !wants.is_empty() {
            let line = command_line(system.pid);
            in_force &= wants.chunks(2).all(|want| line.windows(2).any(|words| words == want));
            found.push(shown(&line));
        }
        if self.filter.is_some() {
            let mode = system.read_seccomp();
            in_force &= mode == Some(2);
            found.push(mode.map_or("Seccomp unreadable".into(), |mode| format!("Seccomp: {mode}")));
        }
        if let Some(cpus) = self.quota_cpus(plan) {
            let quota = system.group.as_ref().map(Cgroup::quota);
            let want = format!("{} {}", cgroup::quota_us(cpus), cgroup::QUOTA_PERIOD_US);
            in_force &= matches!(&quota, Some(Ok(quota)) if *quota == want);
            found.push(match quota {
                Some(Ok(quota)) => format!("quota: {quota} µs"),
                Some(Err(error)) => error.to_string(),
                None => "no cgroup of its own".into(),
            });
        }
        if let Some(delay) = self.delay {
            let line = system.proxy.map(command_line).unwrap_or_default();
            in_force &= line.windows(2).any(|words| words == relay_delay(delay));
            found.push(format!("relay: {}", shown(&line)));
        }
        Some(system::state("inject", wanted, found.join("; "), in_force))
    }
}

/// `2us`, `350ns`, `1.5ms`; 0 has a unit too.
fn duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok().filter(|time| *time <= TIME_MAX)
}

/// The arguments of a process, empty where it has gone.
fn command_line(pid: u32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The part of a command line that injects.
fn shown(line: &[String]) -> String {
    let from = line.iter().position(|word| word.starts_with("--inject") || word == "--delay");
    from.map_or_else(|| "no such argument".to_string(), |from| line[from..].join(" "))
}

fn relay_delay(delay: Duration) -> [String; 2] {
    ["--delay".to_string(), format!("{}ns", delay.as_nanos())]
}

/// The relay of an injected delay: a process of its own between client and system. Ends when dropped.
#[derive(Debug)]
pub(crate) struct Relay {
    child: Child,
    address: SocketAddrV4,
}

impl Relay {
    /// Starts it in front of what will listen on `to`.
    pub(crate) fn start(
        ground: &Ground,
        to: SocketAddrV4,
        delay: Duration,
    ) -> Result<Self, InjectError> {
        let address = SocketAddrV4::new(*to.ip(), free_port(*to.ip())?);
        let command = Command::new(ground.program())
            .args(["proxy", "--listen", &address.to_string(), "--to", &to.to_string()])
            .args(relay_delay(delay).each_ref().map(String::as_str))
            .variable(RUN_VARIABLE, ground.run())
            .on_cpus(&ground.cpus().all);
        let child = command.spawn(Stdio::null(), Stdio::null(), Stdio::null())?;
        Ok(Self { child, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Ends it. Idempotent.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Whoever wants to know calls `end`; the mark of the run lets `clean` find it.
        let _ = self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_nothing_is_guessed() {
        let one = |layer| Some(layer);
        let none = InjectLayer::default();
        let (us, ns) = (Duration::from_micros, Duration::from_nanos);
        let cases = [
            ("none", one(none)),
            ("busy=2us", one(InjectLayer { busy: Some(us(2)), ..none })),
            ("busy=0.35us", one(InjectLayer { busy: Some(ns(350)), ..none })),
            ("busy=1.5ms", one(InjectLayer { busy: Some(us(1500)), ..none })),
            ("delay=0us", one(InjectLayer { delay: Some(us(0)), ..none })),
            ("quota=97%", one(InjectLayer { quota_percent: Some(97.0), ..none })),
            ("filter=200", one(InjectLayer { filter: Some(200), ..none })),
            (
                "busy=20us+quota=90%",
                one(InjectLayer { busy: Some(us(20)), quota_percent: Some(90.0), ..none }),
            ),
        ];
        for (text, expect) in cases {
            assert_eq!(InjectLayer::parse(text), expect, "{text}");
        }
        for bad in [
            "",
            "busy",
            "busy=",
            "busy=2",
            "busy=0us",
            "busy=2s",
            "busy=-1us",
            "busy=NaNus",
            "busy=2us+",
            "busy=1us+busy=2us",
            "quota=97",
            "quota=0%",
            "quota=101%",
            "filter=0",
            "filter=4096",
            "none+busy=2us",
            "delay=200",
        ] {
            assert_eq!(InjectLayer::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_database_is_told_and_others_are_refused() {
        let layer = InjectLayer::parse("busy=2us+filter=200").unwrap();
        let launch = |words: &[&str]| Launch {
            arguments: words.iter().map(|w| w.to_string()).collect(),
            ..Launch::default()
        };
        let told = layer.launch(&launch(&["db", "--smp", "1"])).unwrap().arguments.join(" ");
        assert_eq!(told, "db --smp 1 --inject-busy-ns 2000 --inject-filter 200");
        let refused = layer.launch(&launch(&["other"])).unwrap_err().to_string();
        assert!(refused.contains("only tare-db"), "{refused}");
        let outside = InjectLayer::parse("quota=97%").unwrap();
        assert_eq!(outside.launch(&launch(&["other"])).unwrap(), launch(&["other"]));
    }
}
