//! Expands `[[sweep]]`, lists of fixed rates, and `[quick]`.
//!
//! Method: both edit the parsed document before it is read. So every option of a workload, an
//! environment, a schedule or a system can be swept or changed for the quick part, the edited
//! values are checked like all others, and every error points into the file.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::StudyError;
use super::checks::must_exist_as;
use tare_toml::{Item, Source, Table};

pub(super) const QUICK_KEYS: &[&str] =
    &["environments", "workloads", "schedule", "system", "workload"];
const SWEEP_KEYS: &[&str] = &["workload", "environment", "option", "values"];
/// What a sweep copies: the key in `[[sweep]]`, which is also the name of the tables.
const SWEPT: [&str; 2] = ["workload", "environment"];
/// The key of the fixed rate of a workload.
const RATE: &str = "rate_per_s";

/// Returns the document with the workloads and environments of every `[[sweep]]`: copies of one,
/// each with one value of an option. `option = "fio.numjobs"` is an option in the workload's table
/// `fio`.
pub(super) fn sweeps<'t>(
    written: DeTable<'t>,
    source: Source<'_>,
) -> Result<DeTable<'t>, StudyError> {
    let mut document = written.clone();
    let root = Table::unchecked(source, "the study", source.first_line(), &written);
    for (number, sweep) in root.tables("sweep", SWEEP_KEYS)?.iter().enumerate() {
        let key = match (sweep.get(SWEPT[0]), sweep.get(SWEPT[1])) {
            (Some(_), None) => SWEPT[0],
            (None, Some(_)) => SWEPT[1],
            (Some(_), Some(both)) => {
                return Err(both.bad_value("a sweep copies a workload or an environment; give one"));
            }
            (None, None) => return Err(sweep.missing("workload")),
        };
        let tables = written.get(key).map(Spanned::get_ref);
        let Some(DeValue::Array(originals)) = tables else { continue };
        let copies = copies(&written, sweep, (key, number), originals)?;
        if let Some(DeValue::Array(all)) = document.get_mut(key).map(Spanned::get_mut) {
            copies.into_iter().for_each(|copy| all.push(copy));
        }
    }
    Ok(document)
}

/// Returns the document with a workload for each of several fixed rates: `rate_per_s = [20_000,
/// 50_000]` of the workload `read` makes `read` at the first one, with its closed loop, and behind
/// it `read, rate 50000`, which is measured at that rate alone.
pub(super) fn rates<'t>(
    written: DeTable<'t>,
    source: Source<'_>,
) -> Result<DeTable<'t>, StudyError> {
    let Some(DeValue::Array(workloads)) = written.get("workload").map(Spanned::get_ref) else {
        return Ok(written);
    };
    let mut all = Vec::new();
    for workload in workloads.iter() {
        let DeValue::Table(entries) = workload.get_ref() else {
            all.push(workload.clone());
            continue;
        };
        let table = Table::unchecked(source, "[[workload]]", workload.span(), entries);
        let rates = entries.get(RATE).map(Spanned::get_ref);
        let (Some(DeValue::Array(values)), Some(item)) = (rates, table.get(RATE)) else {
            all.push(workload.clone());
            continue;
        };
        if values.is_empty() {
            return Err(item.bad_value("a list of rates needs at least one"));
        }
        let items = item.list().unwrap_or_default();
        for (number, (item, value)) in items.iter().zip(values.iter()).enumerate() {
            all.push(at_rate(workload, number, item, value)?);
        }
    }
    let mut document = written.clone();
    if let Some(DeValue::Array(workloads)) = document.get_mut("workload").map(Spanned::get_mut) {
        *workloads = DeArray::new();
        all.into_iter().for_each(|workload| workloads.push(workload));
    }
    Ok(document)
}

/// Returns the workload at one of its rates, counted from 0.
fn at_rate<'t>(
    workload: &Spanned<DeValue<'t>>,
    number: usize,
    item: &Item<'_>,
    value: &Spanned<DeValue<'t>>,
) -> Result<Spanned<DeValue<'t>>, StudyError> {
    let name = name_of(workload).map(String::from);
    let mut copy = workload.clone();
    let DeValue::Table(table) = copy.get_mut() else { return Ok(copy) };
    put(table, &[RATE], item, value.clone());
    let Some(name) = name.filter(|_| number > 0) else { return Ok(copy) };
    let spanned = |value| Spanned::new(item.span.clone(), value);
    // What is not a number is refused with its place when the workload is read.
    let rate =
        item.number(1.0..=1e9).map_or_else(|_| item.scalar(), |rate| Ok(rate.to_string()))?;
    let called = format!("{name}, rate {rate}");
    put(table, &["name"], item, spanned(DeValue::String(called.into())));
    put(table, &["rate_only"], item, spanned(DeValue::Boolean(true)));
    // The first one searches for all of them.
    table.remove("slo");
    Ok(copy)
}

