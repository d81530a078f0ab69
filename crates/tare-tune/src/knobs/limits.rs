//! Limits of the database's process.
//!
//! What: advice only. Limits of open files, locked memory and threads belong to the service or
//! container, not to the host, and are set where it is started.
//! Why: an engine that runs out of files fails during a compaction; one that may not lock its
//! memory is swapped, and some then cannot use io_uring's registered buffers.
//! Source: systemd.exec(5) (`LimitNOFILE`, `LimitMEMLOCK`), getrlimit(2).
//! Risk: none known.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item};

use super::Knob;

#[derive(Debug)]
pub(super) struct Limits;

impl Knob for Limits {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn group(&self) -> Group {
        Group::Limits
    }

    fn help(&self) -> &'static str {
        "open files and locked memory of the database (advice)"
    }

    fn why(&self) -> &'static str {
        "an engine that runs out of files fails during a compaction; one that may not lock memory is \
         swapped"
    }

    fn risk(&self) -> &'static str {
        ""
    }

    fn source(&self) -> &'static str {
        "systemd.exec(5), getrlimit(2)"
    }

    fn takes_effect_at_start(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        // The limit of a service cannot exceed this one.
        let ceiling = context.snapshot.read("/proc/sys/fs/nr_open");
        let Some(ceiling) = ceiling else { return Vec::new() };
        let action = Action::Advise {
            now: format!("set for each service, at most {ceiling} files"),
            wanted: "800000 files, unlimited locked memory".into(),
            how: "`tare tune flags` prints the lines for the unit or the container".into(),
        };
        vec![context.line(self, "the database", "open files and locked memory", action)]
    }
}
