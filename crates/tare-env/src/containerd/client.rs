//! containerd's API in blocking calls, each with a time limit. The journal removes what the calls
//! create (`crate::undo`).

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{io, thread};

use tare_host::error_line;

use super::grpc::{ALREADY_EXISTS, CallError, FAILED_PRECONDITION, NOT_FOUND, Target};
use super::messages::{
    Any, Container, CreateContainerRequest, CreateNamespaceRequest, CreateTaskRequest,
    CreateTaskResponse, Empty, ExecProcessRequest, GetResponse, KillRequest, Namespace,
    OfContainer, OfProcess, Process, Runtime, VersionResponse,
};
use super::shim;

/// How long a call may take: a sandbox takes seconds to start.
const CALL_LIMIT: Duration = Duration::from_secs(60);

/// How long a killed task may take to end, and a namespace to become empty.
const END_LIMIT: Duration = Duration::from_secs(10);

/// How long the pause between two attempts is.
const PAUSE: Duration = Duration::from_millis(10);

/// The pause after which a container that does not exist is looked for again: containerd may still
/// be creating it for a process that was killed meanwhile.
const ABSENCE_PAUSE: Duration = Duration::from_millis(100);

/// How often a container must be absent.
const ABSENCES: u32 = 3;

/// The header that names the containerd namespace of a call.
const NAMESPACE_HEADER: &str = "containerd-namespace";

/// The types of specifications in JSON (pkg `typeurl`, `types.containerd.io/` and the path of the
/// Go type).
const SPEC: &str = "types.containerd.io/opencontainers/runtime-spec/1/Spec";
const PROCESS: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";

/// SIGKILL
const KILL: u32 = 9;

/// containerd did not do something.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    #[error("containerd cannot {what}")]
    Call { what: String, source: CallError },
    #[error("containerd cannot {what}: {found}")]
    Unexpected { what: String, found: String },
    #[error("cannot read {}", .path.display())]
    Output { path: PathBuf, source: io::Error },
}

/// A client of one namespace of a containerd.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    socket: PathBuf,
    namespace: String,
    limit: Duration,
}

/// A container to create.
pub(crate) struct NewContainer<'a> {
    pub(crate) id: &'a str,
    /// The shim, such as `io.containerd.runc.v2`.
    pub(crate) shim: &'a str,
    pub(crate) options: Option<Any>,
    /// The OCI runtime specification in JSON.
    pub(crate) spec: String,
    /// Existing files to which the shim appends what the container prints.
    pub(crate) logs: [&'a Path; 2],
}

impl Client {
    pub(crate) fn new(socket: &Path, namespace: &str) -> Self {
        Self { socket: socket.into(), namespace: namespace.into(), limit: CALL_LIMIT }
    }

