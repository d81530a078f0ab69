//! fio, run by Tare's own program inside the environment. The driver `fio` orders the jobs.

use std::path::PathBuf;

use tare_lab::PartError;
use tare_lab::environment::{Endpoint, HostProgram, Launch};
use tare_lab::system::System;

use super::{SystemInfo, TlsSupport};

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "fio",
    help: "the host's fio on the data directory, controlled by the driver fio",
    speaks: |_| "fio".into(),
    found: None,
    options: &[],
    takes_device: true,
    in_memory: false,
    tls: TlsSupport::No,
    make: |_, _| Ok(Box::new(Fio)),
};

/// The report of the server inside, in the data directory.
const REPORT: &str = "fio.json";

/// Where distributions keep fio's engines that are not part of the program.
const ENGINES: &[&str] = &["/usr/lib/fio", "/usr/lib64/fio", "/usr/lib/x86_64-linux-gnu/fio"];

/// Why the report of the server inside cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FioReportError {
    #[error("cannot read the fio server's report {}", .path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{} is not the report of a fio server of this version", .path.display())]
    Form { path: PathBuf, source: serde_json::Error },
}

/// fio. It has no options of its own: a workload has them.
#[derive(Clone, Copy, Debug)]
pub struct Fio;

impl System for Fio {
    fn name(&self) -> &str {
        INFO.name
    }

    fn launch(&self, _cpus: usize) -> Launch {
        let words = ["fio-server", "--program", "{program}", "--listen", "{listen}:{port}"];
        let words = words.into_iter().chain(["--data", "{data}", "--report", REPORT]);
        let there = ENGINES.iter().map(PathBuf::from).filter(|folder| folder.is_dir());
        let program =
            HostProgram { name: "fio".into(), files: there.collect(), ..HostProgram::default() };
        Launch {
            arguments: words.map(String::from).collect(),
            program: Some(program),
            ..Launch::default()
        }
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let Some(data) = &at.data else { return Ok(Vec::new()) };
        let path = data.join(REPORT);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| FioReportError::Read { path: path.clone(), source })?;
        let report: std::collections::BTreeMap<String, String> =
            serde_json::from_str(&text).map_err(|source| FioReportError::Form { path, source })?;
        Ok(report.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fio_runs_under_our_server() {
        let launch = Fio.launch(2);
        let words = launch.arguments.join(" ");
        let expect = "fio-server --program {program} --listen {listen}:{port} --data {data} --report fio.json";
        assert_eq!(words, expect);
        assert_eq!(launch.program.unwrap().name, "fio");
    }

    #[test]
    fn settings_come_from_server_report() {
        let data = tempfile::tempdir().unwrap();
        let error = Fio.settings(&crate::tests::at(data.path())).unwrap_err().to_string();
        assert!(error.contains("the fio server's report"), "{error}");
        let path = data.path().join(REPORT);
        std::fs::write(path, r#"{"fio":"fio-3.33","program":"/usr/bin/fio"}"#).unwrap();
        let settings = Fio.settings(&crate::tests::at(data.path())).unwrap();
        assert!(settings.contains(&("fio".into(), "fio-3.33".into())), "{settings:?}");
    }
}
