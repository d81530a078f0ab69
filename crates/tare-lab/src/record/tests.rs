use std::io::{Read, Seek, SeekFrom, Write};

use proptest::prelude::*;
use rusqlite::Connection;
use tare_std::cpus::CpuSet;

use super::*;
use crate::cpus::PlanNode;
use crate::environment::StorageSpec;
use crate::fake::spec;
use crate::layer::{Host, Layer, Rootfs};
use crate::seconds::{DiskSecond, LoadSecond};
use crate::stacks::{PartCpu, SampledStack, StackKind, StackSlice};
use crate::study::{
    Claim, CpuSpec, DataStart, Expected, KeyDistribution, PublishedRelation, ScheduleKind,
    ScheduleSpec, SystemSpec, WorkloadSpec,
};

fn study() -> Study {
    Study {
        name: "s".into(),
        title: "what?".into(),
        baseline: "native".into(),
        system: SystemSpec { name: "fake".into(), options: vec![("a".into(), "b".into())] },
        driver: "fake".into(),
        schedule: ScheduleSpec {
            kind: ScheduleKind::Slices,
            data: DataStart::Loaded,
            without_data_cache: false,
            window: std::time::Duration::from_millis(400),
            lead_in: std::time::Duration::from_millis(100),
            rounds: 9,
            rounds_min: 3,
            budget: std::time::Duration::from_secs(60),
            stop_width_percent: 1.5,
            seed: Some(3),
            auto_window: None,
            restarts: 0,
            warm_up: std::time::Duration::ZERO,
        },
        cpus: CpuSpec { system: Some([1].into_iter().collect()), ..CpuSpec::default() },
        environments: vec![spec("native", "fake"), spec("box", "fake:cpu=1.1")],
        workloads: vec![WorkloadSpec {
            name: "w".into(),
            workload: None,
            workload_text: None,
            write_share: 0.25,
            rows: 10,
            columns: 2,
            column_bytes: 3,
            keys: KeyDistribution::Gaussian { mean_share: 0.5, deviation_share: 0.1 },
            connections: 1,
            in_flight: 2,
            load: crate::study::LoadSize::default(),
            latency_share: 0.5,
            rate_only: false,
            slo: None,
            reads_from_disk: None,
            replicas: crate::study::Replicas::default(),
            connection: crate::study::ClientConnection::default(),
            attached_rows: None,
            rate_per_s: None,
            options: Vec::new(),
        }],
        published: vec![PublishedRelation {
            environment: "box".into(),
            against: None,
            workload: None,
            claim: Claim::Throughput(Expected::Value(69.0)),
            within_percent: None,
            source: "somewhere".into(),
            hardware: None,
        }],
        quick: None,
        budget_part: None,
        runtime_controls: Vec::new(),
        loaders: Vec::new(),
        loader_selectors: Vec::new(),
        hosts: Vec::new(),
        access: None,
    }
}

pub(super) fn opening() -> Opening {
    let list = |text: &str| CpuSet::parse_list(text).unwrap();
    let fact = |section: &str, key: &str, value: &str| HostFact {
        section: section.into(),
        key: key.into(),
        value: value.into(),
    };
    Opening {
        tare_version: "0.1.0".into(),
        started_unix_ms: 1_700_000_000_123,
        seed: u64::MAX - 5,
        command: vec!["tare".into(), "weigh".into(), "it's \"ours\"".into()],
        study: study(),
        study_text: "name = \"s\"\n".into(),
        cpu_plan: CpuPlan {
            all: list("0-3"),
            system: list("2-3"),
            client: list("0-1"),
            interrupts: list("4"),
            shared: list("2-4"),
            cores: vec![list("2-3")],
            nodes: vec![PlanNode { id: 1, cpus: list("0-4") }],
            memory: list("0-1"),
        },
        host: vec![fact("cpu", "model", "x"), fact("kernel", "release", "6.1")],
    }
}

pub(super) fn environment(name: &str, control: bool) -> EnvironmentRecord {
    let mut spec = spec(name, "fake");
    spec.limits.memory_bytes = Some(6 << 30);
    spec.optional = true;
    EnvironmentRecord {
        spec,
        control,
        left_out: None,
        layers: vec![LayerState {
            layer: "cpu".into(),
            wanted: "1".into(),
            found: "Cpus_allowed_list: 1".into(),
            in_force: true,
        }],
        settings: vec![("io_engine".into(), "io_uring".into())],
        config: Some("{}".into()),
        ready_ns: Some(1_000),
        teardown_ns: None,
    }
}

