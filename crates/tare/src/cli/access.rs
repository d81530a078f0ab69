//! The options of `tare load` about connections and failures.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use tare_load::access::{self, Login, Protocol, Recovery, Tls, Trust, Version};
use tare_system::access::password_in;

use super::duration;
use crate::exit::{Exit, ExitWith};

/// The environment variable of the password, read if there is no password file.
const PASSWORD_VARIABLE: &str = "TARE_PASSWORD";

#[derive(Debug, Args)]
pub struct Access {
    /// Address of the database, or of several nodes; the first that responds lists the others.
    /// Without PORT it is the usual one of the protocol
    #[arg(value_name = "HOST:PORT", default_value = "127.0.0.1")]
    pub nodes: Vec<String>,
    /// Load the first node only, not the others of its data centre
    #[arg(long)]
    pub one_node: bool,
    /// Protocol: a version of CQL's (4 or 5), redis or memcached
    #[arg(long, value_name = "PROTOCOL", default_value = "4", value_parser = protocol)]
    pub protocol: Protocol,
    /// CQL: compress with LZ4
    #[arg(long)]
    pub lz4: bool,
    /// TLS: trust certificates signed by an authority in this PEM file
    #[arg(long, value_name = "FILE", conflicts_with = "tls_insecure")]
    pub tls_ca: Option<PathBuf>,
    /// TLS: trust any certificate, also that of an attacker on the network
    #[arg(long)]
    pub tls_insecure: bool,
    /// TLS: name in the server's certificate, if it is not HOST
    #[arg(long, value_name = "NAME")]
    pub tls_name: Option<String>,
    /// Print latencies by the kernel's times too: from when a request left to when its response
    /// came, without the time that the client needs to wake up
    #[arg(long)]
    pub kernel_times: bool,
    /// Log in as this user; the password is in `--password-file` or in `TARE_PASSWORD`
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE", requires = "user")]
    pub password_file: Option<PathBuf>,
    /// Give up an attempt without a response after this time; it may be retried
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// Retry an operation up to N times after a failure that may be temporary
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retry: u8,
    /// Send an operation a second time, on another connection, if there is no response after this
    /// time
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub speculative: Option<Duration>,
    /// Do not reopen broken connections
    #[arg(long)]
    pub no_reconnect: bool,
}

impl Access {
    /// Returns these options for the load generator, with the password.
    pub(crate) fn resolve(&self) -> anyhow::Result<access::Access> {
        let trust = match (&self.tls_ca, self.tls_insecure) {
            (Some(file), _) => Some(Trust::Authorities(file.clone())),
            (None, true) => Some(Trust::Anyone),
            (None, false) if self.tls_name.is_some() => {
                let why = "--tls-name needs --tls-ca FILE, the authorities to trust";
                return Err(anyhow::anyhow!(why)).exit_with(Exit::Usage);
            }
            (None, false) => None,
        };
        let server_name = self.tls_name.clone();
        Ok(access::Access {
            nodes: self.nodes.clone(),
            discover: !self.one_node,
            protocol: self.protocol,
            lz4: self.lz4,
            tls: trust.map(|trust| Tls { trust, server_name }),
            login: self.user.as_deref().map(|user| self.login(user)).transpose()?,
            kernel_times: self.kernel_times,
            recovery: Recovery {
                timeout: self.timeout,
                retries: self.retry,
                speculative: self.speculative,
                reconnect: !self.no_reconnect,
            },
        })
    }

    fn login(&self, user: &str) -> anyhow::Result<Login> {
        let password = match &self.password_file {
            Some(file) => password_in(file).exit_with(Exit::Input)?,
            None => std::env::var(PASSWORD_VARIABLE)
                .with_context(|| {
                    format!(
                        "no password for {user:?}: pass --password-file or set {PASSWORD_VARIABLE}"
                    )
                })
                .exit_with(Exit::Usage)?,
        };
        Ok(Login { user: user.into(), password })
    }
}

fn protocol(text: &str) -> Result<Protocol, String> {
    match text {
        "4" => Ok(Protocol::Cql(Version::V4)),
        "5" => Ok(Protocol::Cql(Version::V5)),
        "redis" => Ok(Protocol::Redis),
        "memcached" => Ok(Protocol::Memcached),
        _ => Err("expected 4, 5, redis or memcached".into()),
    }
}
