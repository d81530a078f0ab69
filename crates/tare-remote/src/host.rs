//! A connection to one host.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use openssh::{ControlPersist, KnownHosts, Session, SessionBuilder};
use serde::{Deserialize, Serialize};
use tare_kube::NodePod;
use tare_std::host_address::{RemoteAddress, SshAddress};
use tokio::runtime::{Builder, Runtime};

use crate::error::{Cause, RemoteError, refusal};
use crate::process::RemoteProcess;

/// Time limit for the connection to be made.
const CONNECT: Duration = Duration::from_secs(15);
/// Three of these without an answer end a connection.
const ALIVE: Duration = Duration::from_secs(5);
/// The master connection ends this long after the last command, also when Tare was killed.
const IDLE_S: NonZeroUsize = NonZeroUsize::new(60).unwrap();
/// Names another configuration file of ssh than the user's.
const CONFIG_VARIABLE: &str = "TARE_SSH_CONFIG";

/// Prints the lines of [`HostBasics`].
const BASICS: &str = "uname -m; uname -r; id -u; echo \"$SSH_CONNECTION\"";

/// What a host says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostBasics {
    /// `uname -m`, such as `x86_64`.
    pub architecture: String,
    /// `uname -r`.
    pub kernel: String,
    /// Whether commands run as root there.
    pub is_root: bool,
    /// The address from which the host sees this one (`SSH_CONNECTION`). A jump host or NAT
    /// between them makes it another host's. `None` for a node of a cluster.
    pub seen_from: Option<IpAddr>,
}

/// A connection to another host. Commands can run at the same time.
#[derive(Clone, Debug)]
pub struct RemoteHost {
    address: RemoteAddress,
    way: Way,
}

/// How a host is reached.
#[derive(Clone, Debug)]
enum Way {
    Ssh { session: Arc<Session>, runtime: Arc<Runtime> },
    Pod(NodePod),
}

impl RemoteHost {
    /// Connects to a host. `directory` holds the socket of the connection, and must have a path of
    /// less than 70 characters.
    ///
    /// # Errors
    /// `Connect` with what ssh said, when the host cannot be reached, its key is unknown or has
    /// changed, or it refuses the user's key.
    pub fn connect(address: &SshAddress, directory: &Path) -> Result<Self, RemoteError> {
        let config = std::env::var_os(CONFIG_VARIABLE).map(PathBuf::from);
        Self::connect_with(address, directory, config.as_deref())
    }