pub(super) fn slice(round: u32, position: u32, environment: &str) -> Slice {
    Slice {
        id: 0,
        round,
        position,
        environment: environment.into(),
        workload: "w".into(),
        phase: Phase::Latency,
        started_unix_ms: 1_700_000_000_456,
        window_ns: 400_000_000,
        operations: 4000,
        errors: vec![("timeout".into(), 2)],
        unsent: 3,
        rate_per_s: Some(10_000.5),
        system_cpu_ns: 40_000_000,
        layer_cpu_ns: vec![("userland proxy".into(), 8_000_000)],
        busy_time: Some(BusyTime { busy_ns: 30_000_000, idle_poll_ns: 10_000_000 }),
        client_cpu_ns: 20_000_000,
        throttled_ns: None,
        response: vec![0, 1, 2, 255],
        service: vec![9],
        counters: vec![Counter { name: "steal_ns".into(), value: 1.5 }],
        void: None,
        start: 0,
        account_ns: None,
        server: Vec::new(),
        loaders: Vec::new(),
        seconds: Seconds {
            load: vec![LoadSecond { operations: 9, mean_ns: 5, max_ns: 7 }, LoadSecond::default()],
            disks: vec![DiskSecond {
                reads: 1,
                read_mean_ns: 2,
                read_max_ns: 3,
                writes: 4,
                write_mean_ns: 5,
                write_max_ns: 6,
            }],
        },
    }
}

struct RecordFolder {
    folder: tempfile::TempDir,
}

impl RecordFolder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("s.tare")
    }

    fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Returns a writer with both environments and one complete round.
    fn begun(&self) -> RecordWriter {
        let mut writer = RecordWriter::create(&self.path(), &opening()).unwrap();
        writer.put_environment(0, &environment("native", false)).unwrap();
        writer.put_environment(1, &environment("native again", true)).unwrap();
        writer.put_rate("w", 5000.0).unwrap();
        writer.put_slice(&slice(0, 0, "native"), &[Doubt::Steal { share: 0.5 }]).unwrap();
        writer.put_slice(&slice(0, 1, "native again"), &[]).unwrap();
        writer.finish_round(0, 5).unwrap();
        writer
    }
}

#[test]
fn record_round_trips() {
    let folder = RecordFolder::new();
    let mut writer = folder.begun();
    let found = DoubtRecord {
        slice: None,
        environment: Some("native".into()),
        doubt: Doubt::ClientSharesCpus { cpus: "0".into() },
    };
    writer.put_doubt(&found).unwrap();
    let running = Record::read(&folder.path()).unwrap();
    assert_eq!((running.slices.len(), running.header.ended_unix_ms), (2, None));
    writer.finish("rounds done", 1_700_000_009_999).unwrap();
    assert_eq!(folder.files(), ["s.tare"], "a single file");

    let record = Record::read(&folder.path()).unwrap();
    let asked = opening();
    assert_eq!(record.header.seed, asked.seed);
    assert_eq!(record.header.command, asked.command);
    assert_eq!(record.header.ended_unix_ms, Some(1_700_000_009_999));
    assert_eq!(record.header.ending.as_deref(), Some("rounds done"));
    assert_eq!(record.header.rates, [("w".to_string(), 5000.0)]);
    assert_eq!((&record.study, &record.study_text), (&asked.study, &asked.study_text));
    assert_eq!((&record.cpu_plan, &record.host), (&asked.cpu_plan, &asked.host));
    let control = environment("native again", true);
    assert_eq!(record.environments, [environment("native", false), control]);
    let expect = Slice { id: record.slices[0].id, ..slice(0, 0, "native") };
    assert_eq!(record.slices[0], expect);
    let steal = DoubtRecord {
        slice: Some(expect.id),
        environment: Some("native".into()),
        doubt: Doubt::Steal { share: 0.5 },
    };
    assert_eq!(record.doubts, [steal, found]);
}

