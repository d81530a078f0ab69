//! A program that runs on another host.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use openssh::{Child, Session};
use tare_kube::{KubeError, NodeProcess, Streams};
use tokio::runtime::Runtime;

use crate::error::RemoteError;

/// A program that runs on another host. It loses its pipes when this is dropped, so it must end
/// when its standard input ends.
#[derive(Debug)]
pub struct RemoteProcess {
    pub stdin: Option<PipeWriter>,
    pub stdout: Option<PipeReader>,
    pub stderr: Option<PipeReader>,
    host: String,
    program: String,
    running: Option<Running>,
}

/// The program, by the way to its host.
#[derive(Debug)]
enum Running {
    Ssh { child: Box<Child<Arc<Session>>>, runtime: Arc<Runtime> },
    Pod(NodeProcess),
}

/// Our ends of the three pipes.
struct Pipes {
    stdin: PipeWriter,
    stdout: PipeReader,
    stderr: PipeReader,
}

impl Pipes {
    /// Returns the pipes, and the ends of the program.
    fn new(host: &str) -> Result<(Self, Streams), RemoteError> {
        let pipe = || io::pipe().map_err(|source| RemoteError::Pipe { host: host.into(), source });
        let ((stdin_there, stdin), (stdout, stdout_there)) = (pipe()?, pipe()?);
        let (stderr, stderr_there) = pipe()?;
        let there = Streams { stdin: stdin_there, stdout: stdout_there, stderr: stderr_there };
        Ok((Self { stdin, stdout, stderr }, there))
    }
}

impl RemoteProcess {
    fn new(
        host: &str,
        program: &str,
        Pipes { stdin, stdout, stderr }: Pipes,
        running: Running,
    ) -> Self {
        let (stdin, stdout, stderr) = (Some(stdin), Some(stdout), Some(stderr));
        let (host, program, running) = (host.into(), program.into(), Some(running));
        Self { stdin, stdout, stderr, host, program, running }
    }

    pub(crate) fn over_ssh(
        host: &str,
        session: &Arc<Session>,
        runtime: &Arc<Runtime>,
        program: &str,
        arguments: &[&str],
    ) -> Result<Self, RemoteError> {
        let (pipes, there) = Pipes::new(host)?;
        let mut command = Arc::clone(session).arc_command(program);
        command
            .args(arguments)
            .stdin(OwnedFd::from(there.stdin))
            .stdout(OwnedFd::from(there.stdout))
            .stderr(OwnedFd::from(there.stderr));
        let started = runtime.block_on(command.spawn());
        // It holds the other ends of the pipes.
        drop(command);
        let child = started.map_err(|source| RemoteError::Run {
            program: program.into(),
            host: host.into(),
            source: source.into(),
        })?;
        let runtime = Arc::clone(runtime);
        let child = Box::new(child);
        Ok(Self::new(host, program, pipes, Running::Ssh { child, runtime }))
    }

    /// Starts a program through a pod, by `start`.
    pub(crate) fn in_pod(
        host: &str,
        program: &str,
        start: impl FnOnce(Streams) -> Result<NodeProcess, KubeError>,
    ) -> Result<Self, RemoteError> {
        let (pipes, there) = Pipes::new(host)?;
        let process = start(there).map_err(|source| RemoteError::Run {
            program: program.into(),
            host: host.into(),
            source: source.into(),
        })?;
        Ok(Self::new(host, program, pipes, Running::Pod(process)))
    }

    /// Closes the program's standard input and waits for its end.
    ///
    /// # Errors
    /// `Lost` when the connection broke, `Run` when the program could not be started.
    pub fn wait(&mut self) -> Result<ExitStatus, RemoteError> {
        let ended = self.wait_for(None)?;
        ended.ok_or_else(|| self.lost("it was waited for without a limit".into()))
    }

    /// As [`Self::wait`], at most for `limit`; then the program loses its pipes, and `None` is
    /// returned.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_at_most(&mut self, limit: Duration) -> Result<Option<ExitStatus>, RemoteError> {
        self.wait_for(Some(limit))
    }

    fn wait_for(&mut self, limit: Option<Duration>) -> Result<Option<ExitStatus>, RemoteError> {
        drop(self.stdin.take());
        match self.running.take() {
            None => Err(self.lost(openssh::Error::Disconnected.into())),
            Some(Running::Ssh { child, runtime }) => {
                let limited = async {
                    match limit {
                        None => Some(child.wait().await),
                        Some(limit) => tokio::time::timeout(limit, child.wait()).await.ok(),
                    }
                };
                runtime.block_on(limited).transpose().map_err(|error| self.error(error))
            }
            Some(Running::Pod(process)) => {
                let code = process.wait(limit).map_err(|error| self.lost(error.into()))?;
                // An exit code is in the second byte of a wait status (wait(2)).
                Ok(code.map(|code| ExitStatus::from_raw((code & 0xff) << 8)))
            }
        }
    }

    fn lost(&self, source: crate::error::Cause) -> RemoteError {
        RemoteError::Lost { host: self.host.clone(), source }
    }

    fn error(&self, source: openssh::Error) -> RemoteError {
        let (program, host) = (self.program.clone(), self.host.clone());
        match source {
            openssh::Error::Remote(_) => RemoteError::Run { program, host, source: source.into() },
            _ => self.lost(source.into()),
        }
    }
}