/// Returns the copies of one sweep, with its number among all. `key` names what it copies.
fn copies<'t>(
    written: &DeTable<'t>,
    sweep: &Table<'_>,
    (key, number): (&'static str, usize),
    originals: &[Spanned<DeValue<'t>>],
) -> Result<Vec<Spanned<DeValue<'t>>>, StudyError> {
    let names: Vec<String> = originals.iter().filter_map(name_of).map(String::from).collect();
    let item = sweep.need(key)?;
    let name = item.text()?;
    must_exist_as(key, &item, name, &names)?;
    let option = sweep.need("option")?;
    let path: Vec<&str> = option.text()?.split('.').collect();
    let values = sweep.need("values")?;
    let items = values.list().ok_or_else(|| values.wrong_type("a list of values"))?;
    let original = originals.iter().find(|one| name_of(one) == Some(name));
    let mut copies = Vec::new();
    for (item, value) in items.iter().zip(values_of(written, number)) {
        let Some(mut copy) = original.cloned() else { continue };
        if let DeValue::Table(table) = copy.get_mut() {
            let word = path.last().copied().unwrap_or_default();
            let called = format!("{name}, {word} {}", value_text(item)?);
            let called = Spanned::new(item.span.clone(), DeValue::String(called.into()));
            put(table, &["name"], item, called);
            put(table, &path, item, value);
        }
        copies.push(copy);
    }
    Ok(copies)
}

/// Returns the name of a workload or an environment, or `None` if it is not a text.
fn name_of<'w>(table: &'w Spanned<DeValue<'_>>) -> Option<&'w str> {
    table.get_ref().get("name")?.get_ref().as_str()
}

/// Returns a value of a sweep for the name of its copy: `["a", "b"]` is `a + b`.
fn value_text(item: &Item<'_>) -> Result<String, StudyError> {
    let Some(items) = item.list() else { return item.scalar() };
    let texts: Vec<String> = items.iter().map(Item::scalar).collect::<Result<_, StudyError>>()?;
    Ok(if texts.is_empty() { "none".into() } else { texts.join(" + ") })
}

/// Returns the parsed values of a sweep.
fn values_of<'t>(document: &DeTable<'t>, sweep: usize) -> Vec<Spanned<DeValue<'t>>> {
    let values =
        document.get("sweep").and_then(|all| all.get_ref().get(sweep)?.get_ref().get("values"));
    match values.map(Spanned::get_ref) {
        Some(DeValue::Array(values)) => values.to_vec(),
        _ => Vec::new(),
    }
}

/// Sets the value at a path. The place of its key in the file is that of `item`.
fn put<'t>(table: &mut DeTable<'t>, path: &[&str], item: &Item<'_>, value: Spanned<DeValue<'t>>) {
    let Some((first, rest)) = path.split_first() else { return };
    let key = Spanned::new(item.key_span.clone(), (*first).to_string().into());
    if rest.is_empty() {
        // `insert` keeps the place of an existing key.
        table.remove(*first);
        table.insert(key, value);
        return;
    }
    if !table.get(*first).is_some_and(|inner| inner.get_ref().is_table()) {
        table.remove(*first);
        let empty = Spanned::new(item.span.clone(), DeValue::Table(DeTable::new()));
        table.insert(key, empty);
    }
    if let Some(DeValue::Table(inner)) = table.get_mut(*first).map(Spanned::get_mut) {
        put(inner, rest, item, value);
    }
}

/// Returns the document with the tables of `[quick]` merged into it: `schedule`, `system`, and
/// `workload` into every workload. The keys of `[quick]` are checked before.
pub(super) fn quick<'t>(document: &DeTable<'t>) -> DeTable<'t> {
    let mut edited = document.clone();
    let Some(DeValue::Table(quick)) = document.get("quick").map(Spanned::get_ref) else {
        return edited;
    };
    for (key, value) in quick {
        let name: &str = key.get_ref();
        let DeValue::Table(above) = value.get_ref() else { continue };
        match edited.get_mut(name).map(Spanned::get_mut) {
            Some(DeValue::Table(below)) => merge_tables(below, above),
            Some(DeValue::Array(tables)) => {
                for table in tables.iter_mut() {
                    if let DeValue::Table(below) = table.get_mut() {
                        merge_tables(below, above);
                    }
                }
            }
            Some(_) => {}
            None => {
                edited.insert(key.clone(), value.clone());
            }
        }
    }
    edited
}

/// Replaces every value of `below` by that of the same name in `above`, and merges tables.
fn merge_tables<'t>(below: &mut DeTable<'t>, above: &DeTable<'t>) {
    for (key, value) in above {
        let name: &str = key.get_ref();
        match (below.get_mut(name).map(Spanned::get_mut), value.get_ref()) {
            (Some(DeValue::Table(below)), DeValue::Table(above)) => merge_tables(below, above),
            _ => {
                // `insert` keeps the place of an existing key.
                below.remove(name);
                below.insert(key.clone(), value.clone());
            }
        }
    }
}
