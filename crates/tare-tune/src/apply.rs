//! Applies changes: records the old values in the journal with one sync, then writes each setting
//! and reads it back.

use std::collections::HashMap;

use super::companions::{self, Companion};
use super::identity::SettingLocator;
use super::journal::{Journal, Write};
use super::outcome::{Applied, AppliedItem, OnDrift, Outcome, Reverted};
use super::{SettingError, SettingErrorClass, SettingStore, TuneError, revert};
use crate::plan::{Change, Item, Key, Requirement};

/// One write of a batch.
struct Step<'a> {
    index: usize,
    change: &'a Change,
    /// The current location of the setting, whose number may differ from that in the plan.
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
            Err(error) => failure(step.change.requirement, error),
        });
        roll_back_if_required(journal, store, &changing, &outcomes, step.index)?;
    }
    // Another program or a later write may have changed a written setting meanwhile.
    let last: HashMap<&Key, u64> = steps.iter().map(|step| (&step.key, step.number)).collect();
    for step in taken.into_iter().filter(|step| last[&step.key] == step.number) {
        if let Ok(now) = store.read(&step.key)
            && !step.change.form.same(&now, &step.change.wanted)
        {
            let text = format!(
                "{} took {:?} but is {:?} a moment later: another program writes it",
                companions::describe_location(&step.key),
                step.change.wanted,
                step.change.form.normalize(&now)
            );
            let error = SettingError { class: SettingErrorClass::ChangedByOther, text };
            outcomes[step.index] = Some(failure(step.change.requirement, error));
            roll_back_if_required(journal, store, &changing, &outcomes, step.index)?;
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

fn failure(requirement: Requirement, error: SettingError) -> Outcome {
    match requirement {
        Requirement::BestEffort => Outcome::Refused { error },
        Requirement::Required | Requirement::Wanted => Outcome::Failed { error },
    }
}

/// Checks before the first write that this process may write all settings.
fn may_write(store: &dyn SettingStore, changing: &[(&Item, &Change)]) -> Result<(), TuneError> {
    let mut reason = String::new();
    let mut what = Vec::new();
    for (item, change) in
        changing.iter().filter(|(_, change)| change.requirement != Requirement::BestEffort)
    {
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

/// Reads the current values and records them in the journal with one sync.
fn prepare<'a>(
    journal: &mut Journal,
    store: &mut dyn SettingStore,
    changing: &[(&'a Item, &'a Change)],
    outcomes: &mut [Option<Outcome>],
) -> Result<Vec<Step<'a>>, TuneError> {
    let mut finder = SettingLocator::default();
    let mut steps: Vec<Step<'_>> = Vec::new();
    let (mut writes, mut again): (Vec<Write>, Vec<u64>) = (Vec::new(), Vec::new());
    // The last step of each setting, and its index among the writes if it has one.
    let mut last: HashMap<Key, (usize, Option<usize>)> = HashMap::new();
    for (index, (item, change)) in changing.iter().enumerate() {
        let key = finder.locate(store, &change.key, &change.identity);
        let read =
            key.ok_or_else(|| absent_error(change)).and_then(|key| Ok((store.read(&key)?, key)));
        let (now, key) = match read {
            Ok(read) => read,
            Err(error) => {
                outcomes[index] = Some(failure(change.requirement, error));
                roll_back_if_required(journal, store, changing, outcomes, index)?;
                continue;
            }
        };
        // When a setting occurs twice in a batch, its value is the one that the first step writes.
        let before = last.get(&key).copied();
        let now = before.map_or(now, |(step, _)| steps[step].change.wanted.clone());
        if change.form.same(&now, &change.wanted) {
            continue;
        }
        let old = change.form.to_restore(&now);
        let newest = journal.newest_of(&key);
        let known = |write: &Write| write.old == old && write.new == change.wanted;
        // A revert goes back through the numbers, so they follow the order of the writes.
        let after = journal.live().into_iter().chain(steps.iter().map(|step| step.number)).max();
        // This tuning has written and restored it before, so the journal has the values.
        let number = match newest {
            Some(entry)
                if before.is_none()
                    && after.is_none_or(|after| entry.write.number > after)
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
                // It was written before and not restored, so a revert restores the first old value.
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

fn absent_error(change: &Change) -> SettingError {
    let text = format!(
        "{} does not exist any more: its device is absent or has another number",
        companions::describe_location(&change.key)
    );
    SettingError { class: SettingErrorClass::Absent, text }
}

/// Writes one value and reads it back. Restores the old value when another value reads back.
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
                "{} reads {:?} after a write of {:?}",
                companions::describe_location(key),
                change.form.normalize(&now),
                change.wanted
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
        companions::restore(store, companions, &vec![None; companions.len()], None);
        journal.done(vec![*number]);
    }
    Err(result)
}

/// Reverts the whole tuning when this item failed and is `Requirement::Required`.
fn roll_back_if_required(
    journal: &mut Journal,
    store: &mut dyn SettingStore,
    changing: &[(&Item, &Change)],
    outcomes: &[Option<Outcome>],
    index: usize,
) -> Result<(), TuneError> {
    let (item, change) = changing[index];
    let Some(Outcome::Failed { error }) = &outcomes[index] else { return Ok(()) };
    if change.requirement != Requirement::Required {
        return Ok(());
    }
    let reverted: Reverted = revert::revert(journal, store, OnDrift::Keep);
    Err(TuneError::RolledBack {
        what: format!("{}: {}", item.subject, item.what),
        error: error.clone(),
        reverted: Box::new(reverted),
    })
}
