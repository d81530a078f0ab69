//! The messages of containerd's API that Tare sends and reads, as derived types: the fields that it
//! uses, with the numbers of the definitions in `api/` of containerd/containerd. Unknown fields of
//! an answer are skipped.
//!
//! They are written by hand because their generation needs `protoc` on the machine that builds.

/// google.protobuf.Any: a value with the name of its type.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Any {
    #[prost(string, tag = "1")]
    pub(crate) type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) value: Vec<u8>,
}

/// google.protobuf.Empty
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Empty {}

/// A request that only names a container, as `DeleteTaskRequest`, `PauseTaskRequest`
/// and `ResumeTaskRequest` do.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OfContainer {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
}

/// A request that names a process of a container, as `StartRequest`, `GetRequest`, `WaitRequest`
/// and `DeleteProcessRequest` do. The first process has an empty name.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OfProcess {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, tag = "2")]
    pub(crate) exec_id: String,
}

// containerd.services.version.v1

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct VersionResponse {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
}

// containerd.services.namespaces.v1

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Namespace {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateNamespaceRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) namespace: Option<Namespace>,
}

// containerd.services.containers.v1

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Runtime {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) options: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Container {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(message, optional, tag = "4")]
    pub(crate) runtime: Option<Runtime>,
    #[prost(message, optional, tag = "5")]
    pub(crate) spec: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateContainerRequest {
    #[prost(message, optional, tag = "1")]
    pub(crate) container: Option<Container>,
}

// containerd.services.tasks.v1

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateTaskRequest {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, tag = "5")]
    pub(crate) stdout: String,
    #[prost(string, tag = "6")]
    pub(crate) stderr: String,
    #[prost(message, optional, tag = "9")]
    pub(crate) options: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CreateTaskResponse {
    #[prost(uint32, tag = "2")]
    pub(crate) pid: u32,
}

/// The state of a process (containerd.v1.types.Status).
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(crate) enum Status {
    Unknown = 0,
    Created = 1,
    Running = 2,
    Stopped = 3,
    Paused = 4,
    Pausing = 5,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Process {
    #[prost(uint32, tag = "3")]
    pub(crate) pid: u32,
    #[prost(enumeration = "Status", tag = "4")]
    pub(crate) status: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct GetResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) process: Option<Process>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct KillRequest {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(uint32, tag = "3")]
    pub(crate) signal: u32,
    #[prost(bool, tag = "4")]
    pub(crate) all: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ExecProcessRequest {
    #[prost(string, tag = "1")]
    pub(crate) container_id: String,
    #[prost(string, tag = "3")]
    pub(crate) stdout: String,
    #[prost(message, optional, tag = "6")]
    pub(crate) spec: Option<Any>,
    #[prost(string, tag = "7")]
    pub(crate) exec_id: String,
}

// The options of the shim of runc

/// containerd.runc.v1.Options (api/types/runc/options/oci.proto).
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RuncOptions {
    /// The directory of runc's state.
    #[prost(string, tag = "7")]
    pub(crate) root: String,
}
