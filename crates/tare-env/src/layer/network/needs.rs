//! What a network layer needs of this host, found out before a study starts.

use std::fs;
use std::path::Path;

use tare_host::exec::{self, Command, ExecError};
use tare_host::{error_line, netns};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::Network;

use super::PASTA;
use crate::client::NetworkError;
use crate::run_context::RunContext;
use crate::unavailable::Unavailable;

/// Checks that this host can have a network layer. Without root the kernel cannot be asked, and
/// nothing is refused.
///
/// # Errors
/// Names the kernel's option or the program that is missing.
pub(crate) fn needs(network: Network) -> Result<(), Unavailable> {
    let (device, option) = match network {
        Network::Host | Network::Bridge { .. } | Network::None => return Ok(()),
        // What the cluster has to have is found out when its pod is made.
        Network::Service | Network::NodePort | Network::HostPort => return Ok(()),
        Network::Macvlan => ("link add link a name c type macvlan mode bridge", "CONFIG_MACVLAN"),
        Network::Ipvlan => ("link add link a name c type ipvlan mode l2", "CONFIG_IPVLAN"),
        Network::Vxlan => ("link add name c type vxlan id 1 dstport 4789 dev a", "CONFIG_VXLAN"),
        Network::Pasta if exec::find(PASTA).is_none() => {
            return Err(Unavailable {
                what: format!("network = \"{network}\""),
                why: format!("there is no program {PASTA}"),
                remedy: "apt-get install passt".into(),
            });
        }
        Network::Pasta => ("tuntap add dev c mode tap", "CONFIG_TUN"),
    };
    if !rustix::process::geteuid().is_root() || exec::find("ip").is_none() {
        return Ok(());
    }
    match try_device(device) {
        Ok(()) => Ok(()),
        Err(why) => Err(Unavailable {
            what: format!("network = \"{network}\""),
            why: format!("this kernel has no {network} ({why}; {})", configured(option)),
            remedy: format!("use a kernel with {option}, or another network"),
        }),
    }
}

/// Creates a device in a namespace that ends with this call. Loads the kernel's module, if there is
/// one, as the environment would.
fn try_device(device: &str) -> Result<(), String> {
    let ip = |words: &str| -> Result<(), ExecError> {
        Command::new("ip").args(words.split(' ')).run().map(drop)
    };
    let scratch = || {
        ip("link add name a type veth peer name b").map_err(|error| error_line(&error))?;
        ip(device).map_err(|error| error_line(&error))
    };
    match netns::in_scratch(scratch) {
        Ok(result) => result,
        Err(error) => Err(error.to_string()),
    }
}

/// Returns what the configuration of the running kernel has of an option, in words.
fn configured(option: &str) -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let boot = format!("/boot/config-{}", release.trim());
    let line = |path: &str| {
        let program = if path.ends_with(".gz") { "zcat" } else { "cat" };
        let command = Path::new(path).exists().then(|| Command::new(program).arg(path));
        let text = command?.run().ok()?.stdout;
        let names = |line: &&str| line.split([' ', '=']).any(|word| word == option);
        let found = text.lines().find(names);
        Some(format!("{path}: {}", found.unwrap_or(&format!("{option} is not there"))))
    };
    let found = line("/proc/config.gz").or_else(|| line(&boot));
    found.unwrap_or_else(|| format!("no file shows whether {option} is set"))
}

/// Checks that a network layer fits loaders and instances on other hosts.
pub(crate) fn check_hosts(
    spec: &EnvironmentSpec,
    context: &RunContext,
) -> Result<(), NetworkError> {
    let elsewhere = context.reach().is_some() || context.slot().peers().is_some();
    let is_reached =
        spec.network.reaches_other_hosts() || (spec.network.is_of_pods() && context.reaches_pods());
    match elsewhere && !is_reached {
        true => {
            Err(NetworkError::OneHost { environment: spec.name.clone(), network: spec.network })
        }
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_option_is_said_so() {
        let text = configured("CONFIG_TARE_HAS_NO_OPTION");
        assert!(text.contains("CONFIG_TARE_HAS_NO_OPTION"), "{text}");
        assert!(!text.contains("=y"), "{text}");
    }
}
