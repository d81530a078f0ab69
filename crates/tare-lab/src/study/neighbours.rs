//! Reads `[[neighbour]]`, and the names of neighbours in an environment.

use std::str::FromStr;

use super::StudyError;
use super::checks::{Names, must_exist_as, name_of, options, part};
use super::vocabulary::Vocabulary;
use crate::environment::INSTANCES;
use crate::layer::{
    BadLayerValue, Layer, NEIGHBOUR_WORKERS_MAX, Neighbour, NeighbourKind, OtherSystem, Placement,
    RowsLoad,
};
use tare_toml::{Item, Source, Table};

const KEYS: &[&str] = &[
    "name", "kind", "command", "where", "workers", "load", "size", "rate", "system", "driver",
    "workload",
];
/// Keys of `workload` for a driver that loads rows. `rate_per_s` is one of every driver.
const WORKLOAD_KEYS: &[&str] = &["rows", "write_share", "connections", "in_flight", RATE];
const RATE: &str = "rate_per_s";

/// The most neighbours of an environment.
const NEIGHBOURS_MAX: usize = 16;
/// Limits of `size`: a worker needs some memory, and no study fills a disk.
const SIZE_MIN: u64 = 1 << 20;
const SIZE_MAX: u64 = 1 << 40;

/// Reads every `[[neighbour]]`.
pub(super) fn read(
    root: &Table<'_>,
    source: Source<'_>,
    vocabulary: &Vocabulary,
) -> Result<Vec<Neighbour>, StudyError> {
    let mut names = Names::default();
    let mut neighbours = Vec::new();
    for table in root.tables("neighbour", KEYS)? {
        let (name, item) = name_of(&table)?;
        names.add("neighbour", &name, &item, source)?;
        neighbours.push(one(&table, name, vocabulary)?);
    }
    Ok(neighbours)
}

/// Reads `neighbours = ["NAME", ...]` of an environment; `None` without the key.
pub(super) fn named(
    table: &Table<'_>,
    known: &[Neighbour],
) -> Result<Option<Vec<Neighbour>>, StudyError> {
    let Some(item) = table.get(Layer::Neighbours.name()) else { return Ok(None) };
    let items = item.list().ok_or_else(|| item.wrong_type("a list of names of neighbours"))?;
    if items.len() > NEIGHBOURS_MAX {
        let most = format!("an environment has at most {NEIGHBOURS_MAX} neighbours");
        return Err(item.bad_value(&most));
    }
    let names: Vec<String> = known.iter().map(|one| one.name.clone()).collect();
    let mut named: Vec<Neighbour> = Vec::new();
    for item in &items {
        let name = item.text()?;
        must_exist_as("neighbour", item, name, &names)?;
        if named.iter().any(|one| one.name == name) {
            return Err(item.bad_value("it is named twice; use workers for more of it"));
        }
        named.extend(known.iter().find(|one| one.name == name).cloned());
    }
    Ok(Some(named))
}

fn one(table: &Table<'_>, name: String, vocabulary: &Vocabulary) -> Result<Neighbour, StudyError> {
    let kinds = NeighbourKind::ALL.map(|(_, name, _)| name);
    let places = Placement::ALL.map(|(_, name, _)| name);
    let kind: Option<NeighbourKind> = word(table, "kind", &kinds)?;
    let kind = kind.ok_or_else(|| table.missing("kind"))?;
    let only = |key: &str, fits: bool, of: &str| match table.get(key).filter(|_| !fits) {
        Some(item) => Err(item.bad_value(&format!("a neighbour of kind {kind:?} has none; {of}"))),
        None => Ok(()),
    };
    let is = |one: NeighbourKind| kind == one;
    only("command", is(NeighbourKind::Command), "write kind = \"command\"")?;
    only("workers", kind.has_workers(), "a command or a system starts its own")?;
    for key in ["system", "driver", "workload"] {
        only(key, is(NeighbourKind::System), "write kind = \"system\"")?;
    }
    only("load", is(NeighbourKind::Cpu), "only kind = \"cpu\" has one")?;
    only("rate", is(NeighbourKind::MemoryBandwidth), "only kind = \"memory bandwidth\" has one")?;
    let of_size = "only memory bandwidth, disk, page cache and system have one";
    only("size", kind.default_size_bytes().is_some(), of_size)?;
    let command = match kind {
        NeighbourKind::Command => command(&table.need("command")?)?,
        _ => Vec::new(),
    };
    let whole = |key: &str, most: u64| -> Result<Option<u32>, StudyError> {
        let number = table.get(key).map(|item| item.whole(1..=most)).transpose()?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    };
    Ok(Neighbour {
        name,
        kind,
        command,
        placement: word(table, "where", &places)?.unwrap_or_default(),
        workers: whole("workers", NEIGHBOUR_WORKERS_MAX.into())?,
        load_percent: load(table)?,
        system: match kind {
            NeighbourKind::System => Some(Box::new(other_system(table, vocabulary)?)),
            _ => None,
        },
        size_bytes: bytes(table, "size", SIZE_MIN..=SIZE_MAX, "1M to 1T")?,
        rate_bytes: bytes(table, "rate", SIZE_MIN..=SIZE_MAX, "1M to 1T, per second")?,
    })
}