    /// Returns the same client with another time limit for each call.
    pub(crate) fn within(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub(crate) fn namespace(&self) -> &str {
        &self.namespace
    }

    fn call<A: prost::Message + Default>(
        &self,
        what: &str,
        method: &str,
        request: &impl prost::Message,
    ) -> Result<A, ContainerdError> {
        let target = Target {
            socket: self.socket.clone(),
            metadata: Some((NAMESPACE_HEADER, self.namespace.clone())),
            limit: self.limit,
        };
        let answer = target.call(&format!("containerd.services.{method}"), request);
        answer.map_err(|source| ContainerdError::Call { what: what.into(), source })
    }

    /// Returns the version of containerd, such as `1.6.20`.
    pub(crate) fn version(&self) -> Result<String, ContainerdError> {
        let version: VersionResponse =
            self.call("report its version", "version.v1.Version/Version", &Empty {})?;
        Ok(version.version.split('~').next().unwrap_or_default().to_string())
    }

    /// Creates the namespace unless it exists.
    pub(crate) fn create_namespace(&self) -> Result<(), ContainerdError> {
        let namespace = Some(Namespace { name: self.namespace.clone() });
        let what = format!("create the namespace {}", self.namespace);
        let request = CreateNamespaceRequest { namespace };
        let made = self.call(&what, "namespaces.v1.Namespaces/Create", &request);
        without(ALREADY_EXISTS, made.map(|_: NoFields| ()))
    }

    /// Creates a container and its task, whose first process waits for `start`. Returns its pid.
    pub(crate) fn create(&self, new: NewContainer<'_>) -> Result<u32, ContainerdError> {
        let NewContainer { id, shim, options, spec, logs: [stdout, stderr] } = new;
        let runtime = Runtime { name: shim.into(), options: options.clone() };
        let container = Container {
            id: id.into(),
            runtime: Some(runtime),
            spec: Some(Any { type_url: SPEC.into(), value: spec.into_bytes() }),
        };
        let request = CreateContainerRequest { container: Some(container) };
        let what = format!("create the container {id}");
        let _: NoFields = self.call(&what, "containers.v1.Containers/Create", &request)?;
        let request = CreateTaskRequest {
            container_id: id.into(),
            stdout: stdout.to_string_lossy().into_owned(),
            stderr: stderr.to_string_lossy().into_owned(),
            options,
        };
        let what = format!("create the task of {id}");
        let made: CreateTaskResponse = self.call(&what, "tasks.v1.Tasks/Create", &request)?;
        match made.pid {
            0 => Err(ContainerdError::Unexpected { what, found: "it has no process".into() }),
            pid => Ok(pid),
        }
    }

    /// Calls a method of the tasks that takes only a container's id.
    fn task<A: prost::Message + Default>(
        &self,
        verb: &str,
        method: &str,
        id: &str,
    ) -> Result<A, ContainerdError> {
        let request = OfContainer { container_id: id.into() };
        self.call(&format!("{verb} {id}"), &format!("tasks.v1.Tasks/{method}"), &request)
    }

    /// Starts the first process of a task.
    pub(crate) fn start(&self, id: &str) -> Result<(), ContainerdError> {
        self.task("start the task of", "Start", id).map(|_: NoFields| ())
    }

    pub(crate) fn pause(&self, id: &str) -> Result<(), ContainerdError> {
        self.task("pause", "Pause", id).map(|_: Empty| ())
    }

    pub(crate) fn resume(&self, id: &str) -> Result<(), ContainerdError> {
        self.task("resume", "Resume", id).map(|_: Empty| ())
    }

    /// Returns the first process of a task.
    pub(crate) fn process(&self, id: &str) -> Result<Process, ContainerdError> {
        let found: GetResponse = self.task("find the task of", "Get", id)?;
        Ok(found.process.unwrap_or_default())
    }

    /// Executes a program in a container and returns what it printed to `output`, an existing file.
    pub(crate) fn exec(
        &self,
        id: &str,
        process: &serde_json::Value,
        output: &Path,
    ) -> Result<String, ContainerdError> {
        const EXEC: &str = "tare-inside";
        let what = format!("execute a program in {id}");
        let request = ExecProcessRequest {
            container_id: id.into(),
            stdout: output.to_string_lossy().into_owned(),
            spec: Some(Any { type_url: PROCESS.into(), value: process.to_string().into_bytes() }),
            exec_id: EXEC.into(),
        };
        let _: Empty = self.call(&what, "tasks.v1.Tasks/Exec", &request)?;
        let request = OfProcess { container_id: id.into(), exec_id: EXEC.into() };
        let ended = ["Start", "Wait"].into_iter().try_for_each(|verb| {
            self.call(&what, &format!("tasks.v1.Tasks/{verb}"), &request).map(|_: NoFields| ())
        });
        let removed = self.call(&what, "tasks.v1.Tasks/DeleteProcess", &request);
        ended.and(removed.map(|_: NoFields| ()))?;
        std::fs::read_to_string(output)
            .map_err(|source| ContainerdError::Output { path: output.into(), source })
    }

    /// Kills and removes a container with its task. Idempotent.
    pub(crate) fn remove(&self, id: &str) -> Result<(), ContainerdError> {
        let mut absences = 0;
        loop {
            let task = self.remove_task(id)?;
            let what = format!("remove the container {id}");
            let request = OfContainer { container_id: id.into() };
            let gone = self.call(&what, "containers.v1.Containers/Delete", &request);
            without(NOT_FOUND, gone.map(|_: Empty| ()))?;
            absences += 1;
            if task || absences == ABSENCES {
                shim::end(&self.socket, &self.namespace, id);
                return Ok(());
            }
            thread::sleep(ABSENCE_PAUSE);
        }
    }

    /// Kills and removes the task of a container. Returns whether there was one.
    fn remove_task(&self, id: &str) -> Result<bool, ContainerdError> {
        let deadline = Instant::now() + END_LIMIT;
        loop {
            let error = match self.task("remove the task of", "Delete", id) {
                Ok(NoFields {}) => return Ok(true),
                Err(error) => error,
            };
            match error.code() {
                Some(NOT_FOUND) => return Ok(false),
                // It still runs; the shim itself refuses with another code (UNKNOWN) if containerd
                // has heard of the end and the shim has not.
                Some(_) if Instant::now() < deadline => {
                    let request = KillRequest { container_id: id.into(), signal: KILL, all: true };
                    // It may have ended by itself; then the next attempt succeeds.
                    let _ = self.call::<Empty>("kill", "tasks.v1.Tasks/Kill", &request);
                }
                _ => return Err(error),
            }
            thread::sleep(PAUSE);
        }
    }

    /// Removes the namespace, which must be empty. Idempotent.
    pub(crate) fn remove_namespace(&self) -> Result<(), ContainerdError> {
        let deadline = Instant::now() + END_LIMIT;
        let request = OfContainer { container_id: self.namespace.clone() };
        let what = format!("remove the namespace {}", self.namespace);
        loop {
            let gone = self.call(&what, "namespaces.v1.Namespaces/Delete", &request);
            match without(NOT_FOUND, gone.map(|_: Empty| ())) {
                Err(error)
                    if error.code() == Some(FAILED_PRECONDITION) && Instant::now() < deadline =>
                {
                    thread::sleep(PAUSE);
                }
                ended => return ended,
            }
        }
    }
}

/// An answer whose fields are not read.
#[derive(Clone, PartialEq, prost::Message)]
struct NoFields {}

impl ContainerdError {
    /// Returns the status code if containerd refused.
    fn code(&self) -> Option<u32> {
        match self {
            Self::Call { source, .. } => source.code(),
            _ => None,
        }
    }

    /// Returns the error with its sources on one line.
    pub(crate) fn line(&self) -> String {
        error_line(self)
    }
}

/// Returns success instead of a refusal with this code.
fn without(code: u32, result: Result<(), ContainerdError>) -> Result<(), ContainerdError> {
    match result {
        Err(error) if error.code() == Some(code) => Ok(()),
        other => other,
    }
}
