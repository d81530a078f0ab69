use std::sync::Mutex;

use tare_lab::layer::{NeighbourKind, OtherSystem, Placement};
use tare_testkit::EnvironmentBuilder;

use super::*;
use crate::layer::neighbour as load;
use crate::layer::neighbour::check;

type Log = Arc<Mutex<Vec<String>>>;

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct FakeError(String);

/// What fails in the next calls.
type Failing = Arc<Mutex<Vec<&'static str>>>;

struct Recorder {
    who: &'static str,
    spec: EnvironmentSpec,
    log: Log,
    failing: Failing,
}

impl Recorder {
    fn act(&self, what: &str) -> Result<(), PartError> {
        let line = format!("{what} {}", self.who);
        self.log.lock().unwrap().push(line.clone());
        match self.failing.lock().unwrap().contains(&line.as_str()) {
            true => Err(FakeError(line).into()),
            false => Ok(()),
        }
    }
}

impl Environment for Recorder {
    fn spec(&self) -> &EnvironmentSpec {
        &self.spec
    }

    fn start(&mut self, _launch: &Launch) -> Result<Endpoint, PartError> {
        self.act("start")?;
        Ok(Endpoint { address: ([127, 0, 0, 1], 1).into(), data: None, inside: None })
    }

    fn read_back(&mut self) -> Result<Vec<LayerState>, PartError> {
        Ok(Vec::new())
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.act("freeze")
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.act("thaw")
    }

    fn usage(&mut self) -> Result<Usage, PartError> {
        Ok(Usage { system_cpu_ns: 5, ..Usage::default() })
    }

    fn config(&self) -> Option<String> {
        None
    }

    fn log_tail(&self) -> String {
        String::new()
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.act("stop")
    }
}

impl Beside for Recorder {
    fn start(&mut self) -> Result<(), PartError> {
        self.act("start")
    }

    fn freeze(&mut self) -> Result<(), PartError> {
        self.act("freeze")
    }

    fn thaw(&mut self) -> Result<(), PartError> {
        self.act("thaw")
    }

    fn cpu_ns(&self) -> Result<u64, PartError> {
        Ok(7)
    }

    fn read_back(&mut self) -> LayerState {
        state(&neighbour(NeighbourKind::Cpu), "2 processes".into(), true)
    }

    fn stop(&mut self) -> Result<(), PartError> {
        self.act("stop")
    }
}

fn neighbour(kind: NeighbourKind) -> Neighbour {
    Neighbour {
        name: "burner".into(),
        kind,
        command: Vec::new(),
        placement: Placement::SameCpus,
        workers: Some(2),
        load_percent: Some(50),
        system: None,
        size_bytes: None,
        rate_bytes: None,
    }
}

fn with_two() -> (EnvironmentWithNeighbours, Log, Failing) {
    let (log, failing) = (Log::default(), Failing::default());
    let recorder = |who| Recorder {
        who,
        spec: EnvironmentBuilder::new("process").build(),
        log: Arc::clone(&log),
        failing: Arc::clone(&failing),
    };
    let neighbours: Vec<Box<dyn Beside>> = vec![Box::new(recorder("a")), Box::new(recorder("b"))];
    let environment = EnvironmentWithNeighbours::new(Box::new(recorder("system")), neighbours);
    (environment, log, failing)
}

fn taken(log: &Log) -> String {
    std::mem::take(&mut *log.lock().unwrap()).join(", ")
}

#[test]
fn neighbours_run_only_while_their_environment_runs() {
    let (mut environment, log, _) = with_two();
    environment.start(&Launch::default()).unwrap();
    assert_eq!(taken(&log), "stop a, stop b, start system, start a, start b");
    environment.freeze().unwrap();
    assert_eq!(taken(&log), "freeze system, freeze a, freeze b");
    environment.thaw().unwrap();
    assert_eq!(taken(&log), "thaw a, thaw b, thaw system");
    let usage = environment.usage().unwrap();
    assert_eq!((usage.system_cpu_ns, usage.neighbour_cpu_ns), (5, vec![7, 7]));
    let states = environment.read_back().unwrap();
    assert!(states.iter().all(|one| one.layer == "neighbours" && one.in_force), "{states:?}");
    assert_eq!(states.len(), 2);
    environment.stop().unwrap();
    assert_eq!(taken(&log), "stop a, stop b, stop system");
}

