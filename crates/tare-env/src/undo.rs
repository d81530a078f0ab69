//! The journal entries of this crate: objects that container engines and OCI runtimes created.
//!
//! Removal goes through bollard to the socket in the entry. During a later clean the environment
//! variables may name another engine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::query_parameters::{
    RemoveContainerOptionsBuilder, RemoveImageOptionsBuilder, RemoveVolumeOptionsBuilder,
};
use serde::{Deserialize, Serialize};
use tare_host::exec::{Command, ExecError, find};
use tare_host::journal::Entry;
use tare_host::undo::{KnownKinds, UndoKinds, check_name, check_path};
use tare_host::{UndoError, error_line};
use tokio::runtime::Builder;

use crate::containerd::{Client, ContainerdError};
use crate::kubernetes::KubernetesKinds;
use crate::layer::confinement::apparmor::ApparmorKinds;
use crate::layer::confinement::huge_pages::HugePagesKinds;
use crate::reach::ForwardingKinds;

/// How long a container engine may take to remove something.
const ENGINE_LIMIT: Duration = Duration::from_secs(30);

/// How long a failed removal is retried.
const ENGINE_RETRY: Duration = Duration::from_secs(3);

/// The pause between two attempts of a removal.
const ENGINE_PAUSE: Duration = Duration::from_millis(100);

/// The kinds of journal entries of this crate. Pass them to every journal that environments write
/// to, and to its clean.
pub const KINDS: KnownKinds =
    &[&ContainerKinds, &ForwardingKinds, &ApparmorKinds, &HugePagesKinds, &KubernetesKinds];

/// An entry of this crate, as it is written in a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum ContainerEntry {
    /// A container of an engine that speaks docker's API on a unix socket.
    Container { engine: String, socket: PathBuf, name: String },
    /// An image of an engine, with its tag.
    Image { engine: String, socket: PathBuf, name: String },
    /// A named volume of an engine.
    Volume { engine: String, socket: PathBuf, name: String },
    /// A network of an engine.
    EngineNetwork { engine: String, socket: PathBuf, name: String },
    /// A container of an OCI runtime: `COMMAND... --root ROOT delete --force ID`.
    OciContainer { command: Vec<String>, root: PathBuf, id: String },
    /// A container of containerd with its task, in a containerd namespace.
    ContainerdContainer { socket: PathBuf, namespace: String, name: String },
    /// A namespace of containerd, and the directories that it makes for each and does not remove.
    ContainerdNamespace { socket: PathBuf, name: String, folders: Vec<PathBuf> },
}

impl From<ContainerEntry> for Entry {
    fn from(entry: ContainerEntry) -> Self {
        Self::new(&entry)
    }
}

/// Why an engine did not remove something.
#[derive(Debug, thiserror::Error)]
#[error("cannot remove {what} through {}: {answer}; is the engine running?", .socket.display())]
struct EngineUndoError {
    what: String,
    socket: PathBuf,
    answer: String,
}

/// Undoes the entries of this crate.
#[derive(Debug)]
struct ContainerKinds;

impl UndoKinds for ContainerKinds {
    fn kinds(&self) -> &'static [&'static str] {
        &[
            "container",
            "image",
            "volume",
            "oci_container",
            "engine_network",
            "containerd_container",
            "containerd_namespace",
        ]
    }

    fn undo(&self, run: &str, entry: &Entry) -> Result<(), UndoError> {
        match entry.read()? {
            ContainerEntry::Container { engine, socket, name } => {
                remove(run, &engine, &socket, EngineObject::Container, &name)
            }
            ContainerEntry::Image { engine, socket, name } => {
                remove(run, &engine, &socket, EngineObject::Image, &name)
            }
            ContainerEntry::Volume { engine, socket, name } => {
                remove(run, &engine, &socket, EngineObject::Volume, &name)
            }
            ContainerEntry::EngineNetwork { engine, socket, name } => {
                remove(run, &engine, &socket, EngineObject::Network, &name)
            }
            ContainerEntry::OciContainer { command, root, id } => {
                check_name(run, &id)?;
                check_path(run, &root)?;
                delete_oci_container(&command, &root, &id)
            }
            ContainerEntry::ContainerdContainer { socket, namespace, name } => {
                check_name(run, &namespace)?;
                check_name(run, &name)?;
                let removed = Client::new(&socket, &namespace).within(ENGINE_LIMIT).remove(&name);
                removed.map_err(|error| containerd_error("container", name, socket, &error))
            }
            ContainerEntry::ContainerdNamespace { socket, name, folders } => {
                check_name(run, &name)?;
                let client = Client::new(&socket, &name).within(ENGINE_LIMIT);
                let removed = client.remove_namespace();
                // Only empty ones: they are containerd's.
                folders.iter().filter(|folder| folder.ends_with(&name)).for_each(|folder| {
                    let _ = fs::remove_dir(folder);
                });
                removed.map_err(|error| containerd_error("namespace", name, socket, &error))
            }
        }
    }
}

