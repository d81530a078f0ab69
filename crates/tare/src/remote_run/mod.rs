//! `--on`: runs this command on other hosts, shows it here, and brings its files back.
//!
//! Method: the program is copied to the host, and gets the same arguments; files that they name
//! travel with them. The `run-server` tasks of the copy do everything on the other host. The
//! command there runs to its end even if this process is killed, or is interrupted, as `--detach`
//! says.

mod attach;
mod clean;
mod command_line;
mod connections;
mod node;
mod results;
mod selected;
mod several;
mod terminal;
mod watch;

use std::io::{Write, empty};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, anyhow};
use tare_kube::AccountUse;
use tare_lab::attach::{Attach, AttachTarget};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::study::Study;
use tare_std::host_address::{NodeAddress, RemoteAddress};

use crate::cli::{self, Command, HostCommand, RunOn, TuneCommand};
use crate::command::report;
use crate::exit::{Exit, ExitWith};
use crate::run_server::{Packer, SessionSpec, TerminalSpec};
use crate::stream::warn;
use crate::{live, signals};

pub(crate) use attach::run as attach;
pub(crate) use connections::{Connected, Connections, user_state};
pub(crate) use node::{NodeView, Place};
pub(crate) use selected::{loader_hosts, place_loaders};

use command_line::CommandLine;
use watch::{Ending, View};

/// Returns the hosts that a command runs on; `None` for this host.
pub(crate) fn asked(command: &Command) -> Option<&RunOn> {
    let on = match command {
        Command::Weigh(options) => &options.on,
        Command::Explain(options) => &options.on,
        Command::List(options) => &options.on,
        Command::Doctor(options) => &options.on,
        Command::Clean(options) => &options.on,
        Command::Disk(options) => &options.on,
        Command::Host(host) => match &host.command {
            HostCommand::Record(options) => &options.on,
        },
        Command::Tune(tune) => match &tune.command {
            TuneCommand::Plan(options) => &options.on,
            TuneCommand::Apply(options) => &options.on,
            TuneCommand::Verify(options) => &options.on,
            TuneCommand::Revert(options) => &options.on,
            TuneCommand::Status(options) => &options.on,
            TuneCommand::Prove(options) => &options.on,
            TuneCommand::Manifest(options) => &options.on,
            TuneCommand::Flags(_) | TuneCommand::Persist(_) | TuneCommand::Store => return None,
        },
        _ => return None,
    };
    (!on.on.is_empty()).then_some(on)
}

/// Runs the command of this process on other hosts.
pub(crate) fn run(
    command: &Command,
    on: &RunOn,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut study = study(command);
    let account_use = study.as_ref().and_then(account_use);
    if on.print_manifests {
        if let Some(study) = &mut study {
            place_loaders(study, &on.on)?;
        }
        let loaders: Vec<NodeAddress> = study.iter().flat_map(loader_pods).collect();
        let hosts: Vec<NodeAddress> = study.iter().flat_map(host_nodes).collect();
        let account_use = account_use.unwrap_or(AccountUse::MakePods);
        return node::print(&on.on, &hosts, &loaders, (account_use, on.image.get()), out);
    }
    if let Command::Clean(options) = command {
        return clean::run(options, state, out);
    }
    let mut line = command_line::of_this_process()?;
    line.account = account_use;
    match &on.on[..] {
        [host] => on_one(host, &line, on, state, out),
        _ => several::run(command, &line, on, state, out),
    }
}

/// Returns the study of a command. What cannot be read is refused on the host.
fn study(command: &Command) -> Option<Study> {
    use crate::campaign::study::{place, read_with};
    let read = match command {
        Command::Weigh(cli::Weigh { resume: Some(record), .. }) => {
            return report::read(record).ok().map(|record| record.study);
        }
        Command::Weigh(options) => {
            let read = read_with(&options.study, options.quick, &options.loaders.all());
            read.and_then(|(mut study, text)| {
                place(&mut study, &options.elsewhere).map(|()| (study, text))
            })
        }
        Command::Explain(options) => read_with(options.what(), false, &[]),
        Command::Tune(tune) => match &tune.command {
            TuneCommand::Prove(options) => read_with(&options.study, false, &options.loaders.all()),
            _ => return None,
        },
        _ => return None,
    };
    read.ok().map(|(study, _)| study)
}

