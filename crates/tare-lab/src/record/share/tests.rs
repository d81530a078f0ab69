use std::path::PathBuf;

use rusqlite::Connection;

use super::*;
use crate::analysis::{Analysis, analyse};
use crate::attach::{Attach, AttachTarget};
use crate::doubt::Doubt;
use crate::environment::StorageSpec;
use crate::layer::{Layer, NeighbourKind, OtherSystem, Placement, Rootfs};
use crate::loader::Loader;
use crate::record::tests::{environment, make_old, opening, slice, stack_slice};
use crate::record::{DoubtRecord, HostFact, Record, RecordWriter, read_stacks};
use crate::study::LoaderSpec;

/// What must not be in a shared record: names, addresses, paths, serial numbers.
const MARKS: [&str; 8] = [
    "zorgcorp",
    "jqdoe",
    "10.20.30.40",
    "fe80::1ff:fe23:4567:890a",
    "52:54:00:ab:cd:ef",
    "S4EVNX0R123456",
    "98765432109",
    "3f2b8c1d9e",
];

/// All marks in one text, as a user, a path, an address and a serial number.
fn marked() -> String {
    format!(
        "/srv/{} by {}@{} {} {} {} {} {}",
        MARKS[0], MARKS[1], MARKS[2], MARKS[3], MARKS[4], MARKS[5], MARKS[6], MARKS[7]
    )
}