fn containerd_error(
    what: &str,
    name: String,
    socket: PathBuf,
    error: &ContainerdError,
) -> UndoError {
    let what = format!("{what} {name} of containerd");
    UndoError::OfKind(Box::new(EngineUndoError { what, socket, answer: error_line(error) }))
}

/// The kinds of objects that an engine keeps.
#[derive(Clone, Copy, Debug)]
enum EngineObject {
    Container,
    Image,
    Volume,
    Network,
}

impl EngineObject {
    fn word(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Image => "image",
            Self::Volume => "volume",
            Self::Network => "network",
        }
    }

    async fn remove(self, client: &Docker, name: &str) -> Result<(), bollard::errors::Error> {
        match self {
            Self::Container => {
                let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
                client.remove_container(name, Some(options)).await
            }
            Self::Image => {
                let options = RemoveImageOptionsBuilder::new().force(true).build();
                client.remove_image(name, Some(options), None).await.map(drop)
            }
            Self::Volume => {
                let options = RemoveVolumeOptionsBuilder::new().force(true).build();
                client.remove_volume(name, Some(options)).await
            }
            Self::Network => client.remove_network(name).await,
        }
    }
}

/// Removes an object until it stays gone: an engine may still complete a request to create it, from
/// a process that was killed before the answer.
fn remove(
    run: &str,
    engine: &str,
    socket: &Path,
    thing: EngineObject,
    name: &str,
) -> Result<(), UndoError> {
    check_name(run, name)?;
    let fail = |answer: String| {
        let what = format!("{} {name} of {engine}", thing.word());
        UndoError::OfKind(Box::new(EngineUndoError { what, socket: socket.into(), answer }))
    };
    let runtime = Builder::new_current_thread().enable_io().enable_time().build();
    let runtime = runtime.map_err(|error| fail(error.to_string()))?;
    let limited = async {
        tokio::time::timeout(ENGINE_LIMIT, async {
            let client = connect(socket).await.map_err(|error| error.to_string())?;
            remove_with(&client, thing, name).await
        })
        .await
    };
    match runtime.block_on(limited) {
        Ok(result) => result.map_err(fail),
        Err(_) => Err(fail(format!("not removed within {} s", ENGINE_LIMIT.as_secs()))),
    }
}

/// Connects and finds out which version of the API the engine speaks.
async fn connect(socket: &Path) -> Result<Docker, bollard::errors::Error> {
    let shown = socket.display().to_string();
    let seconds = ENGINE_LIMIT.as_secs();
    let client = Docker::connect_with_unix(&shown, seconds, bollard::API_DEFAULT_VERSION)?;
    client.negotiate_version().await
}

async fn remove_with(client: &Docker, thing: EngineObject, name: &str) -> Result<(), String> {
    use bollard::errors::Error::DockerResponseServerError;
    let start = Instant::now();
    let mut absences = 0;
    loop {
        let error = match thing.remove(client, name).await {
            Ok(()) => return Ok(()),
            Err(error) => error,
        };
        match &error {
            // The engine may still be creating it for a process that was killed meanwhile.
            DockerResponseServerError { status_code: 404, .. } if absences == 2 => return Ok(()),
            DockerResponseServerError { status_code: 404, .. } => absences += 1,
            // The engine is removing it already, for a process that was killed meanwhile.
            DockerResponseServerError { status_code: 409, .. } => {}
            // Podman answers this if the container's process ended just before it was killed.
            DockerResponseServerError { status_code: 500, .. }
                if start.elapsed() < ENGINE_RETRY => {}
            DockerResponseServerError { status_code, message } => {
                return Err(format!("{status_code} {message}"));
            }
            // Without its socket the engine is gone. `clean` finds a container that outlived it by
            // the mark of its processes.
            _ => return Err(error_line(&error)),
        }
        tokio::time::sleep(ENGINE_PAUSE).await;
    }
}

fn delete_oci_container(command: &[String], root: &Path, id: &str) -> Result<(), UndoError> {
    if !root.join(id).exists() {
        return Ok(());
    }
    let Some((program, arguments)) = command.split_first() else { return Ok(()) };
    if find(program).is_none() {
        // `clean` kills its processes by their mark and removes its state with the work directory.
        return Ok(());
    }
    let delete = Command::new(program).args(arguments).arg("--root").arg(root);
    match delete.args(["delete", "--force", id]).run() {
        Ok(_) => Ok(()),
        Err(ExecError::Failed { .. }) if !root.join(id).exists() => Ok(()),
        // A runtime cannot read the state of a container whose creation was killed.
        Err(ExecError::Failed { .. }) => remove_state(&root.join(id)),
        Err(source) => Err(UndoError::Command { what: format!("container {id}"), source }),
    }
}

