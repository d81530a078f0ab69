//! Applying: old values into the journal with one sync, then the writes, each read back.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::companions::{self, Companion};
use super::identity::Finder;
use super::journal::{Journal, Write};
use super::{OnDrift, Reverted, SettingError, SettingErrorClass, SettingStore, TuneError, revert};
use crate::plan::{Change, Item, Key, Need};

/// What became of the items of a plan that change something.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// The tuning's id; empty when nothing had to be written, so that no journal is left.
    pub id: String,
    /// In the order of the plan.
    pub items: Vec<AppliedItem>,
}

/// What became of one item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppliedItem {
    pub item: Item,
    pub outcome: Outcome,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It was written and reads back as wanted.
    Written { old: String },
    /// It was as wanted already.
    Already,
    /// The kernel usually refuses it (`Need::Try`), and did.
    Refused {
        #[serde(rename = "trouble")]
        error: SettingError,
    },
    /// It should have been written and was not.
    Failed {
        #[serde(rename = "trouble")]
        error: SettingError,
    },
}

impl Applied {
    /// Items that were written.
    pub fn written(&self) -> impl Iterator<Item = &Item> {
        self.items.iter().filter_map(|applied| match applied.outcome {
            Outcome::Written { .. } => Some(&applied.item),
            _ => None,
        })
    }

    /// Items that should have been written and were not. Refusals of what is only tried are none.
    pub fn failed(&self) -> impl Iterator<Item = (&Item, &SettingError)> {
        self.items.iter().filter_map(|applied| match &applied.outcome {
            Outcome::Failed { error } => Some((&applied.item, error)),
            _ => None,
        })
    }
}

/// One write of a batch.
struct Step<'a> {
    index: usize,
    change: &'a Change,
    /// Where the setting stands now, which may be under another number than in the plan.
    key: Key,
    number: u64,
    old: String,
}

/// Applies the items that are changes.
pub(super) fn apply(
    journal: &mut Journal,
    store: &mut dyn SettingStore,
    items: &[Item],
) -> Result<Applied, TuneError> {
    let changing: Vec<(&Item, &Change)> =
        items.iter().filter_map(|item| Some((item, item.change()?))).collect();
    may_write(store, &changing)?;

    let mut outcomes: Vec<Option<Outcome>> = vec![None; changing.len()];
    let steps = prepare(journal, store, &changing, &mut outcomes)?;
    let mut taken: Vec<&Step<'_>> = Vec::new();
    for step in &steps {
        let result = write(journal, store, step);
        outcomes[step.index] = Some(match result {
            Ok(()) => {
                taken.push(step);
                Outcome::Written { old: step.old.clone() }
            }
            Err(error) => failure(step.change.need, error),
        });
        stop_at_a_must(journal, store, &changing, &outcomes, step.index)?;
    }
    // What was taken may have been changed meanwhile, by somebody else or by a later write.
    let last: HashMap<&Key, u64> = steps.iter().map(|step| (&step.key, step.number)).collect();
    for step in taken.into_iter().filter(|step| last[&step.key] == step.number) {
        if let Ok(now) = store.read(&step.key)
            && !step.change.form.same(&now, &step.change.wanted)
        {
            let text = format!(
                "{} took {:?} and is {:?} a moment later: somebody else writes it",
                companions::place(&step.key),
                step.change.wanted,
                step.change.form.tidy(&now)
            );
            let error = SettingError { class: SettingErrorClass::ChangedByOther, text };
            outcomes[step.index] = Some(failure(step.change.need, error));
            stop_at_a_must(journal, store, &changing, &outcomes, step.index)?;
        }
    }
    if !steps.is_empty() {
        journal.end_batch();
    }
    let id = if journal.live().is_empty() { String::new() } else { journal.header.id.clone() };
    let of = |((item, _), outcome): (&(&Item, &Change), Option<Outcome>)| AppliedItem {
        item: (*item).clone(),
        outcome: outcome.unwrap_or(Outcome::Already),
    };
    Ok(Applied { id, items: changing.iter().zip(outcomes).map(of).collect() })
}

fn failure(need: Need, error: SettingError) -> Outcome {
    match need {
        Need::Try => Outcome::Refused { error },
        Need::Must | Need::Should => Outcome::Failed { error },
    }
}

/// Refuses the whole before the first write when this process may not write some of it.
fn may_write(store: &dyn SettingStore, changing: &[(&Item, &Change)]) -> Result<(), TuneError> {
    let mut reason = String::new();
    let mut what = Vec::new();
    for (item, change) in changing.iter().filter(|(_, change)| change.need != Need::Try) {
        if let Err(error) = store.may_write(&change.key) {
            if reason.is_empty() {
                reason = error.text;
            }
            what.push(format!("{}: {}", item.subject, item.what));
        }
    }
    match what.is_empty() {
        true => Ok(()),
        false => Err(TuneError::NotAllowed { reason, of: changing.len(), what }),
    }
}

