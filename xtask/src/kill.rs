//! `cargo xtask kill --times N`: kills the real database under load N times with each of its
//! engines, and checks that all acknowledged writes are there. With `--kubernetes` it kills studies
//! with pods on the node of a private cluster and a loader on its second node, and checks that
//! `tare clean` leaves nothing there. CI runs the same tests a few times.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

use crate::cargo::{cargo, without_package};

/// The default numbers of kills, of the database and of studies with pods.
const TIMES: &str = "100";
const TIMES_OF_STUDIES: &str = "20";

pub(crate) fn run(root: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let (kubernetes, rest) = match arguments {
        ["--kubernetes", rest @ ..] => (true, rest),
        rest => (false, rest),
    };
    let times = match rest {
        [] if kubernetes => TIMES_OF_STUDIES,
        [] => TIMES,
        ["--times", times] => times,
        _ => bail!("usage: cargo xtask kill [--kubernetes] [--times N]"),
    };
    times.parse::<u64>().with_context(|| format!("{times:?} is no number of kills"))?;
    let mut command = if kubernetes { of_studies(root) } else { of_database(root) };
    let status = command.env("TARE_KILLS", times).status().context("cannot start cargo")?;
    match (status.success(), kubernetes) {
        (true, _) => Ok(()),
        (false, true) => {
            bail!("kill: something was left or lost, or the cluster did not start; see above")
        }
        (false, false) => {
            bail!("kill: acknowledged writes were lost, or a server did not start; see above")
        }
    }
}

fn of_database(root: &Path) -> Command {
    let mut command = cargo(root);
    command.args(["test", "--release", "--workspace", "--test", "kill", "--", "--nocapture"]);
    command
}

fn of_studies(root: &Path) -> Command {
    let mut command = Command::new(root.join("scripts/kubernetes"));
    without_package(&mut command);
    command.current_dir(root).args(["--nodes", "2", "cargo", "test", "--release", "--workspace"]);
    command.args(["--test", "on_kubernetes", "kills::", "--", "--nocapture"]);
    command
}
