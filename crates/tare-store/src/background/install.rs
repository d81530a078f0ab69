//! Installs changes of the set of tables: one manifest after the other, each written as a draft,
//! made durable, and renamed.

use std::rc::Rc;

use super::{OpFailure, RETRY_NS};
use crate::io::{Completion, FileId, Now, Op, OpId, OpKind, Owner};
use crate::manifest::{Manifest, TableEntry};
use crate::memtable::Memtable;
use crate::table::Table;

/// A change of the set of tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Edit {
    pub(crate) add: Vec<Rc<Table>>,
    /// Numbers of the files to remove from the manifest.
    pub(crate) remove: Vec<u64>,
    /// Groups of the log below this are no longer needed.
    pub(crate) log_sequence: Option<u64>,
    /// Tables that are no longer needed when the edit is in force.
    pub(crate) retired: Vec<Rc<Table>>,
    /// Numbers of files that are not open.
    pub(crate) leftovers: Vec<u64>,
    pub(crate) memtable: Option<Rc<Memtable>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Create,
    Write,
    Rename,
}

/// The manifest in force, and the one that is being installed.
#[derive(Debug)]
pub(crate) struct Installer {
    current: Manifest,
    /// Edits that are not in any manifest yet.
    waiting: Vec<Edit>,
    /// The manifest that is being installed, its edits, and the current step.
    installing: Option<(Manifest, Vec<Edit>, Step)>,
    in_flight: bool,
    retry_ns: u64,
}

impl Installer {
    pub(crate) fn new(current: Manifest) -> Self {
        Self { current, waiting: Vec::new(), installing: None, in_flight: false, retry_ns: 0 }
    }

    pub(crate) fn edit(&mut self, edit: Edit) {
        self.waiting.push(edit);
    }

    /// Table files that disappear when all edits are in force.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = u64> {
        let installing = self.installing.iter().flat_map(|(_, edits, _)| edits);
        self.waiting.iter().chain(installing).flat_map(|edit| edit.remove.iter().copied())
    }

    /// Whether all edits are in force.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.installing.is_none()
    }

    pub(crate) fn log_sequence(&self) -> u64 {
        self.current.log_sequence
    }

    pub(crate) fn next_due_ns(&self) -> Option<u64> {
        let waits = !self.in_flight && self.installing.is_some();
        waits.then_some(self.retry_ns)
    }

    pub(crate) fn next_op(&mut self, now: Now) -> Option<Op> {
        if self.in_flight || now.monotonic_ns < self.retry_ns {
            return None;
        }
        if self.installing.is_none() && !self.waiting.is_empty() {
            let edits = std::mem::take(&mut self.waiting);
            let mut manifest = self.current.clone();
            edits.iter().for_each(|edit| apply(&mut manifest, edit));
            self.installing = Some((manifest, edits, Step::Create));
        }
        let (manifest, _, step) = self.installing.as_ref()?;
        self.in_flight = true;
        let kind = match step {
            Step::Create => OpKind::Create { size_bytes: 0 },
            Step::Write => OpKind::Write { offset: 0, chunk: manifest.encode(), sync: true },
            Step::Rename => OpKind::Rename { to: FileId::Manifest },
        };
        Some(Op { id: OpId::new(Owner::Manifest, 0), file: FileId::ManifestDraft, kind })
    }

    /// Takes the completion of an operation. Returns the edits that are in force now. After a full
    /// disk it tries again. Any other failure is fatal, above all that of the renaming: nobody
    /// knows which manifest is in force after it.
    pub(crate) fn complete(
        &mut self,
        completion: Completion,
        now: Now,
    ) -> Result<Vec<Edit>, OpFailure> {
        self.in_flight = false;
        let Some((_, _, step)) = self.installing.as_mut() else { return Ok(Vec::new()) };
        let result = OpFailure::of(completion);
        match (result, *step) {
            (Ok(()), Step::Create) => *step = Step::Write,
            (Ok(()), Step::Write) => *step = Step::Rename,
            (Ok(()), Step::Rename) => {
                let Some((manifest, edits, _)) = self.installing.take() else {
                    return Ok(Vec::new());
                };
                self.current = manifest;
                return Ok(edits);
            }
            (Err(OpFailure::Full(why)), Step::Create | Step::Write) => {
                *step = Step::Create;
                self.retry_ns = now.monotonic_ns.saturating_add(RETRY_NS);
                return Err(OpFailure::Full(why));
            }
            (Err(OpFailure::Full(why) | OpFailure::Broken(why)), _) => {
                return Err(OpFailure::Broken(why));
            }
        }
        Ok(Vec::new())
    }
}

fn apply(manifest: &mut Manifest, edit: &Edit) {
    manifest.tables.retain(|listed| !edit.remove.contains(&listed.file));
    manifest.tables.extend(edit.add.iter().map(|table| TableEntry {
        file: table.file(),
        table: table.footer().table,
        bytes: table.file_bytes(),
    }));
    manifest.tables.sort_unstable();
    manifest.log_sequence = edit.log_sequence.unwrap_or(manifest.log_sequence);
}