/// Reads a word of a type of its own. `names` has every word.
fn word<T: FromStr<Err = BadLayerValue>>(
    table: &Table<'_>,
    key: &str,
    names: &[&str],
) -> Result<Option<T>, StudyError> {
    let names: Vec<String> = names.iter().map(|name| (*name).to_string()).collect();
    let Some(word) = table.word(key, &names)? else { return Ok(None) };
    word.parse().map(Some).map_err(|error: BadLayerValue| match table.get(key) {
        Some(item) => item.bad_value(&error.wanted),
        None => table.missing(key),
    })
}

/// Reads a share of a CPU, such as 0.5, in whole percent.
fn load(table: &Table<'_>) -> Result<Option<u32>, StudyError> {
    let Some(item) = table.get("load") else { return Ok(None) };
    Ok(Some(percent(item.number(0.01..=1.0)?)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is between 0 and 1"
)]
fn percent(share: f64) -> u32 {
    (share * 100.0).round() as u32
}

fn bytes(
    table: &Table<'_>,
    key: &str,
    range: std::ops::RangeInclusive<u64>,
    words: &str,
) -> Result<Option<u64>, StudyError> {
    let Some(item) = table.get(key) else { return Ok(None) };
    match item.bytes_or_none()? {
        Some(bytes) if range.contains(&bytes) => Ok(Some(bytes)),
        _ => Err(item.out_of_range(words)),
    }
}

/// Reads the system of a neighbour, and its load.
fn other_system(table: &Table<'_>, vocabulary: &Vocabulary) -> Result<OtherSystem, StudyError> {
    let item = table.need("system")?;
    let (name, chosen) = part(&item, &["name"], "system of [[neighbour]]", &vocabulary.systems)?;
    let many = [INSTANCES, "cluster"];
    if chosen.iter().any(|(key, _)| many.contains(&key.as_str())) {
        return Err(item.bad_value("a neighbour is one instance on this host; write another one"));
    }
    let names: Vec<String> = vocabulary.drivers.iter().map(|one| one.name.clone()).collect();
    let driver = match table.word("driver", &names)? {
        Some(name) => vocabulary.drivers.iter().find(|one| one.name == name),
        None => vocabulary.drivers.first(),
    };
    let driver = driver.ok_or_else(|| table.missing("driver"))?;
    let (mut rows, mut driver_options, mut rate_per_s) = (Some(RowsLoad::DEFAULT), vec![], None);
    if !driver.options.is_empty() {
        rows = None;
    }
    if let Some(item) = table.get("workload") {
        let open = item.open_table("workload of [[neighbour]]")?;
        rate_per_s = open.get(RATE).map(|item| item.whole(1..=u64::from(u32::MAX))).transpose()?;
        if driver.options.is_empty() {
            let inner = item.table("workload of [[neighbour]]", WORKLOAD_KEYS)?;
            rows = Some(rows_load(&inner)?);
        } else {
            let title = format!("workload of [[neighbour]] with {}", driver.name);
            driver_options = options(&item, &title, &[RATE], &driver.options)?;
        }
    }
    let rate_per_s = rate_per_s.and_then(|rate| u32::try_from(rate).ok());
    let driver = driver.name.clone();
    Ok(OtherSystem { name, options: chosen, driver, rate_per_s, rows, driver_options })
}

fn rows_load(table: &Table<'_>) -> Result<RowsLoad, StudyError> {
    let default = RowsLoad::DEFAULT;
    let share = table.share("write_share", f64::from(default.write_percent) / 100.0)?;
    Ok(RowsLoad {
        rows: table.whole("rows", 1..=1_000_000_000, default.rows)?,
        write_percent: percent(share),
        connections: table.whole_u32("connections", 1..=65_536, default.connections)?,
        in_flight: table.whole_u32("in_flight", 1..=1 << 20, default.in_flight)?,
    })
}

impl RowsLoad {
    /// What a neighbour's workload leaves out: that of a study's workload for one CPU, with fewer
    /// rows, and as many reads as writes.
    const DEFAULT: Self = Self { rows: 10_000, write_percent: 50, connections: 8, in_flight: 64 };
}

fn command(item: &Item<'_>) -> Result<Vec<String>, StudyError> {
    let words = item.list().ok_or_else(|| item.wrong_type("a list of words: the program first"))?;
    let words: Vec<String> =
        words.iter().map(|word| Ok(word.text()?.to_string())).collect::<Result<_, StudyError>>()?;
    if words.first().is_none_or(|program| program.trim().is_empty()) {
        return Err(item.bad_value("it has no program; write [\"PROGRAM\", \"ARGUMENT\", ...]"));
    }
    if words.iter().any(|word| word.contains('\0')) {
        return Err(item.bad_value("a word of a command has no NUL character"));
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GOOD, vocabulary};
    use super::super::{Study, parse};
    use super::*;

    /// Returns the study with these tables, and these neighbours of its first environment.
    fn with(tables: &str, names: &str) -> Result<Study, StudyError> {
        let tables = format!("{tables}\n[schedule]");
        let named = format!("runtime = \"process\"\nneighbours = {names}\n");
        let text = GOOD.replace("[schedule]", &tables).replace("runtime = \"process\"\n", &named);
        parse(&text, "s.toml", &vocabulary())
    }

    const BURNER: &str = "[[neighbour]]\nname = \"burner\"\nkind = \"cpu\"";

    #[test]
    fn environments_name_neighbours_and_inherit_them() {
        let tables = format!(
            "{BURNER}\nload = 0.5\nworkers = 2\nwhere = \"anywhere\"\n[[neighbour]]\nname = \"m\"\n\
             kind = \"memory bandwidth\"\nsize = \"64M\"\nrate = \"200M\"\n[[neighbour]]\nname = \"own\"\n\
             kind = \"command\"\ncommand = [\"sleep\", \"9\"]"
        );
        let study = with(&tables, "[\"burner\", \"own\", \"m\"]").unwrap();
        let all = &study.environments[0].neighbours;
        let texts: Vec<String> = all.iter().map(Neighbour::to_string).collect();
        assert_eq!(
            texts,
            [
                "burner (cpu, anywhere, 2 workers, load 50 %)",
                "own (command, same CPUs, sleep 9)",
                "m (memory bandwidth, same CPUs, a worker for each CPU, size 67108864 bytes, rate \
                 209715200 bytes/s)",
            ]
        );
        // The second environment extends the first; an empty list removes them.
        assert_eq!(study.environments[1].neighbours, *all);
        let none = with(BURNER, "[]").unwrap();
        assert!(none.environments[0].neighbours.is_empty());
        let text = serde_json::to_string(&study).unwrap();
        assert_eq!(serde_json::from_str::<Study>(&text).unwrap(), study);
        assert!(!serde_json::to_string(&none).unwrap().contains("neighbour"));
    }

    #[test]
    fn a_sweep_copies_an_environment_for_lists_of_neighbours() {
        let sweep = "[[sweep]]\nenvironment = \"native\"\noption = \"neighbours\"\n\
                     values = [[\"burner\"], [\"burner\", \"b\"], []]";
        let second = BURNER.replace("burner", "b");
        let study = with(&format!("{BURNER}\n{second}\n{sweep}"), "[]").unwrap();
        let found: Vec<(&str, usize)> = study
            .environments
            .iter()
            .filter(|spec| spec.name.starts_with("native, "))
            .map(|spec| (spec.name.as_str(), spec.neighbours.len()))
            .collect();
        let [one, both, none] = ["burner", "burner + b", "none"];
        let names = [one, both, none].map(|name| format!("native, neighbours {name}"));
        let expect: Vec<(&str, usize)> = names.iter().map(String::as_str).zip([1, 2, 0]).collect();
        assert_eq!(found, expect);
    }

    #[test]
    fn another_system_has_a_load() {
        let tables = "[[neighbour]]\nname = \"other\"\nkind = \"system\"\n\
                      system = { name = \"tare-db\" }\nsize = \"512M\"\n\
                      workload = { rows = 500, write_share = 1, rate_per_s = 900 }";
        let study = with(tables, "[\"other\"]").unwrap();
        let text = study.environments[0].neighbours[0].to_string();
        let expect = "other (system, same CPUs, size 536870912 bytes, tare-db, tare-load, 500 rows, \
                      100 % writes, 8 connections, 64 in flight, 900 op/s)";
        assert_eq!(text, expect);
        let json = serde_json::to_string(&study).unwrap();
        assert_eq!(serde_json::from_str::<Study>(&json).unwrap(), study);
    }

    #[test]
    fn refuses_invalid_neighbours() {
        let check = |tables: &str, names: &str, expect: &str| {
            let error = with(tables, names).expect_err(expect).to_string();
            let line = error.lines().next().unwrap_or_default();
            assert!(line.contains(expect), "{expect:?} is not in {line:?}");
        };
        let table = |lines: &str| format!("[[neighbour]]\nname = \"n\"\n{lines}");
        let of = |lines: &str, expect: &str| check(&table(lines), "[]", expect);
        of("kind = \"cpus\"", "did you mean \"cpu\"?");
        of("", "[[neighbour]] lacks the key \"kind\"");
        of("kind = \"command\"", "[[neighbour]] lacks the key \"command\"");
        of("kind = \"command\"\ncommand = []", "it has no program");
        of("kind = \"command\"\ncommand = \"sleep 9\"", "a list of words");
        of("kind = \"command\"\ncommand = [\"sleep\"]\nworkers = 2", "starts its own");
        of("kind = \"system\"", "[[neighbour]] lacks the key \"system\"");
        of("kind = \"cpu\"\ndriver = \"tare-load\"", "write kind = \"system\"");
        let system =
            |more: &str| format!("kind = \"system\"\nsystem = {{ name = \"tare-db\" }}\n{more}");
        of("kind = \"system\"\nsystem = { name = \"tare-bd\" }", "did you mean \"tare-db\"?");
        of(&system("workers = 2"), "starts its own");
        of(&system("workload = { row = 5 }"), "did you mean \"rows\"?");
        of(&system("workload = { write_share = 2 }"), "write_share");
        of(&system("workload = { rate_per_s = 0 }"), "rate_per_s");
        of(&system("driver = \"tare-loud\""), "did you mean \"tare-load\"?");
        of("kind = \"cpu\"\ncommand = [\"sleep\"]", "write kind = \"command\"");
        of("kind = \"cpu\"\nwhere = \"same cpus\"", "did you mean \"same CPUs\"?");
        of("kind = \"cpu\"\nworkers = 0", "workers");
        of("kind = \"cpu\"\nload = 1.5", "load");
        of("kind = \"cpu\"\nsize = \"1G\"", "only memory bandwidth, disk, page cache and system");
        of("kind = \"disk\"\nsize = \"2T\"", "1M to 1T");
        of("kind = \"disk\"\nrate = \"2M\"", "only kind = \"memory bandwidth\" has one");
        check(BURNER, "[\"burned\"]", "did you mean \"burner\"?");
        check(BURNER, "[\"burner\", \"burner\"]", "it is named twice");
        check(BURNER, "\"burner\"", "a list of names of neighbours");
        check(&format!("{BURNER}\n{BURNER}"), "[]", "two neighbours named");
    }
}