fn attached(text: &str) -> Attach {
    Attach {
        target: AttachTarget::Container { engine: "docker".into(), name: text.into() },
        address: format!("{}:9042", MARKS[2]).parse().unwrap(),
        data: Some(format!("/srv/{}", MARKS[0]).into()),
        read_only: false,
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A record with marks in every text that the types allow.
    fn marked_record(&self) -> PathBuf {
        let path = self.path("marked.tare");
        let text = marked();
        let mut opening = opening();
        let study = &mut opening.study;
        study.name.clone_from(&text);
        study.title.clone_from(&text);
        study.system.options = vec![(text.clone(), text.clone())];
        study.driver.clone_from(&text);
        study.published[0].source.clone_from(&text);
        study.published[0].hardware = Some(text.clone());
        study.workloads[0].options = vec![("file".into(), text.clone())];
        let box_name = format!("box of {text}");
        study.environments[1].name.clone_from(&box_name);
        study.published[0].environment.clone_from(&box_name);
        study.environments[1].storage =
            StorageSpec { kind: "raw".into(), options: vec![("device".into(), text.clone())] };
        study.environments[1].rootfs = Rootfs::Image(text.clone());
        study.environments[1].attach = Some(attached(&text));
        let plain = study.environments[1].clone();
        let mut burning = crate::fake::changed(Layer::Neighbours, &plain).neighbours;
        burning[0].name.clone_from(&text);
        burning[0].kind = NeighbourKind::Command;
        burning[0].command = vec![text.clone()];
        study.environments[1].neighbours = burning;
        // Every word of a neighbour that is no name stays, or the record would not open.
        for ((kind, ..), place) in NeighbourKind::ALL.iter().zip(Placement::ALL.iter().cycle()) {
            let mut other = study.environments[1].neighbours[0].clone();
            (other.kind, other.placement) = (*kind, place.0);
            (other.size_bytes, other.rate_bytes, other.load_percent) = (Some(1), Some(1), Some(1));
            other.workers = Some(1);
            other.system = Some(Box::new(other_system(&text)));
            study.environments[1].neighbours.push(other);
        }
        opening.study_text = format!("# {text}\n");
        opening.tare_version = format!("0.1.0+{}", MARKS[0]);
        opening.command = vec!["/opt/work/tare".into(), "weigh".into(), text.clone()];
        let fact = |section: &str, key: &str| HostFact {
            section: section.into(),
            key: key.into(),
            value: text.clone(),
        };
        opening.host = KEPT_FACTS.iter().map(|(section, key)| fact(section, key)).collect();
        opening.host.extend([
            fact("kernel", "host name"),
            fact("network", "bridges"),
            fact(&text, &text),
            HostFact { value: format!("{{\"{text}\": [\"{text}\"]}}"), ..fact("explain", "plan") },
        ]);
        let mut writer = RecordWriter::create(&path, &opening).unwrap();
        writer.put_environment(0, &environment("native", false)).unwrap();
        let mut other = environment(&box_name, false);
        other.spec = opening.study.environments[1].clone();
        other.spec.vm = vec![("kernel".into(), text.clone())];
        other.spec.sandbox = vec![("platform".into(), text.clone())];
        other.left_out = Some(text.clone());
        other.config = Some(format!("{{\"hostname\": \"{text}\"}}"));
        other.settings = vec![(text.clone(), text.clone())];
        other.layers[0].wanted.clone_from(&text);
        other.layers[0].found.clone_from(&text);
        writer.put_environment(1, &other).unwrap();
        writer.put_rate("w", 5000.0).unwrap();
        for (round, name) in [(0, "native"), (0, &box_name), (1, "native"), (1, &box_name)] {
            let mut one = slice(round, 0, name);
            one.errors = vec![(text.clone(), 1)];
            one.layer_cpu_ns = vec![(text.clone(), 1000)];
            one.counters[0].name = format!("{}_ns", MARKS[0]);
            one.response = text.clone().into_bytes();
            one.void = (round == 1).then(|| text.clone());
            let probe = Doubt::ProbeFailed { probe: text.clone(), reason: text.clone() };
            writer.put_slice(&one, &[probe]).unwrap();
        }
        writer.finish_round(0, 5).unwrap();
        let doubts = [
            Doubt::BaselineNotClean { found: text.clone() },
            Doubt::EnvironmentLeftOut { environment: box_name.clone(), reason: text.clone() },
        ];
        for doubt in doubts {
            writer.put_doubt(&DoubtRecord { slice: None, environment: None, doubt }).unwrap();
        }
        let mut sampled = stack_slice(0, &box_name);
        sampled.stacks[0].folded = format!("main;{text};work_[k]");
        sampled.void = Some(text.clone());
        sampled.event.clone_from(&text);
        writer.put_stacks(&sampled).unwrap();
        writer.finish(&text, 9).unwrap();
        // Text that no Tare writes, and text that was deleted.
        let connection = Connection::open(&path).unwrap();
        let foreign = format!(
            "CREATE TABLE more (note TEXT); INSERT INTO more VALUES ('{text}'); \
             CREATE VIEW \"{0}\" AS SELECT 1; ALTER TABLE record ADD COLUMN {0} TEXT; \
             CREATE TABLE gone AS SELECT '{text}' AS note; DELETE FROM gone; DROP TABLE gone;",
            MARKS[0]
        );
        connection.execute_batch(&foreign).unwrap();
        path
    }
}

fn has(bytes: &[u8], mark: &str) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark.as_bytes())
}

#[test]
fn shared_record_has_no_mark() {
    let folder = Folder::new();
    let from = folder.marked_record();
    let original = fs::read(&from).unwrap();
    let to = folder.path("shared.tare");
    share(&from, &to, &Keep::default()).unwrap();
    let copied = fs::read(&to).unwrap();
    for mark in MARKS {
        assert!(has(&original, mark), "{mark} is not planted");
        assert!(!has(&copied, mark), "{mark} is in the copy");
    }
    let mut record = Record::read(&to).unwrap();
    assert_eq!(record.study.name, "study 1");
    assert_eq!(record.environments[1].spec.name, "environment 1");
    assert_eq!(record.study.environments[1].name, "environment 1");
    assert_eq!(record.slices[1].environment, "environment 1");
    assert_eq!(record.header.command[..2], ["tare", "weigh"], "no directory of the program");
    assert!(record.host.iter().all(|fact| fact.key != "host name"));
    let stacks = read_stacks(&to).unwrap();
    let samples: u64 = stacks[0].stacks.iter().map(|stack| stack.samples).sum();
    assert_eq!((stacks[0].stacks.len(), samples), (2, 4));
    record.doubts.retain(|one| matches!(one.doubt, Doubt::ProbeFailed { .. }));
    assert_eq!(record.doubts.len(), 4);
    assert_eq!(fs::read(&from).unwrap(), original, "the record itself is unchanged");
}