#[test]
fn resume_drops_incomplete_round() {
    let folder = RecordFolder::new();
    let mut writer = folder.begun();
    writer.put_slice(&slice(1, 0, "native"), &[Doubt::Steal { share: 0.1 }]).unwrap();
    writer
        .put_doubt(&DoubtRecord {
            slice: None,
            environment: None,
            doubt: Doubt::FewRounds { rounds: 1 },
        })
        .unwrap();
    drop(writer);
    assert_eq!(Record::read(&folder.path()).unwrap().slices.len(), 3, "a crash keeps it");
    let writer = RecordWriter::resume(&folder.path()).unwrap();
    assert_eq!(writer.rounds(), 1);
    assert!(writer.record().slices.iter().all(|one| one.response.is_empty()));
    drop(writer);
    let record = Record::read(&folder.path()).unwrap();
    assert_eq!((record.slices.len(), record.doubts.len()), (2, 1));
    assert_eq!(record.slices[0].response, [0, 1, 2, 255], "histograms stay in the file");
}

#[test]
fn resumes_ended_record() {
    let folder = RecordFolder::new();
    folder.begun().finish("budget spent", 7).unwrap();
    let mut writer = RecordWriter::resume(&folder.path()).unwrap();
    writer.put_slice(&slice(1, 0, "native"), &[]).unwrap();
    writer.finish_round(1, 8).unwrap();
    writer.finish("rounds done", 9).unwrap();
    let record = Record::read(&folder.path()).unwrap();
    assert_eq!((record.slices.len(), record.header.ending.as_deref()), (3, Some("rounds done")));
    assert_eq!(folder.files(), ["s.tare"]);
}

#[test]
fn refuses_to_overwrite() {
    let folder = RecordFolder::new();
    std::fs::write(folder.path(), "precious").unwrap();
    let error = RecordWriter::create(&folder.path(), &opening()).unwrap_err();
    assert!(
        error.to_string().contains("exists already, and records are never overwritten"),
        "{error}"
    );
    assert_eq!(std::fs::read(folder.path()).unwrap(), b"precious");
    assert_eq!(free_path(&folder.path()).file_name().unwrap(), "s-2.tare");
    std::fs::write(folder.folder.path().join("s-2.tare"), "").unwrap();
    assert_eq!(free_path(&folder.path()).file_name().unwrap(), "s-3.tare");
    let absent = folder.folder.path().join("new.tare");
    assert_eq!(free_path(&absent), absent);
}

#[test]
fn refuses_files_that_are_no_records() {
    let folder = RecordFolder::new();
    let path = folder.path();
    let name = path.display().to_string();
    let check = |expect: &str| {
        let expect = expect.replace("PATH", &name);
        assert_eq!(Record::read(&path).unwrap_err().to_string(), expect);
        assert_eq!(RecordWriter::resume(&path).unwrap_err().to_string(), expect);
    };
    check("no record at PATH");
    std::fs::write(&path, "x".repeat(5000)).unwrap();
    check("PATH is not a record of Tare");
    std::fs::remove_file(&path).unwrap();
    let other = Connection::open(&path).unwrap();
    other.execute_batch("CREATE TABLE t (x)").unwrap();
    drop(other);
    check("PATH is not a record of Tare");
    assert_eq!(folder.files(), ["s.tare"], "another program's database is unchanged");
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "").unwrap();
    check("PATH is not a record of Tare");
    std::fs::remove_file(&path).unwrap();
    folder.begun().finish("rounds done", 1).unwrap();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 99).unwrap();
    check("PATH is a record of version 99, and this Tare reads up to version 10; use a newer Tare");
}

