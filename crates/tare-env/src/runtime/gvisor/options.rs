//! The options of gVisor, `sandbox = { platform = "ptrace" }`, parsed and checked against the other
//! layers.

use tare_lab::environment::EnvironmentSpec;

use super::platform::Platform;
use crate::layer::Layers;
use tare_lab::layer::Network;

/// Every option as (name, one line, values).
pub const OPTIONS: &[(&str, &str, &[&str])] = &[
    (
        "platform",
        "how system calls are intercepted: systrap (default), ptrace, kvm",
        &["systrap", "ptrace", "kvm"],
    ),
    (
        "network",
        "the network stack: sandbox, gVisor's own (default), or host (default with network = \"host\")",
        &["sandbox", "host"],
    ),
    (
        "directfs",
        "whether the sandbox opens files itself (yes, default) or the gofer does (no)",
        YES_NO,
    ),
];

const YES_NO: &[&str] = &["yes", "no"];

/// Why the options of gVisor are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error(
        "environment {environment:?}: only gVisor has sandbox options; set runtime = \"oci:runsc\""
    )]
    NotGvisor { environment: String },
    #[error("environment {environment:?}: gVisor has no option {name:?}; it has {known}")]
    Unknown { environment: String, name: String, known: String },
    #[error("environment {environment:?}: {name} = {value:?} is not {wanted}")]
    Value { environment: String, name: String, value: String, wanted: String },
    #[error(
        "environment {environment:?}: with network = \"{network}\" gVisor's own stack would take the \
         addresses of others; set network = \"bridge\" or sandbox = {{ network = \"host\" }}"
    )]
    HostNetwork { environment: String, network: Network },
    #[error(
        "environment {environment:?}: gVisor's own stack takes its address from the device, and \
         ipvlan then delivers nothing to it; set network = \"macvlan\" or sandbox = {{ network = \
         \"host\" }}"
    )]
    Ipvlan { environment: String },
}

/// The network stack of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    Sandbox,
    Host,
}

impl Stack {
    /// Returns the name that studies and `runsc --network` use.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Sandbox => "sandbox",
            Self::Host => "host",
        }
    }
}

/// The options with their defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) platform: Platform,
    pub(crate) stack: Stack,
    pub(crate) directfs: bool,
}

impl Options {
    /// Parses and checks the options of an environment in gVisor.
    pub(crate) fn parse(spec: &EnvironmentSpec, layers: &Layers) -> Result<Self, OptionError> {
        let environment = || spec.name.clone();
        // Its own stack would take the addresses of a namespace that it shares.
        let host = matches!(layers.network, Network::Host | Network::None);
        let mut options = Self {
            platform: Platform::Systrap,
            stack: if host { Stack::Host } else { Stack::Sandbox },
            directfs: true,
        };
        for (name, value) in &spec.sandbox {
            let Some((_, _, values)) = OPTIONS.iter().find(|(known, _, _)| known == name) else {
                let known: Vec<&str> = OPTIONS.iter().map(|(name, _, _)| *name).collect();
                let (name, known) = (name.clone(), known.join(", "));
                return Err(OptionError::Unknown { environment: environment(), name, known });
            };
            if !values.contains(&value.as_str()) {
                return Err(OptionError::Value {
                    environment: environment(),
                    name: name.clone(),
                    value: value.clone(),
                    wanted: values.join(" or "),
                });
            }
            match (name.as_str(), value.as_str()) {
                ("platform", word) => {
                    let found = Platform::ALL.into_iter().find(|one| one.word() == word);
                    options.platform = found.unwrap_or(Platform::Systrap);
                }
                ("network", word) => {
                    options.stack = if word == "host" { Stack::Host } else { Stack::Sandbox };
                }
                (_, word) => options.directfs = word == "yes",
            }
        }
        if host && options.stack == Stack::Sandbox {
            let network = layers.network;
            return Err(OptionError::HostNetwork { environment: environment(), network });
        }
        if layers.network == Network::Ipvlan && options.stack == Stack::Sandbox {
            return Err(OptionError::Ipvlan { environment: environment() });
        }
        Ok(options)
    }

    /// Returns the flags of `runsc`, which precede the verb. With `writes_root` the data is in the
    /// root file system, for which gVisor would otherwise use an overlay of its own.
    pub(crate) fn flags(self, writes_root: bool) -> Vec<String> {
        let mut flags = vec![
            format!("--platform={}", self.platform.word()),
            format!("--network={}", self.stack.word()),
        ];
        let others = [(!self.directfs, "--directfs=false"), (writes_root, "--overlay2=none")];
        flags.extend(others.iter().filter(|(wanted, _)| *wanted).map(|(_, flag)| (*flag).into()));
        flags
    }
}

#[cfg(test)]
mod tests {
    use tare_testkit::EnvironmentBuilder;

    use super::*;

    fn parse(network: &str, security: &str, pairs: &[(&str, &str)]) -> Result<Options, String> {
        let spec = EnvironmentBuilder::new("oci:runsc")
            .network(network)
            .security(security)
            .sandbox(pairs)
            .build();
        let layers = Layers::checked(&spec).unwrap();
        Options::parse(&spec, &layers).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_parsed_and_checked_against_the_layers() {
        let flags = |network, pairs| parse(network, "default", pairs).unwrap().flags(false);
        assert_eq!(flags("bridge", &[]), ["--platform=systrap", "--network=sandbox"]);
        assert_eq!(flags("host", &[]), ["--platform=systrap", "--network=host"]);
        assert_eq!(
            flags("bridge", &[("platform", "ptrace"), ("network", "host"), ("directfs", "no")]),
            ["--platform=ptrace", "--network=host", "--directfs=false"]
        );
        let writes = parse("bridge", "default", &[]).unwrap().flags(true);
        assert_eq!(writes[2..], ["--overlay2=none"]);
        for (network, security, pair, says) in [
            ("bridge", "none", ("platform", "kvn"), "systrap or ptrace or kvm"),
            ("bridge", "none", ("colour", "red"), "colour"),
            ("host", "none", ("network", "sandbox"), "take the addresses of others"),
        ] {
            let error = parse(network, security, &[pair]).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }
}
