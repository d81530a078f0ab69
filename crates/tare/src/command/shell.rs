//! `tare completions` and `tare man`, generated from the definition of the command line.

use std::fs;
use std::io::Write;

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::{Arguments, Completions, Man};
use crate::exit::Exit;

pub(crate) fn completions(options: &Completions, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(options.shell, &mut Arguments::command(), "tare", &mut script);
    out.write_all(&script).context("cannot print the completion script")?;
    Ok(Exit::Success)
}

pub(crate) fn man(options: &Man) -> anyhow::Result<Exit> {
    let directory = &options.directory;
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create the directory {}", directory.display()))?;
    clap_mangen::generate_to(Arguments::command(), directory)
        .with_context(|| format!("cannot write man pages to {}", directory.display()))?;
    Ok(Exit::Success)
}
