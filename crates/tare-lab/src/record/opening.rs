//! The facts with which a record starts.

use super::{Header, HostFact, Record};
use crate::environment::CpuPlan;
use crate::study::Study;

/// The facts about a study before it runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Opening {
    pub tare_version: String,
    pub started_unix_ms: u64,
    pub seed: u64,
    /// The command line, as typed.
    pub command: Vec<String>,
    pub study: Study,
    /// The text of the study file.
    pub study_text: String,
    pub cpu_plan: CpuPlan,
    pub host: Vec<HostFact>,
}

impl Opening {
    /// Returns a record with these facts alone.
    pub(super) fn as_record(&self) -> Record {
        Record {
            header: Header {
                tare_version: self.tare_version.clone(),
                started_unix_ms: self.started_unix_ms,
                ended_unix_ms: None,
                seed: self.seed,
                command: self.command.clone(),
                ending: None,
                rates: Vec::new(),
            },
            study: self.study.clone(),
            study_text: self.study_text.clone(),
            cpu_plan: self.cpu_plan.clone(),
            host: self.host.clone(),
            environments: Vec::new(),
            slices: Vec::new(),
            loaders: Vec::new(),
            paths: Vec::new(),
            doubts: Vec::new(),
        }
    }
}