/// Returns the nodes of the loaders of a study that are pods.
fn loader_pods(study: &Study) -> Vec<NodeAddress> {
    let node = |address: &RemoteAddress| match address {
        RemoteAddress::Pod(node) => Some(node.clone()),
        RemoteAddress::Ssh(_) | RemoteAddress::Node(_) => None,
    };
    study.loaders.iter().filter_map(|loader| loader.host.remote().and_then(node)).collect()
}

/// Returns the nodes that are hosts of the system of a study.
fn host_nodes(study: &Study) -> Vec<NodeAddress> {
    let remote = study.hosts.iter().filter_map(|one| one.host.remote());
    remote.filter_map(RemoteAddress::as_node).cloned().collect()
}

/// Returns the account that the pods of a study need.
fn account_use(study: &Study) -> Option<AccountUse> {
    let is_pod = |attach: &Attach| matches!(attach.target, AttachTarget::Pod { .. });
    let makes_pods = study.environments.iter().any(EnvironmentSpec::is_pod);
    let is_in_cluster = |address: &RemoteAddress| !matches!(address, RemoteAddress::Ssh(_));
    let mut loaders = study.loaders.iter().filter_map(|loader| loader.host.remote());
    let reaches_nodes = !study.loader_selectors.is_empty()
        || loaders.any(is_in_cluster)
        || !host_nodes(study).is_empty();
    match (makes_pods, reaches_nodes) {
        (true, true) => Some(AccountUse::MakePodsAndReachNodes),
        (true, false) => Some(AccountUse::MakePods),
        (false, true) => Some(AccountUse::ReachNodes),
        (false, false) => study.attached().any(is_pod).then_some(AccountUse::ReadPods),
    }
}

fn on_one(
    host: &RemoteAddress,
    line: &CommandLine,
    on: &RunOn,
    state: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let detach = on.detach;
    let stop = signals::stop_flag_with(restore)?;
    let connections = Connections::open(state, on.image.get())?;
    let connected = connections.connect(host)?;
    let terminal = terminal::spec();
    let directory = start(&connections, &connected, line, terminal.clone(), detach)?;
    if detach {
        let id = crate::run_server::id(&directory);
        let name = connected.host.name();
        writeln!(out, "run {id} goes on at {name}; tare attach {name} shows it")?;
        return Ok(Exit::Success);
    }
    let view = if terminal.is_some() { View::Terminal } else { View::Streams { prefix: "" } };
    let ending = watch::follow(&connections, &connected, &directory, &view, &stop)?;
    finish(&connections, &connected, &directory, &ending, None).map(|(exit, _)| exit)
}

/// Leaves the user's terminal as it was, at a second signal.
fn restore() {
    live::restore();
    terminal::restore();
}

/// Starts a command on a host. Returns its directory there.
fn start(
    connections: &Connections,
    connected: &Connected,
    line: &CommandLine,
    terminal: Option<TerminalSpec>,
    detach: bool,
) -> anyhow::Result<std::path::PathBuf> {
    let begun = Instant::now();
    let seconds = |time: std::time::Duration| format!("{:.2} s", time.as_secs_f64());
    let (connect, copy) = (seconds(connected.connecting), seconds(connected.copying));
    let address = connected.host.address();
    let account = line.account.map(|account_use| connections.account(address, account_use));
    let (account, kubeconfig) = account.transpose()?.flatten().unzip();
    let keeps_account = detach && account.is_some();
    let spec = SessionSpec {
        arguments: line.words.clone(),
        detach,
        terminal,
        account,
        facts: vec![
            ("connected in".into(), connect.clone()),
            ("program in place in".into(), copy.clone()),
        ],
        replace: line.replace.clone(),
        outputs: line.outputs.clone(),
    };
    let mut packer = Packer::new(&spec)?;
    line.pack(&mut packer)?;
    if let Some(kubeconfig) = kubeconfig {
        packer.kubeconfig(&kubeconfig)?;
    }
    let archive = packer.finish()?;
    let answer =
        connected.host.output(&connected.program.path, &["run-server", "start"], &archive[..]);
    let answer = answer.map_err(connections::of_program)?;
    let directory = String::from_utf8(answer).ok().map(|text| text.trim().to_string());
    let directory = directory.filter(|text| text.starts_with('/'));
    let directory =
        directory.with_context(|| format!("{} did not answer", connected.host.name()))?;
    if keeps_account {
        connections.keep_account(address);
    }
    warn(&format!(
        "on {}: connected in {connect}, program in place in {copy}, started in {}",
        connected.host.name(),
        seconds(begun.elapsed())
    ));
    Ok(directory.into())
}

