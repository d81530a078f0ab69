//! The client of a container engine with docker's API on a unix socket: blocking calls, each with a
//! time limit. The journal removes what the calls create (`crate::undo`).
//!
//! Limits: only engines on this host, because namespaces, CPUs and filters are read from its /proc,
//! and the client's network is linked to the engine's network namespace.

use std::collections::HashMap;
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::exec::{StartExecOptions, StartExecResults};
use bollard::models::{
    ContainerCreateBody, ContainerInspectResponse, ContainerSummaryStateEnum, ExecConfig,
    ImageInspect, Ipam, IpamConfig, NetworkCreateRequest, SystemInfo, SystemInfoCgroupDriverEnum,
    VolumeCreateRequest,
};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, CreateImageOptionsBuilder, InspectContainerOptions,
    ListContainersOptionsBuilder, LogsOptionsBuilder, StartContainerOptions,
};
use futures_util::{TryStreamExt, stream};
use hyper::body::Bytes;
use tokio::runtime::{Builder, Runtime};

use crate::rootfs::Config;
use crate::unavailable::Unavailable;

/// How long an engine may take to answer the first request.
const PING_LIMIT: Duration = Duration::from_secs(5);
/// How long any other call may take: a sandbox takes seconds to start.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// The size of the chunks in which an archive is sent.
const CHUNK_BYTES: u64 = 1 << 20;

/// A container with a label.
#[derive(Debug, Default)]
pub(super) struct Labelled {
    pub(super) name: String,
    pub(super) labels: HashMap<String, String>,
    pub(super) runs: bool,
}

/// The supported engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Docker,
    Podman,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// Returns the environment variable for the engine's socket, and the default socket.
    fn place(self) -> (&'static str, &'static str) {
        match self {
            Self::Docker => ("DOCKER_HOST", "/var/run/docker.sock"),
            Self::Podman => ("CONTAINER_HOST", "/run/podman/podman.sock"),
        }
    }

    fn remedy(self) -> String {
        let (variable, _) = self.place();
        let get = match self {
            Self::Docker => "apt-get install docker.io, then systemctl start docker",
            Self::Podman => "apt-get install podman, then systemctl start podman.socket",
        };
        format!("{get}; or set {variable}=unix:///path/of/its.sock")
    }

    fn unavailable(self, why: String) -> Unavailable {
        Unavailable { what: self.name().into(), why, remedy: self.remedy() }
    }

    /// Returns the engine's socket.
    ///
    /// # Errors
    /// Fails if the variable names something other than a unix socket.
    fn socket(self) -> Result<PathBuf, Unavailable> {
        let (variable, usual) = self.place();
        match std::env::var(variable) {
            Err(_) => Ok(usual.into()),
            Ok(value) if value.is_empty() => Ok(usual.into()),
            Ok(value) => match value.strip_prefix("unix://") {
                Some(path) => Ok(path.into()),
                None => Err(self.unavailable(format!(
                    "{variable} is {value:?}, but an engine must be on this host"
                ))),
            },
        }
    }
}