#[test]
fn a_failure_leaves_no_neighbour_running() {
    let (mut environment, log, failing) = with_two();
    let fail = |what: &'static str| *failing.lock().unwrap() = vec![what];
    fail("start b");
    assert_eq!(environment.start(&Launch::default()).unwrap_err().to_string(), "start b");
    assert!(taken(&log).ends_with("start b, stop a, stop b, stop system"));
    fail("thaw system");
    assert_eq!(environment.thaw().unwrap_err().to_string(), "thaw system");
    assert!(taken(&log).ends_with("thaw system, freeze a, freeze b"));
    // A failure of one does not keep the others from the same call.
    fail("freeze a");
    assert_eq!(environment.freeze().unwrap_err().to_string(), "freeze a");
    assert_eq!(taken(&log), "freeze system, freeze a, freeze b");
    fail("stop a");
    assert_eq!(environment.stop().unwrap_err().to_string(), "stop a");
    assert_eq!(taken(&log), "stop a, stop b, stop system");
}

#[test]
fn every_kind_has_a_bounded_command() {
    let folder = std::path::Path::new("/f");
    for (kind, name, _) in NeighbourKind::ALL {
        let one = neighbour(kind);
        let words = load::command(&one, 2, folder).join(" ");
        if kind == NeighbourKind::Command {
            assert_eq!(words, "");
            continue;
        }
        if kind == NeighbourKind::System {
            assert_eq!(load::memory_max(&one, 2), Some(1 << 30));
            continue;
        }
        assert!(words.starts_with("stress-ng --"), "{name}: {words}");
        assert!(words.ends_with(" --timeout 0 --temp-path /f --quiet"), "{name}: {words}");
        let bytes = load::disk_bytes(&one, 2);
        assert_eq!(bytes > 0, kind.uses_disk(), "{name}");
        assert!(bytes <= 4 << 30, "{name}");
        let memory = load::memory_max(&one, 2);
        assert!(memory.is_some_and(|most| most < 4 << 30) || bytes > 0, "{name}");
    }
    let words = |one: &Neighbour| load::command(one, 2, folder).join(" ");
    let mut other = neighbour(NeighbourKind::System);
    other.system = Some(Box::new(OtherSystem {
        name: "redis".into(),
        options: Vec::new(),
        driver: "redis-benchmark".into(),
        rate_per_s: None,
        rows: None,
        driver_options: Vec::new(),
    }));
    let plan = r#"{"name":"redis","driver":"redis-benchmark"}"#;
    assert_eq!(words(&other), format!("neighbour-system --folder /f {plan}"));
    assert!(words(&neighbour(NeighbourKind::Cpu)).contains("--cpu 2 --cpu-load 50 "));
    let mut memory = neighbour(NeighbourKind::MemoryBandwidth);
    memory.rate_bytes = Some(100 << 20);
    assert!(
        words(&memory)
            .contains("--memrate-bytes 268435456 --memrate-rd-mbs 100 --memrate-wr-mbs 100")
    );
}

#[test]
fn a_missing_program_is_named_with_its_package() {
    let spec = |one: Neighbour| {
        let mut spec = EnvironmentBuilder::new("process").build();
        spec.neighbours = vec![one];
        spec
    };
    let mut own = neighbour(NeighbourKind::Command);
    own.command = vec!["tare-no-such-program".into()];
    let error = check(&spec(own.clone())).unwrap_err().to_string();
    let expected = "neighbour \"burner\" cannot run here: tare-no-such-program is not installed; install it, \
                    or give its absolute path";
    assert_eq!(error, expected);
    own.command = vec!["/bin/sh".into()];
    check(&spec(own)).unwrap();
}