/// Brings the files of a run back, removes it there, and returns its exit code and records.
fn finish(
    connections: &Connections,
    connected: &Connected,
    directory: &Path,
    ending: &Ending,
    suffix: Option<&str>,
) -> anyhow::Result<(Exit, Vec<std::path::PathBuf>)> {
    let name = connected.host.name();
    let Ending::Ended(ended) = ending else {
        return Err(anyhow!("{}", lost(&name, ending)));
    };
    let mut records = results::bring(connections, connected, directory, suffix)?;
    records.retain(|path| path.extension().is_some_and(|extension| extension == "tare"));
    let directory = directory.to_str().context("the name of a run is no text")?;
    let removed = connected.host.output(
        &connected.program.path,
        &["run-server", "remove", directory],
        empty(),
    );
    if let Err(error) = removed {
        warn(&format!("{}; tare clean --on {name} removes it", tare_host::error_line(&error)));
    }
    match (ended.code, ended.signal) {
        (Some(code), _) => Ok((Exit::of_code(code), records)),
        (None, signal) => Err(anyhow!(
            "signal {} killed the command on {name}; tare clean --on {name} removes what it left",
            signal.unwrap_or_default()
        ))
        .exit_with(Exit::Failure),
    }
}

/// Says what becomes of a run whose end was not seen.
fn lost(name: &str, ending: &Ending) -> String {
    match ending {
        Ending::Lost { detached: true } => {
            format!("the connection to {name} is lost; the run goes on: tare attach {name}")
        }
        Ending::Busy => format!("the run on {name} is shown elsewhere already"),
        Ending::Killed => format!(
            "what watches over the run on {name} was killed, and the run ends; \
             tare clean --on {name} brings its files and removes it"
        ),
        Ending::Lost { .. } | Ending::Ended(_) => format!(
            "the connection to {name} is lost; the run there ends cleanly, and \
             tare attach {name} brings its files"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_have_the_rights_of_the_study() {
        let loaders =
            |hosts: &[&str]| -> Vec<_> { hosts.iter().map(|host| host.parse().unwrap()).collect() };
        for (name, hosts, expect) in [
            ("quick", &[][..], None),
            ("quick", &["ssh:load1"], None),
            ("quick", &["pod:n2"], Some(AccountUse::ReachNodes)),
            ("quick", &["ssh:load1", "kubernetes:n2"], Some(AccountUse::ReachNodes)),
            ("kubernetes", &[], Some(AccountUse::MakePods)),
            ("kubernetes", &["pod:n2"], Some(AccountUse::MakePodsAndReachNodes)),
            ("quick", &["pods:role=load"], Some(AccountUse::ReachNodes)),
        ] {
            let read = crate::campaign::study::read_with(name, false, &loaders(hosts));
            let study = read.unwrap().0;
            assert_eq!(account_use(&study), expect, "{name} {hosts:?}");
            let pods = hosts.iter().filter(|host| host.starts_with("pod:")).count();
            assert_eq!(loader_pods(&study).len(), pods);
        }
        let mut study = crate::campaign::study::read("quick", false).unwrap().0;
        study.hosts = ["ssh:db1", "kubernetes:n1"].map(|host| host.parse().unwrap()).to_vec();
        assert_eq!(account_use(&study), Some(AccountUse::ReachNodes));
        assert_eq!(host_nodes(&study).len(), 1);
    }
}