/// Reads what is to be written now, and writes it down: old values, with one sync.
fn prepare<'a>(
    journal: &mut Journal,
    store: &mut dyn SettingStore,
    changing: &[(&'a Item, &'a Change)],
    outcomes: &mut [Option<Outcome>],
) -> Result<Vec<Step<'a>>, TuneError> {
    let mut finder = Finder::default();
    let mut steps: Vec<Step<'_>> = Vec::new();
    let (mut writes, mut again): (Vec<Write>, Vec<u64>) = (Vec::new(), Vec::new());
    // The step of each setting that comes last, and its place among the writes if it is one.
    let mut last: HashMap<Key, (usize, Option<usize>)> = HashMap::new();
    for (index, (item, change)) in changing.iter().enumerate() {
        let key = finder.locate(store, &change.key, &change.identity);
        let read = key.ok_or_else(|| away(change)).and_then(|key| Ok((store.read(&key)?, key)));
        let (now, key) = match read {
            Ok(read) => read,
            Err(error) => {
                outcomes[index] = Some(failure(change.need, error));
                stop_at_a_must(journal, store, changing, outcomes, index)?;
                continue;
            }
        };
        // A setting that occurs twice in a batch: what the first will have written is the value.
        let before = last.get(&key).copied();
        let now = before.map_or(now, |(step, _)| steps[step].change.wanted.clone());
        if change.form.same(&now, &change.wanted) {
            continue;
        }
        let old = change.form.to_restore(&now);
        let newest = journal.newest_of(&key);
        let known = |write: &Write| write.old == old && write.new == change.wanted;
        // It was written and put back before in this tuning: the journal has the values.
        let number = match newest {
            Some(entry)
                if before.is_none()
                    && !entry.live
                    && entry.write.companions.is_empty()
                    && known(&entry.write) =>
            {
                again.push(entry.write.number);
                entry.write.number
            }
            _ => {
                let number = journal.next_number() + writes.len() as u64;
                let mut write = Write {
                    number,
                    knob: item.knob.clone(),
                    group: item.group,
                    subject: item.subject.clone(),
                    what: item.what.clone(),
                    companions: companions::of(store, &key, &change.identity),
                    key: key.clone(),
                    form: change.form,
                    old: old.clone(),
                    new: change.wanted.clone(),
                    identity: change.identity.clone(),
                    earlier: Vec::new(),
                };
                // Written before and not put back: what it was before that is put back.
                let in_batch = before.map(|(step, of)| match of {
                    Some(of) => Some(&writes[of]),
                    None => journal.entries.get(&steps[step].number).map(|entry| &entry.write),
                });
                let live = newest.filter(|entry| entry.live).map(|entry| &entry.write);
                if let Some(first) = in_batch.flatten().or(live) {
                    write.earlier = first.earlier.clone();
                    write.earlier.push(first.new.clone());
                    write.old.clone_from(&first.old);
                    write.companions.clone_from(&first.companions);
                }
                writes.push(write);
                number
            }
        };
        let of = writes.last().filter(|write| write.number == number).map(|_| writes.len() - 1);
        last.insert(key.clone(), (steps.len(), of));
        steps.push(Step { index, change, key, number, old });
    }
    if !steps.is_empty() {
        journal.begin_batch(writes, again)?;
    }
    Ok(steps)
}

fn away(change: &Change) -> SettingError {
    let text = format!(
        "{} is not there any more: its device is away or got another number",
        companions::place(&change.key)
    );
    SettingError { class: SettingErrorClass::Absent, text }
}

/// Writes one value and reads it back. What does not read back as wanted is put back at once.
fn write(
    journal: &mut Journal,
    store: &mut dyn SettingStore,
    step: &Step<'_>,
) -> Result<(), SettingError> {
    let Step { change, key, old, number, .. } = step;
    let wrote = store.write(key, &change.wanted);
    let now = store.read(key);
    let result = match (wrote, now) {
        (Ok(()), Ok(now)) if change.form.same(&now, &change.wanted) => {
            let companions: &[Companion] =
                journal.entries.get(number).map_or(&[], |entry| &entry.write.companions);
            if !companions.is_empty() {
                let after = companions::read(store, companions);
                journal.after(*number, after);
            }
            return Ok(());
        }
        (Ok(()), Ok(now)) => {
            let text = format!(
                "{} was given {:?} and reads {:?}",
                companions::place(key),
                change.wanted,
                change.form.tidy(&now)
            );
            SettingError { class: SettingErrorClass::NotTaken, text }
        }
        (Err(error), _) | (_, Err(error)) => error,
    };
    let untouched =
        |store: &dyn SettingStore| store.read(key).is_ok_and(|now| change.form.same(&now, old));
    if !untouched(store) {
        let _ = store.write(key, old);
    }
    if untouched(store)
        && let Some(entry) = journal.entries.get(number)
        && entry.write.earlier.is_empty()
    {
        let companions = &entry.write.companions;
        companions::put_back(store, companions, &vec![None; companions.len()], None);
        journal.done(vec![*number]);
    }
    Err(result)
}

/// Rolls everything of this tuning back when this item is a must-have that failed.
fn stop_at_a_must(
    journal: &mut Journal,
    store: &mut dyn SettingStore,
    changing: &[(&Item, &Change)],
    outcomes: &[Option<Outcome>],
    index: usize,
) -> Result<(), TuneError> {
    let (item, change) = changing[index];
    let Some(Outcome::Failed { error }) = &outcomes[index] else { return Ok(()) };
    if change.need != Need::Must {
        return Ok(());
    }
    let reverted: Reverted = revert::revert(journal, store, OnDrift::Keep);
    Err(TuneError::RolledBack {
        what: format!("{}: {}", item.subject, item.what),
        error: error.clone(),
        reverted: Box::new(reverted),
    })
}