#[test]
fn copied_record_has_its_log_and_no_other() {
    let folder = RecordFolder::new();
    let at = |name: &str| folder.folder.path().join(name);
    // Copied while a writer has it open, a record is as after a kill: with a log beside it.
    let mut writer = folder.begun();
    writer.put_rate("of the log", 1.0).unwrap();
    for (from, to) in logs_of(&at("s.tare")).iter().zip(&logs_of(&at("k.tare"))) {
        std::fs::copy(from, to).unwrap();
    }
    std::fs::copy(at("s.tare"), at("k.tare")).unwrap();
    writer.finish("rounds done", 1).unwrap();
    copy_record(&at("k.tare"), &at("copy.tare")).unwrap();
    assert!(!at("copy.tare-wal").exists(), "a single file");
    let copied = Record::read(&at("copy.tare")).unwrap();
    assert_eq!(copied.header.rates.last().unwrap().0, "of the log");
    assert_eq!(copied, Record::read(&at("k.tare")).unwrap());

    // A log of what was there before is not that of the copy.
    copy_record(&at("s.tare"), &at("k.tare")).unwrap();
    assert!(!at("k.tare-wal").exists());
    assert_eq!(Record::read(&at("k.tare")).unwrap().header.ending.unwrap(), "rounds done");

    // A damaged record stays damaged, and keeps its log.
    std::fs::write(at("k.tare"), "x".repeat(5000)).unwrap();
    std::fs::write(at("k.tare-wal"), "log").unwrap();
    copy_record(&at("k.tare"), &at("copy.tare")).unwrap();
    assert_eq!(std::fs::read(at("copy.tare-wal")).unwrap(), b"log");
    assert!(copy_record(&at("none.tare"), &at("copy.tare")).is_err());
    assert_eq!(std::fs::read(at("copy.tare")).unwrap(), "x".repeat(5000).into_bytes());
}

#[test]
fn reports_damaged_records() {
    let folder = RecordFolder::new();
    folder.begun().finish("rounds done", 1).unwrap();
    let connection = Connection::open(folder.path()).unwrap();
    connection.execute("UPDATE record SET study = '{'", []).unwrap();
    drop(connection);
    let error = Record::read(&folder.path()).unwrap_err().to_string();
    assert!(error.contains("is damaged: EOF while parsing"), "{error}");
    // Overwrites the second half of the file: the result is an error or a record, never a panic.
    let mut file = std::fs::File::options().read(true).write(true).open(folder.path()).unwrap();
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).unwrap();
    file.seek(SeekFrom::Start(bytes.len() as u64 / 2)).unwrap();
    file.write_all(&vec![0xa5; bytes.len() / 2]).unwrap();
    assert!(Record::read(&folder.path()).is_err());
}

#[test]
fn locks_record_for_one_writer() {
    let folder = RecordFolder::new();
    let writer = folder.begun();
    let error = RecordWriter::resume(&folder.path()).unwrap_err().to_string();
    assert!(error.ends_with("is in use by a running study; wait for it, or stop it"));
    drop(writer);
    RecordWriter::resume(&folder.path()).unwrap();
}

