//! `tare host record`: saves the files of this host that the planner reads.

use std::io::Write;
use std::path::Path;

use anyhow::anyhow;
use tare_tune::snapshot::Snapshot;

use crate::cli::{Host, HostCommand, HostRecord};
use crate::exit::{Exit, ExitWith};

pub(crate) fn run(options: &Host, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let HostCommand::Record(HostRecord { directory, .. }) = &options.command;
    if directory.exists() {
        return Err(anyhow!("{} exists already; name a new directory", directory.display()))
            .exit_with(Exit::Usage);
    }
    let snapshot = Snapshot::take(Path::new("/"));
    snapshot.save(directory)?;
    writeln!(
        out,
        "recorded {} files of this host in {}\nto plan for it: tare tune plan --snapshot {}",
        snapshot.nodes().count(),
        directory.display(),
        directory.display()
    )?;
    Ok(Exit::Success)
}
