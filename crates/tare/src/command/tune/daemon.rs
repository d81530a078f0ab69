//! `tare tune manifest`: prints a DaemonSet that applies the plan on nodes of a cluster.

use std::io::Write;

use tare_kube::{TuningDaemon, TuningProgram};
use tare_tune::LiveHost;
use tare_tune::plan::Options;

use super::persist::persist_error;
use crate::cli::TuneManifest;
use crate::exit::Exit;

pub(crate) fn run(arguments: &TuneManifest, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let options = Options::from(&arguments.plan);
    let plan = tare_tune::stored_plan(&LiveHost::new("/"), &options).map_err(persist_error)?;
    let image = arguments.on.image.get();
    let daemon = TuningDaemon {
        namespace: &arguments.namespace,
        program: match &image {
            Some(image) => TuningProgram::OfImage(image),
            None => TuningProgram::OfNode { path: &arguments.program, image: &arguments.image },
        },
        state: &arguments.node_state,
        plan: &plan,
        // The words of Go for what Tare runs on.
        architecture: if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        labels: &arguments.node_labels,
    };
    for manifest in daemon.manifests() {
        // JSON is YAML.
        writeln!(out, "---\n{}", serde_json::to_string_pretty(&manifest)?)?;
    }
    Ok(Exit::Success)
}
