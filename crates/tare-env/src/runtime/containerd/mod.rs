//! containerd without Docker: a container and its task through containerd's API on a unix socket,
//! run by a shim, such as that of runc.
//!
//! Method: only the engine differs from `oci`. Bundle, root file system, network, storage, cgroups
//! and read-back are the same code, so a study that has both shows what containerd and its shim
//! cost. containerd gets the bundle's specification and the mounted root file system; it has no
//! image and no snapshot. The containers of a run are in a containerd namespace of their own,
//! `tare-RUN`, and the shim keeps runc's state in the directory of the start. Three things in the
//! specification are other than in the bundle, because a shim is no child of Tare: the path of the
//! root, the network namespace if containerd is not in Tare's, and the OOM score.
//!
//! Limits: only a containerd of this host, in the same mount and pid namespaces, because shims use
//! Tare's mounts. Without a cgroup, memory is not bound to NUMA nodes: the policy of a shim is not
//! Tare's to set, and the read-back reports it. Kata is not yet tried on a host with KVM. gVisor's
//! shim is refused: it was tried with containerd 1.6 without success, and needs CAP_SYS_RESOURCE.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use serde_json::{Value, json};
use tare_host::journal::Entry;
use tare_host::{RUN_VARIABLE, mounts, process};
use tare_lab::PartError;
use tare_lab::environment::{Environment, EnvironmentSpec};

use super::contract::{Argument, Runtime};
use super::gvisor;
use super::kata;
use super::oci::{self, Creation, Engine, Place};
use crate::containerd::messages::{Any, RuncOptions, Status};
use crate::containerd::{Client, NewContainer};
use crate::layer::Layers;
use crate::layer::rootfs::PATH;
use crate::run_context::RunContext;
use crate::unavailable::Unavailable;
use crate::undo::ContainerEntry;

mod directories;
mod shim;

use directories::Directories;

pub use crate::containerd::{CallError, ContainerdError};

pub const RUNTIME: Runtime = Runtime {
    name: "containerd",
    help: "a container of containerd, without Docker, through its API",
    argument: Argument::Optional("SHIM"),
    options: &[(
        "rootfs",
        "as with oci: an image is an archive or a directory, and nothing is pulled",
    )],
    needs,
    cleanup: "processes killed, task, container and namespace removed through containerd",
    read_back: "containerd's task; the pid namespace of the system's process",
    found,
    make,
};

/// The variable for containerd's socket, which `ctr` and `nerdctl` read too, and the default.
const VARIABLE: &str = "CONTAINERD_ADDRESS";
const SOCKET: &str = "/run/containerd/containerd.sock";

/// The shim of runc.
const RUNC: &str = "io.containerd.runc.v2";

/// How long containerd may take to answer the first request.
const FIRST_LIMIT: Duration = Duration::from_secs(5);

const REMEDY: &str = "apt-get install containerd, then systemctl start containerd; or set \
                      CONTAINERD_ADDRESS=/path/of/its.sock";

/// A containerd that answers.
struct Found {
    socket: PathBuf,
    pid: u32,
    version: String,
}

fn unavailable(argument: Option<&str>, why: String, remedy: &str) -> Unavailable {
    let what = argument.map_or("containerd".into(), |shim| format!("containerd:{shim}"));
    Unavailable { what, why, remedy: remedy.into() }
}

impl Found {
    /// Connects to containerd.
    fn connect() -> Result<Self, Unavailable> {
        let missing = |why| unavailable(None, why, REMEDY);
        let socket = std::env::var(VARIABLE).ok().filter(|value| !value.is_empty());
        let socket = socket.unwrap_or_else(|| SOCKET.into());
        let socket = PathBuf::from(socket.strip_prefix("unix://").unwrap_or(&socket));
        let shown = socket.display();
        let stream = UnixStream::connect(&socket).map_err(|error| {
            missing(match error.kind() {
                io::ErrorKind::NotFound => format!("there is no socket {shown}"),
                io::ErrorKind::PermissionDenied => format!("the socket {shown} needs root"),
                _ => format!("no process answers at {shown} ({error})"),
            })
        })?;
        let peer = rustix::net::sockopt::socket_peercred(&stream)
            .map_err(|error| missing(format!("{shown} has no peer: {error}")))?;
        drop(stream);
        let pid = peer.pid.as_raw_nonzero().get().unsigned_abs();
        let client = Client::new(&socket, "tare").within(FIRST_LIMIT);
        let version = client
            .version()
            .map_err(|error| missing(format!("{shown} does not answer: {}", error.line())))?;
        if mounts::is_elsewhere(pid) {
            let why = format!(
                "the containerd at {shown} is in another mount namespace, where its shims do not \
                 see Tare's mounts"
            );
            return Err(unavailable(None, why, "start one in the host's namespace"));
        }
        Ok(Self { socket, pid, version })
    }
}

fn needs(argument: Option<&str>) -> Result<(), Unavailable> {
    find(argument).map(drop)
}

/// Finds containerd with a shim and what that needs.
fn find(argument: Option<&str>) -> Result<(Found, String), Unavailable> {
    let remedy = "write runc, kata, or a name such as io.containerd.runc.v2";
    let unknown = || unavailable(argument, "there is no such shim".into(), remedy);
    let shim = shim::name(argument).ok_or_else(unknown)?;
    if kata::is_kata(&shim) {
        kata::needs(format!("containerd:{}", argument.unwrap_or_default()))?;
    }
    if gvisor::is_gvisor(&shim) {
        let why = "gVisor's shim is not supported yet".into();
        return Err(unavailable(
            argument,
            why,
            "write runtime = \"oci:runsc\" or \"docker:runsc\"",
        ));
    }
    let found = Found::connect()?;
    let program = shim::program(&shim);
    let missing = |program: &str, remedy: &str| {
        let why = format!("there is no program {program} on containerd's PATH");
        unavailable(argument, why, remedy)
    };
    if shim::find(found.pid, &program).is_none() {
        return Err(missing(&program, "put the shim there, or beside containerd's own program"));
    }
    if shim == RUNC && shim::find(found.pid, "runc").is_none() {
        return Err(missing("runc", "apt-get install runc"));
    }
    Ok((found, shim))
}

