//! A disk that fills up during a study: the error is one clear line, the record can be read, and
//! the study can be resumed once there is space. Mounts a file system, so it needs root.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;

use tare_lab::campaign::{CampaignError, Ending, NoObserver, Outcome, Parts, error_line, run};
use tare_lab::cpus;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::fake::{self, FakeHost};
use tare_lab::record::{Opening, Record, RecordWriter};
use tare_lab::study::{KnownPart, Study, Vocabulary, parse};
use tare_std::cpus::CpuSet;

/// A tmpfs in a temporary folder. Both are removed at the end.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Returns `None` if it cannot be mounted.
    fn mount(kib: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let options = format!("size={kib}k");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "tare-test"]).arg(folder.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then_some(Self { folder })
    }

    fn grow(&self, kib: u32) {
        let options = format!("remount,size={kib}k");
        let mut mount = Command::new("mount");
        assert!(mount.args(["-o", &options]).arg(self.folder.path()).status().unwrap().success());
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("s.tare")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        Command::new("umount").arg(self.folder.path()).status().ok();
    }
}

fn study() -> Study {
    let words = |list: &[&str]| list.iter().map(|word| word.to_string()).collect::<Vec<_>>();
    let vocabulary = Vocabulary {
        runtimes: words(fake::RUNTIMES),
        systems: vec![KnownPart { name: fake::NAME.into(), ..KnownPart::default() }],
        drivers: vec![KnownPart { name: fake::NAME.into(), ..KnownPart::default() }],
        ..Vocabulary::default()
    };
    let text = "name = \"full\"\nbaseline = \"native\"\n\
                [schedule]\nrounds = 300\nbudget = \"10h\"\nstop_width_percent = 0\n\
                [[environment]]\nname = \"native\"\nruntime = \"fake\"\n\
                [[workload]]\nname = \"w\"\n";
    parse(text, "full.toml", &vocabulary).unwrap_or_else(|error| panic!("{error}"))
}

fn go(writer: RecordWriter) -> Result<Outcome, CampaignError> {
    let (world, study) = (FakeHost::new(1), study());
    let (system, mut driver) = (world.system(), world.driver());
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts = Parts::new(&mut make, &system, &mut driver, &world, plan(&study));
    let result = run(parts, &study, writer, &mut NoObserver, &AtomicBool::new(false));
    assert!(world.up().is_empty(), "no environment is left running");
    result
}

fn plan(study: &Study) -> tare_lab::environment::CpuPlan {
    cpus::plan(&cpus::CpuTopology::flat(&[0, 1].into_iter().collect::<CpuSet>()), &study.cpus)
        .unwrap()
}

fn create(path: &Path) -> RecordWriter {
    let study = study();
    let opening = Opening {
        tare_version: "0".into(),
        started_unix_ms: 1,
        seed: 3,
        command: vec![],
        cpu_plan: plan(&study),
        study,
        study_text: String::new(),
        host: vec![],
    };
    RecordWriter::create(path, &opening).unwrap()
}

#[test]
fn full_disk_study_is_readable_and_resumable() {
    let Some(disk) = SmallDisk::mount(600) else {
        return tare_testkit::skip(
            "full_disk_study_is_readable_and_resumable",
            tare_testkit::Reason::no_mount("a small file system"),
        );
    };
    let error = go(create(&disk.path())).unwrap_err();
    let line = error_line(&error);
    assert!(line.starts_with("cannot write the record: the disk is full: cannot write "), "{line}");
    let record = Record::read(&disk.path()).unwrap();
    assert!(!record.slices.is_empty());
    disk.grow(20_000);
    let outcome = go(RecordWriter::resume(&disk.path()).unwrap()).unwrap();
    assert_eq!((outcome.ending, outcome.rounds), (Ending::RoundsDone, 300));
    assert_eq!(Record::read(&disk.path()).unwrap().slices.len(), 300 * 4);
}