    /// As [`Self::connect`], with another configuration file of ssh than the user's.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub fn connect_with(
        address: &SshAddress,
        directory: &Path,
        config: Option<&Path>,
    ) -> Result<Self, RemoteError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|source| RemoteError::Runtime { source })?;
        let mut builder = SessionBuilder::default();
        builder
            .known_hosts_check(KnownHosts::Strict)
            .connect_timeout(CONNECT)
            .server_alive_interval(ALIVE)
            .control_directory(directory)
            .control_persist(ControlPersist::IdleFor(IDLE_S));
        if let Some(user) = address.user() {
            builder.user(user.into());
        }
        if let Some(port) = address.port() {
            builder.port(port);
        }
        if let Some(file) = config {
            builder.config_file(file);
        }
        let connected = runtime.block_on(builder.connect(address.host()));
        let session = connected.map_err(|error| RemoteError::Connect {
            host: address.to_string(),
            why: refusal(&error, &destination(address)),
        })?;
        let way = Way::Ssh { session: Arc::new(session), runtime: Arc::new(runtime) };
        Ok(Self { address: RemoteAddress::Ssh(address.clone()), way })
    }

    /// Returns a node of a cluster through its pod, or a pod itself, at this address.
    pub fn through(pod: NodePod, address: &RemoteAddress) -> Self {
        Self { address: address.clone(), way: Way::Pod(pod) }
    }

    /// Connects again to a host whose connection is lost. `directory` is as for [`Self::connect`].
    ///
    /// # Errors
    /// As [`Self::connect`]; `Lost` for a pod that does not run any more.
    pub fn again(&self, directory: &Path) -> Result<Self, RemoteError> {
        match &self.address {
            RemoteAddress::Ssh(address) => Self::connect(address, directory),
            // Each command has a connection of its own.
            RemoteAddress::Node(_) | RemoteAddress::Pod(_) => self.check().map(|()| self.clone()),
        }
    }

    /// Returns the host's name as the user wrote it (`ssh:db1`).
    pub fn name(&self) -> String {
        self.address.to_string()
    }

    pub fn address(&self) -> &RemoteAddress {
        &self.address
    }

    /// Starts a program with these arguments on the host. Its three streams are pipes.
    ///
    /// # Errors
    /// `Run` or `Pipe` when it cannot be started.
    pub fn start(&self, program: &str, arguments: &[&str]) -> Result<RemoteProcess, RemoteError> {
        match &self.way {
            Way::Ssh { session, runtime } => {
                RemoteProcess::over_ssh(&self.name(), session, runtime, program, arguments)
            }
            Way::Pod(pod) => RemoteProcess::in_pod(&self.name(), program, |streams| {
                pod.start(program, arguments, streams)
            }),
        }
    }

    /// Lets the program of a pod put itself where it can be started, and returns what it prints;
    /// `None` for a host whose way has no program of its own.
    pub(crate) fn place_program(&self) -> Result<Option<Vec<u8>>, RemoteError> {
        let Way::Pod(pod) = &self.way else { return Ok(None) };
        if !pod.has_program() {
            return Ok(None);
        }
        let name = self.name();
        let process = RemoteProcess::in_pod(&name, "tare", |streams| pod.place_program(streams))?;
        self.output_of(process, "tare", io::empty()).map(Some)
    }

    /// Runs a program to its end, with `input` as its standard input, and returns its output.
    ///
    /// # Errors
    /// `Failed` with its last output when its status is not 0; `Run` and `Lost` when it does not
    /// run or the connection breaks.
    pub fn output(
        &self,
        program: &str,
        arguments: &[&str],
        input: impl Read + Send,
    ) -> Result<Vec<u8>, RemoteError> {
        let process = self.start(program, arguments)?;
        self.output_of(process, program, input)
    }

    fn output_of(
        &self,
        mut process: RemoteProcess,
        program: &str,
        mut input: impl Read + Send,
    ) -> Result<Vec<u8>, RemoteError> {
        let pipe = |source| RemoteError::Pipe { host: self.name(), source };
        let (stdin, stderr) = (process.stdin.take(), process.stderr.take());
        let mut output = Vec::new();
        let mut stderr_text = String::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // A program that ends before it has read everything tells why by its status.
                if let Some(mut stdin) = stdin {
                    let _ = io::copy(&mut input, &mut stdin).and_then(|_| stdin.flush());
                }
            });
            scope.spawn(|| stderr.map(|mut stderr| stderr.read_to_string(&mut stderr_text)));
            process.stdout.take().map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut output))
        })
        .map_err(pipe)?;
        let status = process.wait()?;
        if status.success() {
            return Ok(output);
        }
        let (program, host) = (program.to_string(), self.name());
        Err(RemoteError::Failed { program, host, status: status.to_string(), stderr: stderr_text })
    }

    /// Reads what the host is.
    ///
    /// # Errors
    /// As [`Self::output`].
    pub fn basics(&self) -> Result<HostBasics, RemoteError> {
        let text = self.output("sh", &["-c", BASICS], io::empty())?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let mut lines = text.lines().map(str::trim);
        let mut next = || lines.next().unwrap_or_default().to_string();
        let (architecture, kernel, user, connection) = (next(), next(), next(), next());
        let seen_from = connection.split(' ').next().and_then(|address| address.parse().ok());
        Ok(HostBasics { architecture, kernel, is_root: user == "0", seen_from })
    }

    /// Checks that the connection is there.
    ///
    /// # Errors
    /// `Lost` when it is not.
    pub fn check(&self) -> Result<(), RemoteError> {
        match &self.way {
            Way::Ssh { session, runtime } => {
                runtime.block_on(session.check()).map_err(|error| self.lost(error.into()))
            }
            Way::Pod(pod) => pod.check().map_err(|error| self.lost(error.into())),
        }
    }

    fn lost(&self, source: Cause) -> RemoteError {
        RemoteError::Lost { host: self.name(), source }
    }
}

/// Returns what a user passes to `ssh` for this host.
fn destination(address: &SshAddress) -> String {
    let port = address.port().map(|port| format!("-p {port} ")).unwrap_or_default();
    let user = address.user().map(|user| format!("{user}@")).unwrap_or_default();
    format!("{port}{user}{}", address.host())
}
