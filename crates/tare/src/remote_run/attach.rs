//! `tare attach`: shows a run of another host that was started with `--detach` or whose line broke,
//! and brings its files.

use std::io::Write;
use std::path::Path;

use anyhow::anyhow;

use super::connections::Connections;
use super::watch::{self, Ending, View};
use super::{finish, restore, terminal};
use crate::cli::Attach;
use crate::exit::{Exit, ExitWith};
use crate::run_server::Session;
use crate::signals;

pub(crate) fn run(options: &Attach, state: &Path, _out: &mut dyn Write) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag_with(restore)?;
    let connections = Connections::open(state, options.image.get())?;
    let connected = connections.connect(&options.host)?;
    let session = choose(connected.sessions()?, options, &connected.host.name())?;
    let directory = session.directory;
    let account = session.spec.account;
    let view = match session.spec.terminal.and(terminal::spec()) {
        Some(_) => View::Terminal,
        None => View::Streams { prefix: "" },
    };
    let ending = watch::follow(&connections, &connected, &directory, &view, &stop)?;
    let finished = finish(&connections, &connected, &directory, &ending, None);
    if let Ending::Ended(_) = ending {
        connections.delete_account(&options.host, account.as_ref());
    }
    finished.map(|(exit, _)| exit)
}

/// Returns the run that the user means.
fn choose(sessions: Vec<Session>, options: &Attach, name: &str) -> anyhow::Result<Session> {
    let line = |session: &Session| {
        let state = if session.alive { "runs" } else { "ended" };
        format!("{} ({state}: tare {})", session.id(), session.spec.arguments.join(" "))
    };
    let all = sessions.iter().map(line).collect::<Vec<_>>().join(", ");
    let is_meant = |session: &Session| options.id.as_ref().is_none_or(|id| *id == session.id());
    let mut meant: Vec<Session> = sessions.into_iter().filter(is_meant).collect();
    match (meant.pop(), meant.is_empty(), &options.id) {
        (Some(session), true, _) => Ok(session),
        (Some(_), false, _) => Err(anyhow!("{name} has several runs; name one: {all}")),
        (None, _, Some(id)) if !all.is_empty() => {
            Err(anyhow!("{name} has no run {id}; it has {all}"))
        }
        (None, ..) => Err(anyhow!("{name} has no run of this user")),
    }
    .exit_with(Exit::Usage)
}