/// Why a call to an engine failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum EngineError {
    #[error("{engine} cannot {what}")]
    Call { engine: &'static str, what: String, source: bollard::errors::Error },
    #[error("{engine} did not {what} within {} s", .limit.as_secs())]
    TimedOut { engine: &'static str, what: String, limit: Duration },
    #[error("{engine} has no image {name}; run {engine} pull {name}")]
    NoImage { engine: &'static str, name: String },
    #[error("cannot read {} for the image", .path.display())]
    Archive { path: PathBuf, source: io::Error },
}

impl EngineError {
    /// Whether the engine does not have what the call names.
    pub(super) fn is_not_found(&self) -> bool {
        use bollard::errors::Error::DockerResponseServerError;
        matches!(
            self,
            Self::Call { source: DockerResponseServerError { status_code: 404, .. }, .. }
        )
    }
}

/// A client of an engine.
#[derive(Debug)]
pub(super) struct Engine {
    kind: Kind,
    socket: PathBuf,
    /// The process behind the socket.
    pid: u32,
    client: Docker,
    runtime: Runtime,
}

impl Engine {
    /// Connects and negotiates the version of the API.
    ///
    /// # Errors
    /// Fails if the engine does not answer, and reports how to get it.
    pub(super) fn connect(kind: Kind) -> Result<Self, Unavailable> {
        let socket = kind.socket()?;
        let shown = socket.display().to_string();
        let stream = UnixStream::connect(&socket).map_err(|error| {
            kind.unavailable(match error.kind() {
                io::ErrorKind::NotFound => format!("there is no socket {shown}"),
                io::ErrorKind::PermissionDenied => format!("the socket {shown} needs root"),
                _ => format!("no process answers at {shown} ({error})"),
            })
        })?;
        let no_answer = |why: String| kind.unavailable(format!("{shown} does not answer: {why}"));
        let peer = rustix::net::sockopt::socket_peercred(&stream);
        let peer = peer.map_err(|error| no_answer(error.to_string()))?;
        drop(stream);
        let runtime = Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| no_answer(error.to_string()))?;
        let seconds = CALL_LIMIT.as_secs();
        let client = Docker::connect_with_unix(&shown, seconds, bollard::API_DEFAULT_VERSION)
            .map_err(|error| no_answer(error.to_string()))?;
        let negotiate =
            async { tokio::time::timeout(PING_LIMIT, client.negotiate_version()).await };
        let client = match runtime.block_on(negotiate) {
            Ok(Ok(client)) => client,
            Ok(Err(error)) => return Err(no_answer(error.to_string())),
            Err(_) => return Err(no_answer(format!("timed out after {} s", PING_LIMIT.as_secs()))),
        };
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        let engine = Self { kind, socket, pid, client, runtime };
        if !engine.namespace().exists() {
            let why = "the engine's process is not visible in /proc".to_string();
            return Err(kind.unavailable(why));
        }
        Ok(engine)
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Returns the engine's process.
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the engine's network namespace, which `network = "host"` means.
    pub(super) fn namespace(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.pid).into()
    }

    /// Returns the names of the engine's runtimes, and the default one.
    pub(super) fn runtimes(&self) -> Result<(Vec<String>, Option<String>), EngineError> {
        let info = self.call("list its runtimes", self.client.info())?;
        let mut names: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        names.sort();
        Ok((names, info.default_runtime))
    }

    /// Returns name and version, such as `docker 20.10.24`.
    pub(super) fn version(&self) -> Result<String, EngineError> {
        let version = self.call("report its version", self.client.version())?;
        Ok(format!("{} {}", self.kind.name(), version.version.unwrap_or_default()))
    }

    /// Returns the storage driver of the containers' root file systems, such as `overlay2`.
    pub(super) fn driver(&self) -> Result<String, EngineError> {
        let info = self.call("report its storage driver", self.client.info())?;
        Ok(info.driver.unwrap_or_default())
    }

    /// Returns whether systemd creates the cgroups of its containers.
    pub(super) fn has_systemd_cgroups(&self) -> Result<bool, EngineError> {
        let info = self.call("report its cgroup driver", self.client.info())?;
        Ok(info.cgroup_driver == Some(SystemInfoCgroupDriverEnum::SYSTEMD))
    }

    /// Creates a named volume and returns its path on the host. `bound` is the directory that it
    /// shows instead of one of the engine's.
    pub(super) fn create_volume(
        &self,
        name: &str,
        bound: Option<PathBuf>,
    ) -> Result<PathBuf, EngineError> {
        // The options of the driver `local` are those of mount(8).
        let options = bound.as_ref().map(|path| {
            let device = path.to_string_lossy().into_owned();
            let pairs = [("type", "none".into()), ("o", "bind".into()), ("device", device)];
            pairs.map(|(name, value)| (name.to_string(), value)).into()
        });
        let request = VolumeCreateRequest {
            name: Some(name.into()),
            driver_opts: options,
            ..Default::default()
        };
        let made = self.client.create_volume(request);
        let made = self.call(&format!("create the volume {name}"), made)?;
        // The engine mounts it for its containers only.
        Ok(bound.unwrap_or_else(|| made.mountpoint.into()))
    }

    /// Creates a network with a bridge of its own, in which we choose the addresses.
    pub(super) fn create_network(
        &self,
        name: &str,
        subnet: &str,
        gateway: Ipv4Addr,
    ) -> Result<(), EngineError> {
        let gateway = Some(gateway.to_string());
        let config = IpamConfig { subnet: Some(subnet.into()), gateway, ..IpamConfig::default() };
        let request = NetworkCreateRequest {
            name: name.into(),
            driver: Some("bridge".into()),
            ipam: Some(Ipam { config: Some(vec![config]), ..Ipam::default() }),
            ..NetworkCreateRequest::default()
        };
        let made = self.client.create_network(request);
        self.call(&format!("create the network {name}"), made).map(drop)
    }

    /// Imports a tar archive as an image. Podman reads the file itself: what it receives over its
    /// socket it copies to /var/tmp and leaves there (4.3, `api_load.tar*`).
    pub(super) fn import(&self, name: &str, archive: &Path) -> Result<(), EngineError> {
        let options = CreateImageOptionsBuilder::new().repo(name).tag("latest");
        let import = match self.kind {
            Kind::Docker => {
                let fail = |source| EngineError::Archive { path: archive.into(), source };
                let body = bollard::body_try_stream(stream::iter(chunks(archive).map_err(fail)?));
                self.client.create_image(Some(options.from_src("-").build()), Some(body), None)
            }
            Kind::Podman => {
                let path = archive.to_string_lossy();
                self.client.create_image(Some(options.from_src(&path).build()), None, None)
            }
        };
        self.call(&format!("import the image {name}"), import.try_for_each(|_| async { Ok(()) }))
    }

    /// Returns the id and the configuration of an image of the engine.
    pub(super) fn image(&self, name: &str) -> Result<(String, Config), EngineError> {
        let found = self.describe_image(name).map_err(|error| {
            let (engine, name) = (self.kind.name(), name.to_string());
            match error.is_not_found() {
                true => EngineError::NoImage { engine, name },
                false => error,
            }
        })?;
        let config = found.config.unwrap_or_default();
        let mut start = Config::default();
        start
            .set_entrypoint(config.entrypoint)
            .set_cmd(config.cmd)
            .set_env(config.env)
            .set_working_dir(config.working_dir)
            .set_user(config.user);
        Ok((found.id.unwrap_or_default(), start))
    }

    /// Returns what the engine says about an image, in the form of its API.
    pub(super) fn describe_image(&self, name: &str) -> Result<ImageInspect, EngineError> {
        self.call(&format!("find the image {name}"), self.client.inspect_image(name))
    }

    /// Returns what the engine says about itself.
    pub(super) fn describe(&self) -> Result<SystemInfo, EngineError> {
        self.call("describe itself", self.client.info())
    }

    pub(super) fn create(&self, name: &str, body: ContainerCreateBody) -> Result<(), EngineError> {
        let options = CreateContainerOptionsBuilder::new().name(name).build();
        let what = format!("create the container {name}");
        self.call(&what, self.client.create_container(Some(options), body)).map(drop)
    }

    pub(super) fn start(&self, name: &str) -> Result<(), EngineError> {
        let start = self.client.start_container(name, None::<StartContainerOptions>);
        self.call(&format!("start the container {name}"), start)
    }

    /// Returns the containers with this label, and whether each runs.
    pub(super) fn labelled(&self, label: &str) -> Result<Vec<Labelled>, EngineError> {
        let filters = HashMap::from([("label", vec![label])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let list = self.client.list_containers(Some(options));
        let found = self.call(&format!("list the containers with {label}"), list)?.into_iter();
        Ok(found
            .map(|one| Labelled {
                name: one
                    .names
                    .into_iter()
                    .flatten()
                    .next()
                    .map_or_else(String::new, |name| name.trim_start_matches('/').to_string()),
                labels: one.labels.unwrap_or_default(),
                runs: one.state == Some(ContainerSummaryStateEnum::RUNNING),
            })
            .collect())
    }

    pub(super) fn inspect(&self, name: &str) -> Result<ContainerInspectResponse, EngineError> {
        let inspect = self.client.inspect_container(name, None::<InspectContainerOptions>);
        self.call(&format!("inspect the container {name}"), inspect)
    }

    /// Lets the container's runtime pause it until `unpause`.
    pub(super) fn pause(&self, name: &str) -> Result<(), EngineError> {
        self.call(&format!("pause the container {name}"), self.client.pause_container(name))
    }

    pub(super) fn unpause(&self, name: &str) -> Result<(), EngineError> {
        self.call(&format!("resume the container {name}"), self.client.unpause_container(name))
    }

    /// Executes a command in a container and returns its standard output.
    pub(super) fn exec(&self, name: &str, words: &[&str]) -> Result<String, EngineError> {
        let config = ExecConfig {
            attach_stdout: Some(true),
            cmd: Some(words.iter().map(|word| (*word).to_string()).collect()),
            ..ExecConfig::default()
        };
        let exec = async {
            let made = self.client.create_exec(name, config).await?;
            let started = self.client.start_exec(&made.id, None::<StartExecOptions>).await?;
            match started {
                StartExecResults::Attached { output, .. } => {
                    output.map_ok(|line| line.to_string()).try_collect::<String>().await
                }
                StartExecResults::Detached => Ok(String::new()),
            }
        };
        self.call(&format!("execute {} in {name}", words.join(" ")), exec)
    }

    /// Returns the last lines that the container printed.
    pub(super) fn log_tail(&self, name: &str) -> Result<String, EngineError> {
        let options = LogsOptionsBuilder::new().stdout(true).stderr(true).tail("20").build();
        let logs = self.client.logs(name, Some(options));
        let lines = logs.map_ok(|line| line.to_string()).try_collect::<String>();
        self.call(&format!("show the log of {name}"), lines)
    }

    fn call<T>(
        &self,
        what: &str,
        future: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, EngineError> {
        let engine = self.kind.name();
        let limited = async { tokio::time::timeout(CALL_LIMIT, future).await };
        match self.runtime.block_on(limited) {
            Ok(answer) => {
                answer.map_err(|source| EngineError::Call { engine, what: what.into(), source })
            }
            Err(_) => Err(EngineError::TimedOut { engine, what: what.into(), limit: CALL_LIMIT }),
        }
    }
}

/// Returns the content of a file in chunks.
fn chunks(path: &Path) -> io::Result<impl Iterator<Item = io::Result<Bytes>> + use<>> {
    let mut file = File::open(path)?;
    Ok(std::iter::from_fn(move || {
        let mut chunk = Vec::new();
        match file.by_ref().take(CHUNK_BYTES).read_to_end(&mut chunk) {
            Ok(0) => None,
            Ok(_) => Some(Ok(chunk.into())),
            Err(error) => Some(Err(error)),
        }
    }))
}

/// Returns the engine's userland proxy for a published address, if it runs one.
pub(super) fn userland_proxy(namespace: &Path, published: SocketAddrV4) -> Option<u32> {
    let wanted = fs::read_link(namespace).ok()?;
    let (address, port) = (published.ip().to_string(), published.port().to_string());
    let is_proxy = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let program = words.first().copied().unwrap_or_default();
        program.ends_with(b"docker-proxy")
            && words.windows(2).any(|w| w[0] == b"-host-ip" && w[1] == address.as_bytes())
            && words.windows(2).any(|w| w[0] == b"-host-port" && w[1] == port.as_bytes())
            && fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|found| found == wanted)
    };
    tare_host::process::all().into_iter().find(is_proxy)
}
