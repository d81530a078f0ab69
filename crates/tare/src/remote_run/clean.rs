//! `tare clean --on`: removes what ended runs left on other hosts, after their files were brought.

use std::io::{Write, empty};
use std::path::Path;

use anyhow::Context;
use tare_kube::AccountUse;
use tare_std::host_address::RemoteAddress;

use super::connections::{Connected, Connections, of_program};
use super::results;
use crate::cli::Clean;
use crate::exit::{Exit, ExitWith};
use crate::run_server::ProgramCopy;

pub(super) fn run(options: &Clean, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let connections = Connections::open(state, options.on.image.get())?;
    let mut exit = Exit::Success;
    if options.json && options.on.on.len() > 1 {
        return Err(anyhow::anyhow!("--json prints the result of one host")).exit_with(Exit::Usage);
    }
    for host in &options.on.on {
        let code = clean(&connections, host, options, out)?;
        exit = if exit == Exit::Success { code } else { exit };
    }
    Ok(exit)
}

fn clean(
    connections: &Connections,
    host: &RemoteAddress,
    options: &Clean,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let connected = connections.connect(host)?;
    let name = connected.host.name();
    let run = |words: &[&str]| {
        connected.host.output(&connected.program.path, words, empty()).map_err(of_program)
    };
    let mut lines = Vec::new();
    for session in connected.sessions()? {
        let id = session.id();
        if session.alive {
            lines.push(format!("run {id}: alive; tare attach {name} shows it"));
            continue;
        }
        let files = results::bring(connections, &connected, &session.directory, None)?.len();
        let directory = session.directory.to_str().context("the name of a run is no text")?;
        run(&["run-server", "remove", directory])?;
        connections.delete_account(host, session.spec.account.as_ref());
        let brought = if files > 0 { "; its files are here now" } else { "" };
        lines.push(format!("run {id}: removed{brought}"));
    }
    // Without the rights for it, what is left in the cluster is an error of the clean there.
    let account = connections.account(host, AccountUse::MakePods).ok().flatten();
    let kubeconfig = account.map(|(_, kubeconfig)| kubeconfig);
    let code = journals(&connected, options, kubeconfig, &mut lines, out)?;
    let mut words = vec!["run-server", "programs"];
    words.extend(options.programs.then_some("--remove"));
    let copies: Vec<ProgramCopy> = serde_json::from_slice(&run(&words)?)?;
    for ProgramCopy { path, bytes } in copies {
        let megabytes = bytes as f64 / 1e6;
        let what = if options.programs { "removed" } else { "kept" };
        let how = if options.programs { "" } else { "; --programs removes it" };
        lines.push(format!("{what} {}, a copy of Tare ({megabytes:.0} MB){how}", path.display()));
    }
    if !options.json {
        for line in lines {
            writeln!(out, "{name}: {line}")?;
        }
    }
    Ok(code)
}

/// Undoes the journals there. Those of a node name its cluster by an access that may be gone by
/// now, so that it gets another.
fn journals(
    connected: &Connected,
    options: &Clean,
    kubeconfig: Option<String>,
    lines: &mut Vec<String>,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut words = vec!["clean"];
    words.extend(options.json.then_some("--json"));
    if kubeconfig.is_some() {
        words.insert(0, "run-server");
    }
    let access = kubeconfig.unwrap_or_default();
    match connected.host.output(&connected.program.path, &words, access.as_bytes()) {
        Ok(text) if options.json => out.write_all(&text)?,
        Ok(text) => {
            lines.extend(String::from_utf8_lossy(&text).lines().map(Into::into));
        }
        Err(error) => {
            lines.push(format!("{:#}", of_program(error)));
            return Ok(Exit::Failure);
        }
    }
    Ok(Exit::Success)
}
