//! Reverts a tuning: restores, in reverse order, every setting that still has the written value. A
//! setting that another program has changed since has drifted and stays.

use super::companions;
use super::identity::SettingLocator;
use super::journal::{Journal, Write};
use super::outcome::{OnDrift, RevertOutcome, Reverted, RevertedSetting};
use super::{SettingError, SettingErrorClass, SettingStore};
use crate::plan::{Identity, Key};

/// Restores what is not restored yet and records it.
pub(super) fn revert(
    journal: &mut Journal,
    store: &mut dyn SettingStore,
    drift: OnDrift,
) -> Reverted {
    let rebooted = journal.header.boot_id != store.boot_id();
    let mut finder = SettingLocator::default();
    let mut numbers = journal.live();
    numbers.reverse();
    let mut outcomes = Vec::with_capacity(numbers.len());
    for number in &numbers {
        outcomes.push(match rebooted {
            true => RevertOutcome::Rebooted,
            false => restore_with_companions(journal, store, &mut finder, *number),
        });
    }
    // A write can reset another setting, or be possible only after another (an energy preference
    // after its governor), so restored settings are checked once more.
    for (number, outcome) in numbers.iter().zip(&mut outcomes) {
        match outcome {
            RevertOutcome::Failed { .. } => {
                *outcome = restore_with_companions(journal, store, &mut finder, *number);
            }
            // A setting that was changed earlier has restored it as its companion, to a value from
            // before this one's.
            RevertOutcome::Restored { .. } if is_companion(journal, &numbers, *number) => {}
            RevertOutcome::Restored { .. } => {
                let write = &journal.entries[number].write;
                if let Some(key) = finder.locate(store, &write.key, &write.identity)
                    && store.read(&key).is_ok_and(|now| !write.form.same(&now, &write.old))
                {
                    *outcome = restore(store, &key, write);
                }
            }
            _ => {}
        }
    }
    let forgotten = |outcome: &RevertOutcome| {
        drift == OnDrift::Forget && matches!(outcome, RevertOutcome::Drift { .. })
    };
    let done = numbers.iter().zip(&outcomes);
    let done = done.filter(|(_, outcome)| outcome.is_done() || forgotten(outcome));
    let done = done.map(|(number, _)| *number).collect();
    let settings = numbers.iter().zip(outcomes).map(|(number, outcome)| {
        let Write { knob, group, subject, what, key, .. } = &journal.entries[number].write;
        RevertedSetting {
            knob: knob.clone(),
            group: *group,
            subject: subject.clone(),
            what: what.clone(),
            place: companions::describe_location(key),
            outcome,
        }
    });
    let reverted = Reverted { id: journal.header.id.clone(), settings: settings.collect() };
    journal.done(done);
    reverted
}

/// Returns whether an earlier write of the tuning has this setting as a companion.
fn is_companion(journal: &Journal, numbers: &[u64], number: u64) -> bool {
    let write = &journal.entries[&number].write;
    let named = |identity: &Identity| identity.irq_name.is_some();
    let earlier = numbers.iter().filter(|other| **other < number);
    earlier.flat_map(|other| &journal.entries[other].write.companions).any(|companion| {
        match named(&write.identity) && named(&companion.identity) {
            // The number of an interrupt may have changed since.
            true => write.identity == companion.identity,
            false => write.key == companion.key,
        }
    })
}

/// Restores one setting and its companions.
fn restore_with_companions(
    journal: &mut Journal,
    store: &mut dyn SettingStore,
    finder: &mut SettingLocator,
    number: u64,
) -> RevertOutcome {
    let entry = journal.entries[&number].clone();
    let write = &entry.write;
    let Some(key) = finder.locate(store, &write.key, &write.identity) else {
        return RevertOutcome::Gone;
    };
    let now = match store.read(&key) {
        Ok(now) => now,
        Err(error) if error.class == SettingErrorClass::Absent => return RevertOutcome::Gone,
        Err(error) => return RevertOutcome::Failed { error, old: write.old.clone() },
    };
    let same = |value: &String| write.form.same(&now, value);
    let written = same(&write.new) || write.earlier.iter().any(same);
    if !written && !same(&write.old) {
        return RevertOutcome::Drift {
            now: write.form.normalize(&now),
            written: write.new.clone(),
            old: write.old.clone(),
        };
    }
    // A crash may have restored the setting but not its companions.
    let begun = entry.restoring || entry.after.is_none();
    let before = match begun {
        true => vec![None; write.companions.len()],
        false => companions::read(store, &write.companions),
    };
    // A refused step of a tuning whose last step wants the old value has changed nothing.
    let outcome = match written && write.form.to_restore(&now) != write.old {
        true => {
            if !write.companions.is_empty() {
                journal.restoring(number);
            }
            restore(store, &key, write)
        }
        false => RevertOutcome::Already,
    };
    if !outcome.is_done() || write.companions.is_empty() || !(written || begun) {
        return outcome;
    }
    let failed = companions::restore(store, &write.companions, &before, entry.after.as_ref());
    match failed.is_empty() {
        true => outcome,
        false => {
            let error = SettingError { class: SettingErrorClass::Failed, text: failed.join("; ") };
            RevertOutcome::Failed { error, old: write.old.clone() }
        }
    }
}

/// Writes the old value and reads it back.
fn restore(store: &mut dyn SettingStore, key: &Key, write: &Write) -> RevertOutcome {
    let old = write.old.clone();
    let result = store.write(key, &old).and_then(|()| store.read(key));
    match result {
        Ok(now) if write.form.same(&now, &old) => RevertOutcome::Restored { old },
        Ok(now) => {
            let text = format!(
                "{} reads {now:?} after a write of {old:?}",
                companions::describe_location(key)
            );
            RevertOutcome::Failed {
                error: SettingError { class: SettingErrorClass::NotTaken, text },
                old,
            }
        }
        Err(error) => RevertOutcome::Failed { error, old },
    }
}
