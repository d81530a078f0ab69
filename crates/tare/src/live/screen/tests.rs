//! Golden screens of a study on the fake host. `SNAPSHOTS=overwrite` rewrites them.

use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use tare_lab::campaign::{self, Event, Observer, Parts, Stage};
use tare_lab::cpus;
use tare_lab::doubt::Doubt;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::fake::FakeHost;
use tare_lab::record::{Opening, RecordWriter};
use tare_lab::study::{self, Study};
use tare_std::cpus::CpuSet;

use super::draw::{Theme, draw};
use super::keys::Key;
use super::state::{State, View};
use crate::live::lines::line;
use crate::registry;

const NOW: Duration = Duration::from_secs(75);

/// Returns a string quoted for TOML and JSON.
fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

/// Returns a study on the fake host, with environments and workloads of these names.
fn study(names: &[&str], workloads: &[&str]) -> Study {
    let costs = ["1.0", "1.03", "1.3,throughput=0.8", "0.9", "1.1"];
    let mut text = format!(
        "name = \"fake\"\ntitle = \"What do known costs look like?\"\nbaseline = {}\n\
         driver = \"fake\"\n[system]\nname = \"fake\"\n\
         [schedule]\nrounds = 12\nrounds_min = 12\nbudget = \"5m\"\nseed = 5\n",
        quoted(names[0])
    );
    for (index, name) in names.iter().enumerate() {
        // From the sixth on, each costs 1 % more.
        let cost = costs
            .get(index)
            .map_or_else(|| format!("{}", 1.0 + index as f64 / 100.0), |cost| (*cost).into());
        let network = if index == 4 { "network = \"bridge+proxy\"\n" } else { "" };
        text += &format!(
            "[[environment]]\nname = {}\nruntime = \"fake:cpu={cost}\"\n{network}",
            quoted(name)
        );
    }
    for name in workloads {
        text += &format!("[[workload]]\nname = {}\n", quoted(name));
    }
    study::parse(&text, "test", &registry::vocabulary()).unwrap()
}

const NAMES: [&str; 5] = ["nothing", "3 % CPU", "30 % CPU, 20 % slower", "a gain", "a proxy"];

/// Updates a state until an event.
struct UpdateUntil<'f> {
    state: State,
    until: &'f dyn Fn(&Event<'_>) -> bool,
    over: bool,
}

impl Observer for UpdateUntil<'_> {
    fn event(&mut self, event: &Event<'_>) {
        if !self.over {
            self.state.update(event, NOW);
            self.state.log_line(event);
            self.over = (self.until)(event);
        }
    }
}

impl State {
    fn log_line(&mut self, event: &Event<'_>) {
        if let Some(line) = line(event) {
            self.log(line);
        }
    }
}