/// Returns the names that work on this host, as studies write them.
fn found() -> Vec<String> {
    let mut words = Vec::new();
    words.extend(needs(None).is_ok().then(|| RUNTIME.name.to_string()));
    let shims =
        shim::SHIMS.iter().map(|(short, _)| *short).filter(|short| needs(Some(short)).is_ok());
    words.extend(shims.map(|short| format!("{}:{short}", RUNTIME.name)));
    words
}

fn make(
    context: &Arc<RunContext>,
    spec: EnvironmentSpec,
    layers: Layers,
    argument: Option<&str>,
) -> Result<Box<dyn Environment>, PartError> {
    let (found, shim) = find(argument)?;
    let client = Client::new(&found.socket, &context.prefix());
    let name = format!("containerd {} ({shim})", found.version);
    let program = shim.clone();
    let engine = Containerd { name, socket: found.socket, pid: found.pid, shim, client };
    oci::environment(context, (spec, layers), &program, None, |_| Box::new(engine))
}

/// containerd with one of its shims.
struct Containerd {
    name: String,
    socket: PathBuf,
    /// containerd's process.
    pid: u32,
    shim: String,
    client: Client,
}

impl Containerd {
    /// Returns the specification for the shim.
    fn spec(&self, at: &Place<'_>, config: &str) -> Result<String, PartError> {
        let mut spec: Value = serde_json::from_str(config)?;
        spec["root"]["path"] = json!(at.folder.join("rootfs"));
        // A shim has a lower score than containerd, and a process inherits it.
        let own = fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
        spec["process"]["oomScoreAdj"] = json!(own.trim().parse::<i32>().unwrap_or_default());
        let inode = |pid| process::namespace_inode(pid, "net");
        let namespaces = spec["linux"]["namespaces"].as_array_mut();
        if let (Some(all), true) = (namespaces, inode(self.pid) != inode(std::process::id()))
            && !all.iter().any(|one| one["type"] == "network")
        {
            let path = format!("/proc/{}/ns/net", std::process::id());
            all.push(json!({ "type": "network", "path": path }));
        }
        Ok(spec.to_string())
    }

    /// Returns the options of the shim. They keep the state of its runtime in the directory of the
    /// start.
    fn options(&self, at: &Place<'_>) -> Option<Any> {
        let root = at.state_folder().to_string_lossy().into_owned();
        let type_url = "containerd.runc.v1.Options".into();
        let any = Any { type_url, value: RuncOptions { root }.encode_to_vec() };
        (self.shim == RUNC).then_some(any)
    }
}

impl Engine for Containerd {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&self, context: &RunContext) -> Result<(), PartError> {
        let entry: Entry = ContainerEntry::ContainerdNamespace {
            socket: self.socket.clone(),
            name: self.client.namespace().into(),
            folders: Directories::of(self.pid).of_namespace(self.client.namespace()),
        }
        .into();
        if !context.journal().live().iter().any(|(_, live)| *live == entry) {
            context.journal().write(vec![entry])?;
        }
        Ok(self.client.create_namespace()?)
    }

    fn entry(&self, at: &Place<'_>) -> Entry {
        ContainerEntry::ContainerdContainer {
            socket: self.socket.clone(),
            namespace: self.client.namespace().into(),
            name: at.id.clone(),
        }
        .into()
    }

    fn create(&self, at: &Place<'_>, how: Creation<'_>) -> Result<u32, PartError> {
        let new = NewContainer {
            id: &at.id,
            shim: &self.shim,
            options: self.options(at),
            spec: self.spec(at, how.config)?,
            logs: how.logs,
        };
        Ok(self.client.create(new)?)
    }

    fn start(&self, at: &Place<'_>) -> Result<(), PartError> {
        Ok(self.client.start(&at.id)?)
    }

    fn state(&self, at: &Place<'_>, pid: u32) -> String {
        let task = match self.client.process(&at.id) {
            Ok(task) => task,
            Err(error) => return error.line(),
        };
        let status = Status::try_from(task.status).unwrap_or(Status::Unknown);
        let status = format!("{status:?}").to_lowercase();
        match task.pid == pid {
            true => status,
            false => format!("{status}, but as process {}", task.pid),
        }
    }

    fn pause(&self, at: &Place<'_>) -> Result<(), PartError> {
        Ok(self.client.pause(&at.id)?)
    }

    fn resume(&self, at: &Place<'_>) -> Result<(), PartError> {
        Ok(self.client.resume(&at.id)?)
    }

    fn exec(&self, at: &Place<'_>, words: &[&str]) -> Result<String, String> {
        let output = at.folder.join("inside");
        fs::write(&output, "").map_err(|error| format!("{}: {error}", output.display()))?;
        let variables = [format!("PATH={PATH}"), format!("{RUN_VARIABLE}={}", at.context.run())];
        let process = json!({
            "args": words, "cwd": "/", "env": variables, "user": { "uid": 0, "gid": 0 },
        });
        self.client.exec(&at.id, &process, &output).map_err(|error| error.line())
    }
}