/// Plants a mark in every column of text by SQL, also where no Tare writes one. The copy has none,
/// or there is no copy because the record cannot be read.
#[test]
fn no_column_of_text_keeps_a_mark() {
    let folder = Folder::new();
    let good = folder.marked_record();
    for (table, columns) in TABLES {
        for (column, rule) in *columns {
            if matches!(rule, Rule::Number | Rule::Histogram) {
                continue;
            }
            let (from, to) = (folder.path("planted.tare"), folder.path("copy.tare"));
            fs::copy(&good, &from).unwrap();
            let connection = Connection::open(&from).unwrap();
            let sql = format!("UPDATE OR IGNORE {table} SET {column} = ?");
            let planted = connection.execute(&sql, [marked()]);
            drop(connection);
            if planted.is_ok() && share(&from, &to, &Keep::default()).is_ok() {
                let copied = fs::read(&to).unwrap();
                let found = MARKS.iter().find(|mark| has(&copied, mark));
                assert_eq!(found, None, "{table}.{column}");
            } else {
                assert!(!to.exists(), "{table}.{column}: a copy of a bad record");
            }
            let _ = (fs::remove_file(from), fs::remove_file(to));
        }
    }
}

/// A record of ordinary names keeps everything but the host's name and the runtime's configuration.
#[test]
fn figures_and_known_names_stay() {
    let folder = Folder::new();
    let (from, to) = (folder.path("plain.tare"), folder.path("copy.tare"));
    let mut writer = RecordWriter::create(&from, &opening()).unwrap();
    writer.put_environment(0, &environment("native", false)).unwrap();
    writer.put_environment(1, &environment("native again", true)).unwrap();
    for round in 0..4 {
        for (position, name) in ["native", "native again"].iter().enumerate() {
            let mut one = slice(round, u32::try_from(position).unwrap(), name);
            one.system_cpu_ns += u64::from(round) * 1_000_000;
            (one.response, one.service) = (Vec::new(), Vec::new());
            writer.put_slice(&one, &[Doubt::Steal { share: 0.5 }]).unwrap();
        }
        writer.finish_round(round, 5).unwrap();
    }
    writer.finish("rounds done", 9).unwrap();
    share(&from, &to, &Keep::default()).unwrap();
    let (old, new) = (Record::read(&from).unwrap(), Record::read(&to).unwrap());
    assert_eq!(old.slices, new.slices);
    assert_eq!(old.doubts, new.doubts);
    let analyses: [Analysis; 2] = [analyse(&old), analyse(&new)];
    assert_eq!(analyses[0].findings, analyses[1].findings);
    assert_eq!(new.header.seed, old.header.seed);
    assert_eq!(new.environments[0].layers, old.environments[0].layers);
    assert_eq!(new.environments[0].config, None);
    let again = share(&from, &to, &Keep::default()).unwrap_err();
    assert!(matches!(again, RecordError::Exists { .. }), "{again}");
}