#[test]
fn full_disk_keeps_record_readable() {
    let folder = RecordFolder::new();
    let mut writer = folder.begun();
    writer.limit_pages(60);
    let mut big = slice(1, 0, "native");
    big.response = vec![7; 20_000];
    let mut written = 0;
    let error = loop {
        match writer.put_slice(&big, &[]) {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
    };
    let expect = format!(
        "the disk is full: cannot write {}; free some space and continue with --resume",
        folder.path().display()
    );
    assert_eq!(error.to_string(), expect);
    drop(writer);
    assert_eq!(Record::read(&folder.path()).unwrap().slices.len(), 2 + written);
}

#[test]
fn sql_views_answer_common_questions() {
    let folder = RecordFolder::new();
    folder.begun().finish("rounds done", 1).unwrap();
    let connection = Connection::open(folder.path()).unwrap();
    let sql = "SELECT environment, operations_per_s, server_cpu_us_per_operation, doubts \
               FROM slice_figures ORDER BY id";
    let row = connection
        .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap();
    // 40 ms - 10 ms of idle polling + 8 ms of the proxy, over 4,000 operations.
    assert_eq!(row, ("native".to_string(), 10_000.0, 9.5, 1));
    let count: i64 = connection
        .query_row("SELECT COUNT(*) FROM layers_not_in_force", [], |row| row.get(0))
        .unwrap();
    assert_eq!(count, 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]
    #[test]
    fn slice_round_trips(
        operations in 0u64..1 << 62,
        text in ".{0,20}",
        bytes in proptest::collection::vec(any::<u8>(), 0..50),
        account in proptest::option::of((0u64..1 << 62, 0u64..1 << 62)),
        rate in proptest::option::of(0.0f64..1e12),
    ) {
        let folder = RecordFolder::new();
        let mut writer = folder.begun();
        let mut one = slice(1, 0, "native");
        one.operations = operations;
        one.errors = vec![(text.clone(), operations)];
        one.void = Some(text);
        one.service = bytes;
        one.busy_time =
            account.map(|(busy_ns, idle_poll_ns)| BusyTime { busy_ns, idle_poll_ns });
        one.rate_per_s = rate;
        one.id = writer.put_slice(&one, &[]).unwrap();
        drop(writer);
        let record = Record::read(&folder.path()).unwrap();
        prop_assert_eq!(record.slices.last(), Some(&one));
    }
}

/// Turns a record into one of schema version 1 (without the host layer) or 2 (without stacks).
pub(super) fn make_old(path: &std::path::Path, version: i32) {
    let connection = Connection::open(path).unwrap();
    let columns = if version < 2 { 0 } else { 1 };
    for column in &["host", "storage", "vm", "inject", "sandbox", "rootfs"][columns..] {
        connection.execute(&format!("ALTER TABLE environments DROP COLUMN {column}"), []).unwrap();
    }
    drop_starts(&connection);
    for table in ["stack_samples", "stacks", "stack_cpu", "stack_slices"] {
        connection.execute(&format!("DROP TABLE {table}"), []).unwrap();
    }
    connection.execute("ALTER TABLE record DROP COLUMN cpu_plan", []).unwrap();
    connection.pragma_update(None, "user_version", version).unwrap();
}

#[test]
fn upgrades_records_without_host_layer() {
    let folder = RecordFolder::new();
    let writer = folder.begun();
    let before = writer.record().environments.clone();
    drop(writer);
    make_old(&folder.path(), 1);
    let record = Record::read(&folder.path()).unwrap();
    assert_eq!(record.environments, before);
    let plan = &record.cpu_plan;
    assert_eq!((plan.system.to_string(), plan.interrupts.is_empty()), ("2-3".into(), true));
    assert!(record.environments.iter().all(|one| one.spec.host.is_as_is()));
    let mut writer = RecordWriter::resume(&folder.path()).unwrap();
    let mut tuned = before[0].clone();
    tuned.spec.name = "tuned".into();
    tuned.spec.host = Host::TunedGroups(vec!["disk".into()]);
    tuned.spec.storage =
        StorageSpec { kind: "ext4".into(), options: vec![("size".into(), "2G".into())] };
    tuned.spec.sandbox = vec![("platform".into(), "kvm".into())];
    tuned.spec.rootfs = Rootfs::Packages("redis-server".into());
    tuned.spec.vm = vec![("vcpus".into(), "2".into())];
    tuned.spec.inject.busy = Some(std::time::Duration::from_micros(2));
    writer.put_environment(9, &tuned).unwrap();
    drop(writer);
    let record = Record::read(&folder.path()).unwrap();
    assert_eq!(record.environments.last().unwrap().spec, tuned.spec);
}

pub(super) fn stack_slice(round: u32, environment: &str) -> StackSlice {
    let stack = |part: &str, folded: &str, samples| SampledStack {
        part: part.into(),
        subsystem: "database".into(),
        folded: folded.into(),
        samples,
    };
    StackSlice {
        id: 0,
        round,
        kind: if round == 0 { StackKind::OnCpu } else { StackKind::OffCpu },
        position: 0,
        environment: environment.into(),
        workload: "w".into(),
        started_unix_ms: 1_700_000_000_456,
        window_ns: 1_000_000_000,
        operations: 4000,
        rate_per_s: 4000.0,
        event: "cpu-clock at 999 Hz".into(),
        cpu: vec![PartCpu { part: "system".into(), cpu_ns: 10_000, idle_poll_ns: 7 }],
        stacks: vec![stack("system", "main;work", 3), stack("client", "main;work", 1)],
        void: None,
    }
}

#[test]
fn stacks_round_trip() {
    let folder = RecordFolder::new();
    let mut writer = RecordWriter::create(&folder.path(), &opening()).unwrap();
    writer.put_environment(0, &environment("native", false)).unwrap();
    writer.put_environment(1, &environment("box", false)).unwrap();
    assert_eq!(writer.stack_rounds(StackKind::OnCpu).unwrap(), 0);
    let mut expected = Vec::new();
    for (round, name) in [(0, "box"), (0, "native"), (1, "native")] {
        let mut slice = stack_slice(round, name);
        slice.id = writer.put_stacks(&slice).unwrap();
        expected.push(slice);
    }
    assert_eq!(writer.stack_rounds(StackKind::OnCpu).unwrap(), 1);
    assert_eq!(writer.stack_rounds(StackKind::OffCpu).unwrap(), 2);
    writer.finish("rounds done", 1).unwrap();
    assert_eq!(read_stacks(&folder.path()).unwrap(), expected);
    // Equal stacks are stored once.
    let connection = Connection::open(folder.path()).unwrap();
    let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT COUNT(*) FROM stacks"), 2);
    assert_eq!(count("SELECT COUNT(*) FROM stack_samples"), 6);
}

#[test]
fn records_without_server_histograms_get_them() {
    let folder = RecordFolder::new();
    let mut writer = RecordWriter::create(&folder.path(), &opening()).unwrap();
    writer.put_environment(0, &environment("native", false)).unwrap();
    writer.finish("rounds done", 1).unwrap();
    let connection = Connection::open(folder.path()).unwrap();
    connection.execute("DROP TABLE server_histograms", []).unwrap();
    drop(connection);
    Record::read(&folder.path()).unwrap();
    let mut writer = RecordWriter::resume(&folder.path()).unwrap();
    let counted = Slice { server: vec![1, 2, 3], ..slice(0, 0, "native") };
    writer.put_slice(&counted, &[]).unwrap();
    writer.finish("rounds done", 2).unwrap();
    assert_eq!(Record::read(&folder.path()).unwrap().slices[0].server, [1, 2, 3]);
}

#[test]
fn upgrades_records_without_stacks() {
    let folder = RecordFolder::new();
    RecordWriter::create(&folder.path(), &opening()).unwrap().finish("rounds done", 1).unwrap();
    make_old(&folder.path(), 2);
    assert_eq!(read_stacks(&folder.path()).unwrap(), vec![]);
    Record::read(&folder.path()).unwrap();
    let mut writer = RecordWriter::resume(&folder.path()).unwrap();
    writer.put_environment(0, &environment("native", false)).unwrap();
    writer.put_stacks(&stack_slice(0, "native")).unwrap();
    writer.finish("rounds done", 2).unwrap();
    assert_eq!(read_stacks(&folder.path()).unwrap().len(), 1);
}

/// Drops the columns of slices that version 9 added.
fn drop_starts(connection: &Connection) {
    for column in ["start", "account_ns"] {
        connection.execute(&format!("ALTER TABLE slices DROP COLUMN {column}"), []).unwrap();
    }
}

/// Turns a record into one of version 4, with two phases of slices and one kind of stacks.
fn make_untraced(path: &std::path::Path) {
    let connection = Connection::open(path).unwrap();
    connection.execute("ALTER TABLE stack_slices DROP COLUMN kind", []).unwrap();
    for column in ["sandbox", "rootfs"] {
        connection.execute(&format!("ALTER TABLE environments DROP COLUMN {column}"), []).unwrap();
    }
    connection.execute("ALTER TABLE record DROP COLUMN cpu_plan", []).unwrap();
    drop_starts(&connection);
    connection.pragma_update(None, "writable_schema", true).unwrap();
    let sql = "UPDATE sqlite_schema SET sql = replace(sql, ', ''traced'', ''slo''', '')";
    connection.execute(sql, []).unwrap();
    connection.pragma_update(None, "user_version", 4).unwrap();
}

#[test]
fn upgrades_records_without_tracing() {
    let folder = RecordFolder::new();
    let mut writer = RecordWriter::create(&folder.path(), &opening()).unwrap();
    writer.put_environment(0, &environment("native", false)).unwrap();
    let mut old = stack_slice(0, "native");
    old.id = writer.put_stacks(&old).unwrap();
    writer.finish("rounds done", 1).unwrap();
    make_untraced(&folder.path());
    assert_eq!(read_stacks(&folder.path()).unwrap(), [old.clone()]);
    let mut writer = RecordWriter::resume(&folder.path()).unwrap();
    let traced = Slice { phase: Phase::Traced, ..slice(7, 0, "native") };
    writer.put_slice(&traced, &[]).unwrap();
    let mut new = stack_slice(1, "native");
    new.id = writer.put_stacks(&new).unwrap();
    assert_eq!(writer.traced_rounds().unwrap(), 8);
    writer.finish("rounds done", 2).unwrap();
    assert_eq!(Record::read(&folder.path()).unwrap().slices[0].phase, Phase::Traced);
    assert_eq!(read_stacks(&folder.path()).unwrap(), [old, new]);
    let connection = Connection::open(folder.path()).unwrap();
    let check: String =
        connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
}

/// Fails for a layer that a record does not store.
#[test]
fn layers_round_trip() {
    let folder = RecordFolder::new();
    let mut writer = RecordWriter::create(&folder.path(), &opening()).unwrap();
    let plain = environment("native", false);
    let mut written = vec![plain.clone()];
    // These are stored with the study.
    let elsewhere = [
        Layer::System,
        Layer::Instances,
        Layer::Neighbours,
        Layer::Capabilities,
        Layer::User,
        Layer::Apparmor,
        Layer::Pages,
        Layer::Node,
        Layer::Sidecar,
    ];
    for layer in Layer::ALL.into_iter().filter(|layer| !elsewhere.contains(layer)) {
        let mut spec = crate::fake::changed(layer, &plain.spec);
        spec.name = layer.to_string();
        written.push(EnvironmentRecord { spec, ..plain.clone() });
    }
    for (position, one) in written.iter().enumerate() {
        writer.put_environment(u32::try_from(position).unwrap(), one).unwrap();
    }
    drop(writer);
    assert_eq!(Record::read(&folder.path()).unwrap().environments, written);
}

#[test]
fn names_unknown_layer_value() {
    let folder = RecordFolder::new();
    drop(folder.begun());
    let connection = Connection::open(folder.path()).unwrap();
    connection.execute("UPDATE environments SET network = 'tunnel'", []).unwrap();
    drop(connection);
    let error = Record::read(&folder.path()).unwrap_err();
    let chain = std::iter::successors(Some(&error as &dyn std::error::Error), |one| one.source());
    let text: Vec<String> = chain.map(ToString::to_string).collect();
    assert!(text.join(": ").contains("network has no value \"tunnel\""), "{text:?}");
}

#[test]
fn loaders_of_a_slice_read_back() {
    let folder = RecordFolder::new();
    let mut writer = RecordWriter::create(&folder.path(), &opening()).unwrap();
    writer.put_environment(0, &environment("native", false)).unwrap();
    let loader = |host: &str| Loader {
        host: host.into(),
        cpus: "2-15".parse().unwrap(),
        kernel: "6.1".into(),
        architecture: "x86_64".into(),
    };
    writer.put_loaders(&[loader("ssh:old")]).unwrap();
    let loaders = vec![loader("ssh:load1"), loader("local")];
    writer.put_loaders(&loaders).unwrap();
    let part = |loader| LoaderSlice {
        loader,
        window_ns: 400_000_100,
        operations: 2000,
        cpu_ns: 7,
        busiest_thread_ns: 5,
        waited_ns: None,
        begin_offset_ns: -12,
        end_offset_ns: 34,
        clock_error_ns: 56,
    };
    let one = Slice { loaders: vec![part(0), part(1)], ..slice(0, 0, "native") };
    writer.put_slice(&one, &[]).unwrap();
    // As after a resume.
    writer.put_loaders(&loaders).unwrap();
    writer.finish("rounds done", 1).unwrap();
    let record = Record::read(&folder.path()).unwrap();
    assert_eq!(record.loaders, loaders);
    assert_eq!(record.slices[0].loaders, one.loaders);
    // Records from before these tables can be read and continued.
    let connection = Connection::open(folder.path()).unwrap();
    connection.execute_batch("DROP TABLE slice_loaders; DROP TABLE loaders").unwrap();
    drop(connection);
    let record = Record::read(&folder.path()).unwrap();
    assert!(record.loaders.is_empty() && record.slices[0].loaders.is_empty());
    let mut writer = RecordWriter::resume(&folder.path()).unwrap();
    writer.put_loaders(&loaders).unwrap();
    writer.finish("rounds done", 2).unwrap();
    assert_eq!(Record::read(&folder.path()).unwrap().loaders, loaders);
}