/// Removes the state of an OCI container. A missing one is no error.
fn remove_state(path: &Path) -> Result<(), UndoError> {
    match fs::remove_dir_all(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(UndoError::Remove { path: path.into(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Starts an engine that answers one removal after the other with these statuses. The thread
    /// returns the target of every removal.
    fn engine(socket: &Path, statuses: &'static [u16]) -> thread::JoinHandle<Vec<String>> {
        let listener = UnixListener::bind(socket).unwrap();
        thread::spawn(move || {
            let mut targets = Vec::new();
            while targets.len() < statuses.len() {
                let (mut stream, _) = listener.accept().unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let mut first = String::new();
                reader.read_line(&mut first).unwrap();
                let mut line = String::new();
                while reader.read_line(&mut line).unwrap() > 2 {
                    line.clear();
                }
                let target = first.split(' ').nth(1).unwrap().to_string();
                let (status, body) = match target.ends_with("/version") {
                    true => (200, r#"{"ApiVersion":"1.41"}"#),
                    false => {
                        targets.push(target);
                        (statuses[targets.len() - 1], r#"{"message":"as the test wants it"}"#)
                    }
                };
                // Status 204 has no body.
                let body = if status == 204 { "" } else { body };
                write!(
                    stream,
                    "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                )
                .unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                let _ = reader.read(&mut [0; 16]);
            }
            targets
        })
    }

    fn container(socket: &Path, name: &str) -> Entry {
        let (engine, name) = ("docker".into(), name.into());
        ContainerEntry::Container { engine, socket: socket.into(), name }.into()
    }

    #[test]
    fn removes_container_until_it_stays_gone() {
        let folder = tempfile::tempdir().unwrap();
        let undo = |name: &str, statuses: &'static [u16]| {
            let socket = folder.path().join(format!("{}.sock", statuses.len()));
            let engine = engine(&socket, statuses);
            let result = ContainerKinds.undo("ab12", &container(&socket, name));
            (result, engine.join().unwrap())
        };
        let (result, targets) = undo("tare-ab12-1", &[204]);
        result.unwrap();
        let (path, query) = targets[0].split_once('?').unwrap();
        assert!(path.ends_with("/containers/tare-ab12-1"), "{path}");
        assert!(query.contains("force=true") && query.contains("v=true"), "{query}");
        let (result, targets) = undo("tare-ab12-1", &[409, 500, 404, 404, 404]);
        result.unwrap();
        assert_eq!(targets.len(), 5);
        let (result, _) = undo("tare-ab12-1", &[409, 403]);
        let line = tare_host::error_line(&result.unwrap_err());
        assert!(line.contains("403 as the test wants it"), "{line}");
    }

    #[test]
    fn fails_without_engine_and_keeps_foreign_objects() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("none.sock");
        let gone = ContainerKinds.undo("ab12", &container(&socket, "tare-ab12-1"));
        assert!(matches!(gone, Err(UndoError::OfKind(_))), "{gone:?}");
        let namespace = "tare-ab12".to_string();
        let (name, socket) = ("tare-ab12-e1".to_string(), socket.clone());
        let entry = ContainerEntry::ContainerdContainer { socket, namespace, name };
        let line = error_line(&ContainerKinds.undo("ab12", &entry.into()).unwrap_err());
        assert!(line.contains("tare-ab12-e1 of containerd"), "{line}");
        assert!(line.contains("is the engine running?"), "{line}");
        let socket = folder.path().join("none.sock");
        let other = ContainerKinds.undo("ab12", &container(&socket, "postgres"));
        assert!(matches!(other, Err(UndoError::NotOurs { .. })), "{other:?}");
    }

    /// Entries of versions in which one crate had all kinds.
    #[test]
    fn reads_entries_of_older_journals() {
        let texts = [
            r#"{"kind":"container","engine":"docker","socket":"/s","name":"tare-ab12-1"}"#,
            r#"{"kind":"image","engine":"docker","socket":"/s","name":"tare-ab12"}"#,
            r#"{"kind":"volume","engine":"podman","socket":"/s","name":"tare-ab12-1-data"}"#,
            r#"{"kind":"oci_container","command":["runc"],"root":"/r","id":"tare-ab12-1"}"#,
            r#"{"kind":"engine_network","engine":"docker","socket":"/s","name":"tare-ab12-n1"}"#,
            r#"{"kind":"containerd_container","socket":"/s","namespace":"tare-ab12","name":"tare-ab12-e1"}"#,
            r#"{"kind":"containerd_namespace","socket":"/s","name":"tare-ab12","folders":["/f/tare-ab12"]}"#,
        ];
        for (text, kind) in texts.iter().zip(ContainerKinds.kinds()) {
            let entry: Entry = serde_json::from_str(text).unwrap();
            assert_eq!(entry.kind(), *kind);
            let read: ContainerEntry = entry.read().unwrap();
            assert_eq!(Entry::from(read), entry);
        }
    }
}