/// Every column of the schema has a rule, so that nobody adds one without thinking about it.
#[test]
fn every_column_has_a_rule() {
    let folder = Folder::new();
    let path = folder.path("empty.tare");
    drop(RecordWriter::create(&path, &opening()).unwrap());
    let connection = Connection::open(&path).unwrap();
    let names = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let of = |kind: &str| {
        names(&format!(
            "SELECT name FROM sqlite_schema WHERE type = '{kind}' AND name NOT LIKE 'sqlite_%'"
        ))
    };
    for table in of("table") {
        let found = TABLES.iter().find(|(name, _)| *name == table);
        let (_, rules) = found.unwrap_or_else(|| panic!("table {table} has no rule"));
        for column in names(&format!("SELECT name FROM pragma_table_info('{table}')")) {
            let listed = rules.iter().any(|(name, _)| *name == column);
            assert!(listed, "{table}.{column} has no rule");
        }
    }
    for view in of("view") {
        assert!(VIEWS.contains(&view.as_str()), "{view}");
    }
    for index in of("index") {
        assert!(rules::INDEXES.contains(&index.as_str()), "{index}");
    }
}

#[test]
fn old_records_can_be_shared() {
    let folder = Folder::new();
    for version in [1, 2] {
        let (from, to) = (folder.path("old.tare"), folder.path("copy.tare"));
        let mut writer = RecordWriter::create(&from, &opening()).unwrap();
        writer.put_environment(0, &environment("native", false)).unwrap();
        writer.finish("rounds done", 9).unwrap();
        make_old(&from, version);
        share(&from, &to, &Keep::default()).unwrap();
        let names: Vec<String> =
            Record::read(&to).unwrap().environments.into_iter().map(|e| e.spec.name).collect();
        assert_eq!(names, ["native"]);
        let _ = (fs::remove_file(from), fs::remove_file(to));
    }
}

#[test]
fn hosts_of_loaders_get_new_names() {
    let folder = Folder::new();
    let from = folder.path("loaders.tare");
    let host = "ssh:jqdoe@db7.zorgcorp.example:2222";
    let mut opening = opening();
    opening.study.loaders = vec![
        LoaderSpec { host: host.parse().unwrap(), address: Some([10, 9, 8, 7].into()), cpus: None },
        LoaderSpec { host: "ssh:10.9.8.6".parse().unwrap(), ..LoaderSpec::default() },
        LoaderSpec::default(),
    ];
    let loaders: Vec<Loader> = opening
        .study
        .loaders
        .iter()
        .map(|loader| Loader {
            host: loader.name(),
            cpus: "0-1".parse().unwrap(),
            kernel: "6.1.0-zorgcorp".into(),
            architecture: "x86_64".into(),
        })
        .collect();
    let mut writer = RecordWriter::create(&from, &opening).unwrap();
    writer.put_environment(0, &environment("native", false)).unwrap();
    writer.put_loaders(&loaders).unwrap();
    let late = Doubt::LoaderLate { loader: host.into(), share: 0.5 };
    writer.put_slice(&slice(0, 0, "native"), &[late]).unwrap();
    writer.finish("rounds done", 9).unwrap();
    let to = folder.path("shared.tare");
    share(&from, &to, &Keep::default()).unwrap();
    let copied = fs::read(&to).unwrap();
    for mark in ["zorgcorp", "jqdoe", "10.9.8"] {
        assert!(has(&fs::read(&from).unwrap(), mark) && !has(&copied, mark), "{mark}");
    }
    let record = Record::read(&to).unwrap();
    let hosts: Vec<&str> = record.loaders.iter().map(|loader| loader.host.as_str()).collect();
    assert_eq!(hosts, ["ssh:loader1", "ssh:loader2", "local"]);
    assert_eq!(record.study.loaders[0].name(), "ssh:loader1");
    let late = Doubt::LoaderLate { loader: "ssh:loader1".into(), share: 0.5 };
    assert_eq!(record.doubts[0].doubt, late);
}

fn other_system(text: &str) -> OtherSystem {
    OtherSystem {
        name: text.into(),
        options: vec![(text.into(), text.into())],
        driver: text.into(),
        rate_per_s: Some(1),
        rows: None,
        driver_options: vec![(text.into(), text.into())],
    }
}
