//! A program that runs on another host.

use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use openssh::{Child, Session};
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
    child: Option<Child<Arc<Session>>>,
    runtime: Arc<Runtime>,
}

impl RemoteProcess {
    pub(crate) fn start(
        host: &str,
        session: &Arc<Session>,
        runtime: Arc<Runtime>,
        program: &str,
        arguments: &[&str],
    ) -> Result<Self, RemoteError> {
        let pipe = || io::pipe().map_err(|source| RemoteError::Pipe { host: host.into(), source });
        let ((stdin_there, stdin), (stdout, stdout_there)) = (pipe()?, pipe()?);
        let (stderr, stderr_there) = pipe()?;
        let mut command = Arc::clone(session).arc_command(program);
        command
            .args(arguments)
            .stdin(OwnedFd::from(stdin_there))
            .stdout(OwnedFd::from(stdout_there))
            .stderr(OwnedFd::from(stderr_there));
        let started = runtime.block_on(command.spawn());
        // It holds the other ends of the pipes.
        drop(command);
        let (host, program) = (host.to_string(), program.to_string());
        let child = match started {
            Ok(child) => Some(child),
            Err(source) => return Err(RemoteError::Run { program, host, source }),
        };
        let (stdin, stdout, stderr) = (Some(stdin), Some(stdout), Some(stderr));
        Ok(Self { stdin, stdout, stderr, host, program, child, runtime })
    }

    /// Closes the program's standard input and waits for its end.
    ///
    /// # Errors
    /// `Lost` when the connection broke, `Run` when the program could not be started.
    pub fn wait(&mut self) -> Result<ExitStatus, RemoteError> {
        drop(self.stdin.take());
        let child = self.child.take().ok_or_else(|| self.lost(openssh::Error::Disconnected))?;
        let ended = self.runtime.block_on(child.wait());
        ended.map_err(|source| self.error(source))
    }

    /// As [`Self::wait`], at most for `limit`; then the program loses its pipes, and `None` is
    /// returned.
    ///
    /// # Errors
    /// As [`Self::wait`].
    pub fn wait_at_most(&mut self, limit: Duration) -> Result<Option<ExitStatus>, RemoteError> {
        drop(self.stdin.take());
        let child = self.child.take().ok_or_else(|| self.lost(openssh::Error::Disconnected))?;
        let limited = async { tokio::time::timeout(limit, child.wait()).await };
        match self.runtime.block_on(limited) {
            Err(_) => Ok(None),
            Ok(ended) => ended.map(Some).map_err(|source| self.error(source)),
        }
    }

    fn lost(&self, source: openssh::Error) -> RemoteError {
        RemoteError::Lost { host: self.host.clone(), source }
    }

    fn error(&self, source: openssh::Error) -> RemoteError {
        match source {
            openssh::Error::Remote(_) => {
                RemoteError::Run { program: self.program.clone(), host: self.host.clone(), source }
            }
            _ => self.lost(source),
        }
    }
}
