//! A study that is killed with SIGKILL at any moment leaves a record that can be read and resumed.
//! At most the running round is lost, and the order of the slices remains the same.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use tare_lab::campaign::{Ending, NoObserver, Parts, run};
use tare_lab::cpus;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::fake::{self, FakeHost};
use tare_lab::record::{Opening, Record, RecordError, RecordWriter};
use tare_lab::schedule;
use tare_lab::study::{KnownPart, Study, Vocabulary, parse};
use tare_std::cpus::CpuSet;

const ROUNDS: u32 = 40;
const SEED: u64 = 11;
/// Environment variable with the record's path, set in the process that the test kills.
const CHILD: &str = "TARE_LAB_TEST_CHILD";

fn study() -> Study {
    let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let vocabulary = Vocabulary {
        runtimes: words(fake::RUNTIMES),
        systems: vec![KnownPart { name: fake::NAME.into(), ..KnownPart::default() }],
        drivers: vec![KnownPart { name: fake::NAME.into(), ..KnownPart::default() }],
        ..Vocabulary::default()
    };
    let text = format!(
        "name = \"killed\"\nbaseline = \"native\"\n\
         [schedule]\nwindow = \"20ms\"\nlead_in = \"0s\"\nrounds = {ROUNDS}\n\
         stop_width_percent = 0\n\
         [[environment]]\nname = \"native\"\nruntime = \"fake\"\n\
         [[environment]]\nname = \"box\"\nruntime = \"fake:cpu=1.3\"\n\
         [[workload]]\nname = \"w\"\nwrite_share = 1\nlatency_share = 0\n"
    );
    parse(&text, "killed.toml", &vocabulary).unwrap_or_else(|error| panic!("{error}"))
}

fn go(writer: RecordWriter, real_time: bool) {
    let (world, study) = (FakeHost::new(1), study());
    if real_time {
        world.run_in_real_time();
    }
    let (system, mut driver) = (world.system(), world.driver());
    let plan =
        cpus::plan(&cpus::CpuTopology::flat(&[0, 1].into_iter().collect::<CpuSet>()), &study.cpus)
            .unwrap();
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts = Parts::new(&mut make, &system, &mut driver, &world, plan);
    let outcome = run(parts, &study, writer, &mut NoObserver, &AtomicBool::new(false)).unwrap();
    assert_eq!((outcome.ending, outcome.rounds), (Ending::RoundsDone, ROUNDS));
}

fn create(path: &Path) -> RecordWriter {
    let study = study();
    let opening = Opening {
        tare_version: "0".into(),
        started_unix_ms: 1,
        seed: SEED,
        command: vec![],
        cpu_plan: cpus::plan(
            &cpus::CpuTopology::flat(&[0, 1].into_iter().collect::<CpuSet>()),
            &study.cpus,
        )
        .unwrap(),
        study,
        study_text: String::new(),
        host: vec![],
    };
    RecordWriter::create(path, &opening).unwrap()
}

/// The process that runs the study. Killed when dropped.
struct KilledProcess(Child);

impl KilledProcess {
    fn start(path: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["child_that_is_killed", "--exact"])
            .env(CHILD, path)
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }

    fn kill(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Drop for KilledProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

#[test]
fn child_that_is_killed() {
    if let Some(path) = std::env::var_os(CHILD).map(PathBuf::from) {
        go(create(&path), true);
    }
}

/// Waits until the record of the running study has this many slices.
fn wait_for(path: &Path, slices: usize) -> Record {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        match Record::read(path) {
            Ok(record) if record.slices.len() >= slices => return record,
            // The file or its tables do not exist yet.
            Ok(_) | Err(RecordError::Missing { .. } | RecordError::NoRecord { .. }) => {}
            Err(error) => panic!("a record must be readable while it is written: {error}"),
        }
        assert!(Instant::now() < deadline, "the study does not reach {slices} slices");
        std::thread::sleep(Duration::from_millis(3));
    }
}

#[test]
fn killed_study_loses_at_most_running_round() {
    let folder = tempfile::tempdir().unwrap();
    for (round, slices) in [1, 4, 11, 18, 29].into_iter().enumerate() {
        let path = folder.path().join(format!("{round}.tare"));
        let mut victim = KilledProcess::start(&path);
        let seen = wait_for(&path, slices).slices.len();
        let locked = RecordWriter::resume(&path).unwrap_err();
        assert!(locked.to_string().contains("in use by a running study"), "{locked}");
        victim.kill();
        let killed = Record::read(&path).unwrap();
        assert!(killed.slices.len() >= seen, "no committed slice is lost");
        assert_eq!(killed.header.ended_unix_ms, None);

        let writer = RecordWriter::resume(&path).unwrap();
        let kept = writer.record().slices.len();
        assert_eq!(kept, writer.rounds() as usize * 3);
        assert!(killed.slices.len() - kept <= 3, "at most the running round");
        go(writer, false);

        let record = Record::read(&path).unwrap();
        assert_eq!(record.header.ending.as_deref(), Some("rounds done"));
        let names = ["native", "box", "native again"];
        let cells = schedule::cells(&record.study);
        let expect: Vec<(u32, &str)> = (0..ROUNDS)
            .flat_map(|round| {
                let slices_in_order =
                    schedule::round(record.study.schedule.kind, SEED, round, 3, &cells);
                slices_in_order.into_iter().map(move |turn| (round, names[turn.environment]))
            })
            .collect();
        let found: Vec<(u32, &str)> =
            record.slices.iter().map(|slice| (slice.round, slice.environment.as_str())).collect();
        assert_eq!(found, expect);
        assert!(!folder.path().join(format!("{round}.tare-wal")).exists());
    }
}
