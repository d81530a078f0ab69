//! The inject layer: known costs, added to test the instrument itself (`cargo xtask calibrate`,
//! docs/concepts/trust.md). No study of a real layer uses it.
//!
//! Each kind has one true figure. Several are joined by `+`: `busy=20us+quota=97%`. They are for
//! `runtime = "process"`: elsewhere the cost of other layers would add to the truth.

use std::io;
use std::net::SocketAddrV4;
use std::process::{Child, Stdio};
use std::time::Duration;

use tare_host::RUN_VARIABLE;
use tare_host::exec::{Command, ExecError};
use tare_lab::environment::Launch;
use tare_lab::layer::Inject;

use super::network::{NetworkError, free_port};
use crate::run_context::RunContext;

/// Why a cost cannot be injected.
#[derive(Debug, thiserror::Error)]
pub enum InjectError {
    #[error(
        "cannot inject {what} into this system: only tare-db can do that; set inject = \"none\""
    )]
    System { what: &'static str },
    #[error("cannot start the relay of the injected delay")]
    Relay(#[from] ExecError),
    #[error("cannot find an address for the relay of the injected delay")]
    Place(#[from] NetworkError),
}

/// Returns the arguments of `tare db` that inject.
pub(crate) fn arguments(inject: Inject) -> Vec<String> {
    let busy = inject.busy.map(|time| ("--inject-busy-ns", time.as_nanos().to_string()));
    let filter = inject.filter.map(|length| ("--inject-filter", length.to_string()));
    let words = [busy, filter].into_iter().flatten();
    words.flat_map(|(name, value)| [name.to_string(), value]).collect()
}

/// Returns the launch with the arguments of costs that the system adds itself.
///
/// # Errors
/// When the system cannot add them.
pub(crate) fn launch(inject: Inject, launch: &Launch) -> Result<Launch, InjectError> {
    let mut launch = launch.clone();
    let arguments = arguments(inject);
    if !arguments.is_empty() && launch.arguments.first().is_none_or(|word| word != "db") {
        let what = if inject.busy.is_some() { "a busy loop" } else { "a filter" };
        return Err(InjectError::System { what });
    }
    launch.arguments.extend(arguments);
    Ok(launch)
}

/// The arguments of `tare proxy` for the delay.
pub(crate) fn relay_delay(delay: Duration) -> [String; 2] {
    ["--delay".to_string(), format!("{}ns", delay.as_nanos())]
}

/// The relay of an injected delay: a separate process between client and system. Dropping it kills
/// the process.
#[derive(Debug)]
pub(crate) struct Relay {
    child: Child,
    address: SocketAddrV4,
}

impl Relay {
    /// Starts a relay that forwards to `to`.
    pub(crate) fn start(
        context: &RunContext,
        to: SocketAddrV4,
        delay: Duration,
    ) -> Result<Self, InjectError> {
        let address = SocketAddrV4::new(*to.ip(), free_port(*to.ip())?);
        let command = Command::new(context.program())
            .args(["proxy", "--listen", &address.to_string(), "--to", &to.to_string()])
            .args(relay_delay(delay).each_ref().map(String::as_str))
            .variable(RUN_VARIABLE, context.run())
            .on_cpus(&context.cpus().all);
        let child = command.spawn(Stdio::null(), Stdio::null(), Stdio::null())?;
        Ok(Self { child, address })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the address at which it listens.
    pub(crate) fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// Stops the relay. Idempotent.
    pub(crate) fn stop(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(|_| ())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Callers that need the error call `stop`. `clean` finds a process left by the run's mark.
        let _ = self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tare_db_gets_arguments() {
        let layer: Inject = "busy=2us+filter=200".parse().unwrap();
        let words = |words: &[&str]| Launch {
            arguments: words.iter().map(|w| w.to_string()).collect(),
            ..Launch::default()
        };
        let injected = launch(layer, &words(&["db", "--smp", "1"])).unwrap().arguments.join(" ");
        assert_eq!(injected, "db --smp 1 --inject-busy-ns 2000 --inject-filter 200");
        let refused = launch(layer, &words(&["other"])).unwrap_err().to_string();
        assert!(refused.contains("only tare-db"), "{refused}");
        let outside: Inject = "quota=97%".parse().unwrap();
        assert_eq!(launch(outside, &words(&["other"])).unwrap(), words(&["other"]));
    }
}
