//! Errors of other hosts.

use std::io;
use std::path::PathBuf;

/// What ssh or a cluster says.
pub(crate) type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why something on another host failed.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("cannot connect to {host}: {why}")]
    Connect { host: String, why: String },
    #[error("the connection to {host} is lost")]
    Lost { host: String, source: Cause },
    #[error("cannot run {program} on {host}")]
    Run { program: String, host: String, source: Cause },
    #[error("{program} on {host} failed ({status}){}", detail(.stderr))]
    Failed { program: String, host: String, status: String, stderr: String },
    #[error("cannot exchange data with {host}")]
    Pipe { host: String, source: io::Error },
    #[error("cannot read {}", .path.display())]
    Program { path: PathBuf, source: io::Error },
    #[error(
        "{host} is a machine of {theirs}, and this program is for {ours}; put Tare {version} for \
         {theirs} at {}, or set TARE_PROGRAMS to its directory", .wanted.display()
    )]
    Architecture {
        host: String,
        theirs: String,
        ours: &'static str,
        version: &'static str,
        wanted: PathBuf,
    },
    #[error("{} is no program for {theirs}, which {host} is a machine of", .path.display())]
    OtherProgram { path: PathBuf, theirs: String, host: String },
    #[error("{} is {found}, and this program is {ours}; use the same version", .path.display())]
    OtherVersion { path: PathBuf, found: String, ours: String },
    #[error("cannot copy this program to {path} on {host}: {why}")]
    Store { host: String, path: String, why: String },
    #[error("{host} forbids programs in {directory} ({why}); mount it there with the option exec")]
    NoExec { host: String, directory: &'static str, why: String },
    #[error("the copy of Tare on {host} at {path} differs from this program; remove it there")]
    Copy { host: String, path: String },
    #[error("cannot use the program in the pod on {host}: {why}")]
    Placed { host: String, why: String },
    #[error(
        "the image on {host} has another program ({theirs}) than this one ({ours}); make it again with \
         tare image, and load or push it"
    )]
    OtherImage { host: String, theirs: String, ours: String },
    #[error("cannot set up connections through ssh")]
    Runtime { source: io::Error },
}

/// Returns in one line why ssh did not connect, with what to do. `destination` is what a user
/// passes to `ssh` for the host.
pub(crate) fn refusal(error: &openssh::Error, destination: &str) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}\n{cause}");
        source = cause.source();
    }
    // ssh explains a changed key in twelve lines.
    if text.contains("IDENTIFICATION HAS CHANGED") {
        return "its host key is not the known one: if the host was installed again, remove the old \
                key with ssh-keygen -R; if not, another host answers"
            .into();
    }
    if text.contains("Host key verification failed") {
        return format!(
            "its host key is not known; run ssh {destination} once and compare the key"
        );
    }
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
    format!("{last}; try: ssh {destination} true")
}

/// Returns standard error as the end of a line.
fn detail(stderr: &str) -> String {
    match stderr.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}