/// Runs a study on the fake host, and returns its state after the event `until`.
fn run(study: &Study, until: &dyn Fn(&Event<'_>) -> bool) -> State {
    let here = tempfile::tempdir().unwrap();
    let host = FakeHost::new(5);
    let all = CpuSet::parse_list("0-3").unwrap();
    let plan = cpus::plan(&cpus::CpuTopology::flat(&all), &study.cpus).unwrap();
    let opening = Opening {
        tare_version: "0".into(),
        started_unix_ms: 0,
        seed: 5,
        command: Vec::new(),
        study: study.clone(),
        study_text: String::new(),
        cpu_plan: plan.clone(),
        host: Vec::new(),
    };
    let writer = RecordWriter::create(&here.path().join("fake.tare"), &opening).unwrap();
    let (system, mut driver) = (host.system(), host.driver());
    let mut make = |spec: &EnvironmentSpec| host.environment(spec);
    let parts = Parts {
        probes: vec![Box::new(host.probe())],
        ..Parts::new(&mut make, &system, &mut driver, &host, plan)
    };
    let mut observer = UpdateUntil { state: State::new(study), until, over: false };
    campaign::run(parts, study, writer, &mut observer, &AtomicBool::new(false)).unwrap();
    observer.state
}

/// Returns the state in the middle of the twelfth round, with a few doubts.
fn measuring(study: &Study) -> State {
    let mut state = run(study, &|event| matches!(event, Event::RoundStarted { round: 11, .. }));
    let environment = study.environments.last().unwrap().name.as_str();
    let workload = study.workloads[0].name.as_str();
    let phase = tare_lab::record::Phase::Latency;
    for event in [
        Event::Doubted {
            environment: None,
            doubt: &Doubt::BaselineNotClean { found: "bridge docker0".into() },
        },
        Event::Doubted { environment: Some(environment), doubt: &Doubt::Strangers { share: 0.31 } },
        Event::Doubted {
            environment: Some(environment),
            doubt: &Doubt::ClientSaturated { share: 0.93, busiest_thread_share: None },
        },
        Event::Doubted { environment: Some(environment), doubt: &Doubt::Strangers { share: 0.27 } },
        Event::SliceStarting { environment, workload, phase },
    ] {
        state.update(&event, NOW);
    }
    state
}

fn screen(state: &State, columns: u16, rows: u16, colour: bool) -> Terminal<TestBackend> {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    let now = NOW + Duration::from_secs(3);
    terminal
        .draw(|frame| draw(state, now, Theme { colour }, frame.area(), frame.buffer_mut()))
        .unwrap();
    terminal
}

fn check(name: &str, state: &State, columns: u16, rows: u16) {
    let shown: String = screen(state, columns, rows, false)
        .backend()
        .to_string()
        .lines()
        // The backend appends a note about wide characters to the row.
        .map(|line| line.split("\" Hidden by").next().unwrap_or_default())
        .map(|line| format!("{}\n", line.trim_matches('"').trim_end()))
        .collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/live/screen/golden");
    tare_testkit::golden(&path.join(format!("{name}.txt")), shown);
}

#[test]
fn screens_of_several_sizes() {
    let state = measuring(&study(&NAMES, &["write"]));
    check("measuring-80x24", &state, 80, 24);
    check("measuring-120x40", &state, 120, 40);
    check("measuring-60x16", &state, 60, 16);
    check("measuring-40x8", &state, 40, 8);
}

#[test]
fn screens_before_and_after_the_rounds() {
    let study = study(&NAMES, &["write"]);
    let state = run(
        &study,
        &|event| matches!(event, Event::Populating { environment: "3 % CPU", done, .. } if *done > 0),
    );
    check("starting-80x24", &state, 80, 24);
    let mut state = run(&study, &|event| matches!(event, Event::RoundDone { round: 0, .. }));
    check("first-round-80x24", &state, 80, 24);
    state.update(&Event::Stage(Stage::TearingDown), NOW);
    state.stopping = true;
    check("stopped-80x24", &state, 80, 24);
}

#[test]
fn keys_change_the_view() {
    let mut state = measuring(&study(&NAMES, &["write", "read"]));
    state.press(Key::NextWorkload);
    state.press(Key::Metric);
    check("read-throughput-80x24", &state, 80, 24);
    state.press(Key::Doubts);
    check("doubts-80x24", &state, 80, 24);
    state.press(Key::Help);
    check("help-80x24", &state, 80, 24);
    state.press(Key::Close);
    assert_eq!(state.view, View::Costs);
    state.press(Key::PreviousWorkload);
    state.press(Key::PreviousWorkload);
    assert_eq!(state.shown, 1, "the workloads wrap around");
    for _ in 0..100 {
        state.press(Key::Down);
    }
    assert!(state.scroll < state.environments.len());
}

#[test]
fn many_environments_show_the_highest_costs_first() {
    let names: Vec<String> = (0..30).map(|index| format!("environment {index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut state = measuring(&study(&names, &["write"]));
    check("many-80x24", &state, 80, 24);
    for _ in 0..10 {
        state.press(Key::Down);
    }
    check("many-scrolled-80x24", &state, 80, 24);
}

#[test]
fn hostile_names_stay_in_their_columns() {
    let long = "a name that is far too long for any column of this screen ".repeat(4);
    let names = [
        "\u{1b}[31mred\u{7}",
        "日本語の環境の名前はとても長い",
        "\u{202e}backwards",
        &long,
        "👩‍👩‍👧‍👦 family",
    ];
    // A study file cannot have these names; the record of a resumed study can.
    let mut study = study(&NAMES, &["write"]);
    study.baseline = names[0].into();
    study.title = "\u{1b}]0;title\u{7}".into();
    study.workloads[0].name = "a\u{9b}2Jb".into();
    for (spec, name) in study.environments.iter_mut().zip(names) {
        spec.name = name.into();
    }
    let state = measuring(&study);
    check("hostile-80x24", &state, 80, 24);
    let text = screen(&state, 80, 24, true).backend().to_string();
    let is_control =
        |c: char| (c.is_control() && c != '\n') || ('\u{202a}'..='\u{202e}').contains(&c);
    assert!(!text.contains(is_control), "{text:?}");
}

#[test]
fn every_size_can_be_drawn() {
    let mut state = measuring(&study(&NAMES, &["write"]));
    for view in [View::Costs, View::Doubts, View::Help] {
        state.view = view;
        for columns in (0..30).chain((30..140).step_by(11)) {
            for rows in (0..26).chain((26..60).step_by(5)) {
                screen(&state, columns, rows, true);
            }
        }
    }
}

#[test]
fn theme_without_colour_uses_none() {
    let state = measuring(&study(&NAMES, &["write"]));
    let colours = |colour: bool| {
        let terminal = screen(&state, 80, 24, colour);
        terminal.backend().buffer().content().iter().any(|cell| cell.fg != Color::Reset)
    };
    assert!(colours(true));
    assert!(!colours(false));
}
