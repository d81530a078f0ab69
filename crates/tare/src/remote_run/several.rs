//! A command on several hosts at once.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use tare_std::host_address::RemoteAddress;

use super::command_line::CommandLine;
use super::connections::Connections;
use super::watch::{self, View};
use super::{finish, start};
use crate::cli::{self, Command, RunOn};
use crate::command::compare;
use crate::exit::{self, Exit, ExitWith};
use crate::{live, signals};

/// Runs a command on hosts, at the same time, and compares the records of a study.
pub(super) fn run(
    command: &Command,
    line: &CommandLine,
    on: &RunOn,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let hosts = &on.on[..];
    refuse(command, hosts, line, on.detach)?;
    let line = line.clone().free_names();
    let stop = signals::stop_flag_with(live::restore)?;
    let connections = Connections::open(state, on.image.get())?;
    let run = |host: &RemoteAddress| -> anyhow::Result<(Exit, Vec<PathBuf>)> {
        let name = name(host);
        let connected = connections.connect(host)?;
        let directory = start(&connections, &connected, &line, None, false)?;
        let prefix = format!("{name}: ");
        let view = View::Streams { prefix: &prefix };
        let ending = watch::follow(&connections, &connected, &directory, &view, &stop)?;
        finish(&connections, &connected, &directory, &ending, Some(&name))
    };
    let ended: Vec<anyhow::Result<(Exit, Vec<PathBuf>)>> = std::thread::scope(|scope| {
        let threads: Vec<_> = hosts.iter().map(|host| scope.spawn(|| run(host))).collect();
        let lost = || Err(anyhow!("a thread panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    });
    drop(connections);
    let (mut exit, mut records) = (Exit::Success, Vec::new());
    for one in ended {
        let code = match one {
            Ok((code, mut brought)) => {
                records.append(&mut brought);
                code
            }
            Err(error) => exit::of(Err(error)),
        };
        exit = if exit == Exit::Success { code } else { exit };
    }
    if matches!(command, Command::Weigh(_)) && records.len() > 1 {
        writeln!(out)?;
        let options = cli::Compare {
            records,
            prices: Vec::new(),
            pairs: Vec::new(),
            fail_on: None,
            html: None,
            json: false,
            csv: false,
            markdown: false,
        };
        compare::run(&options, out)?;
    }
    Ok(exit)
}

/// Refuses what has no meaning for several hosts.
fn refuse(
    command: &Command,
    hosts: &[RemoteAddress],
    line: &CommandLine,
    detach: bool,
) -> anyhow::Result<()> {
    let what = if line.words.iter().any(|word| word == "--json") {
        "--json prints the result of one host"
    } else if !line.replace.is_empty() {
        "--resume continues the record of one host"
    } else if detach {
        "--detach starts the command on one host"
    } else if matches!(command, Command::Host(_)) {
        "a directory holds the files of one host"
    } else {
        let mut names: Vec<String> = hosts.iter().map(name).collect();
        names.sort();
        names.dedup();
        if names.len() == hosts.len() {
            return Ok(());
        }
        "each host is named once"
    };
    Err(anyhow!("{what}; give --on {} instead of several", hosts[0])).exit_with(Exit::Usage)
}

/// Returns a host's name for lines and files.
fn name(host: &RemoteAddress) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '-' };
    let (name, port) = match host {
        RemoteAddress::Ssh(ssh) => (ssh.host(), ssh.port()),
        RemoteAddress::Node(node) | RemoteAddress::Pod(node) => (node.node(), None),
    };
    let port = port.map(|port| format!("-{port}")).unwrap_or_default();
    name.chars().map(plain).collect::<String>() + &port
}
