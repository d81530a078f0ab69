//! The API server is lost in the middle of a study: killed, with its connections, or silent. What
//! was measured is in the record, lines say what happened and what is left, the study goes on when
//! the API server is back, and nothing stays.

use std::process::Child;

use tare_testkit::kubernetes::{LostServer, second_node};

use super::*;

/// A study that is under way on this host, or on the node.
struct Running {
    child: Child,
    errors: std::path::PathBuf,
}

impl Running {
    /// Starts a command with its record here, and waits until it has measured a round. Not every
    /// round has a line.
    fn start(case: &Case, mut command: Command) -> Self {
        let errors = case.here.path().join("said");
        command.stdout(Stdio::null()).stderr(fs::File::create(&errors).unwrap());
        let mut running = Self { child: command.spawn().unwrap(), errors };
        let began = Instant::now();
        while running.said().lines().filter(|line| line.starts_with("round")).count() < 2 {
            let is_alive = running.child.try_wait().unwrap().is_none();
            assert!(began.elapsed() < PATIENCE && is_alive, "{}", running.said());
            std::thread::sleep(Duration::from_millis(100));
        }
        running
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.errors).unwrap()
    }

    /// Waits for its end, which is no success. Returns what it said.
    fn end(mut self) -> String {
        let ended = self.child.wait().unwrap();
        assert!(!ended.success(), "{}", self.said());
        self.said()
    }
}

impl Case {
    fn weigh_here(&self) -> Command {
        let mut command = tare();
        command.arg("--state").arg(self.here.path().join("state"));
        command.args(["weigh", "small.toml", "-o", "small.tare"]);
        command.current_dir(self.here.path()).stdin(Stdio::null());
        command
    }

    /// Returns the good slices of the record here.
    fn measured(&self) -> Vec<Value> {
        let record = self.record("small.tare");
        let slices = record["slices"].as_array().unwrap().iter();
        slices.filter(|slice| slice["void"].is_null()).cloned().collect()
    }

    /// Goes on with the record, and checks that what was measured before is in it, but for a round
    /// that was not complete, which is measured again. `how` are more arguments. Returns what the
    /// command said.
    fn resume(&self, how: &[&str]) -> String {
        let mut before = self.measured();
        let last = before.iter().filter_map(|slice| slice["block"].as_u64()).max().unwrap();
        before.retain(|slice| slice["block"].as_u64() < Some(last));
        let rounds = (last + 3).to_string();
        let words = ["weigh", "--resume", "small.tare", "--rounds", &rounds];
        let resumed = self.run_here(&[&words, how].concat());
        let said = stderr(&resumed);
        assert!(resumed.status.success(), "{said}");
        let after = self.measured();
        assert!(!before.is_empty() && after[..before.len()] == before, "{said}");
        let rounds = after.iter().filter_map(|slice| slice["block"].as_u64()).max();
        assert!(rounds > Some(last), "{said}");
        fs::remove_file(self.here.path().join("small.tare")).unwrap();
        said
    }

    /// Checks that nothing is left on the node and in the API, after a command that said this.
    fn assert_nothing_left(&self, said: &str) {
        self.assert_clean();
        assert_eq!(kills::left_by_pods(), Vec::<String>::new());
        let journals = kills::runs(&self.here.path().join("state/runs"));
        assert!(journals.is_empty(), "{journals:?} {said}");
    }
}

/// Returns the lines about an API server that does not answer.
fn lines_about_server(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.contains("the API server ")).collect()
}

/// Pods need no API server while they are measured. What cannot be removed at the end is one line,
/// also if every call to the API server waits for its limit.
#[test]
fn pods_are_measured_without_it() {
    let test = "server::pods_are_measured_without_it";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    case.study_with_pod(40);
    for lose in [LostServer::kill as fn() -> LostServer, LostServer::stop] {
        let running = Running::start(&case, case.weigh_here());
        let lost = lose();
        let said = running.end();
        let lines = lines_about_server(&said);
        let [line] = lines[..] else { panic!("{said}") };
        assert!(line.contains("left behind: the API server "), "{line}");
        assert!(line.contains("entries that wait for it: 2; run tare clean"), "{line}");
        let slices = case.measured();
        let of_pod = slices.iter().filter(|slice| slice["environment"] == "pod");
        let rounds: Vec<u64> = of_pod.filter_map(|slice| slice["block"].as_u64()).collect();
        assert!(rounds.contains(&39), "{rounds:?} {said}");
        let cleaned = case.run_here(&["clean"]);
        let text = stdout(&cleaned) + &stderr(&cleaned);
        assert!(!cleaned.status.success() && lines_about_server(&text).len() == 1, "{text}");
        drop(lost);
        // It removes what the run before has left.
        let said = case.resume(&[]);
        case.assert_nothing_left(&said);
    }
}

/// The command on the node ends by itself, and waits for the one who brings its files.
#[test]
fn study_on_the_node_waits_with_its_files() {
    let test = "server::study_on_the_node_waits_with_its_files";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    case.study_with_pod(100_000);
    let study = format!("lost-{}.toml", std::process::id());
    fs::rename(case.here.path().join("small.toml"), case.here.path().join(&study)).unwrap();
    let node = format!("kubernetes:{}", case.node);
    let command = case.command(&["weigh", &study, "-o", "small.tare"]);
    let running = Running::start(&case, command);
    let lost = LostServer::kill();
    let said = running.end();
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("tare: ")).collect();
    let expect = format!(
        "the connection to {node} is lost; the run there ends cleanly, and tare attach {node} brings \
         its files"
    );
    assert_eq!(lines.iter().filter(|line| line.contains(&expect)).count(), 1, "{said}");
    assert_eq!(lines_about_server(&said).len(), 1, "{said}");
    let began = Instant::now();
    while !kills::harness(&study).is_empty() {
        assert!(began.elapsed() < PATIENCE, "the run on the node ends");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(lost);
    let attached = case.run_here(&["attach", &node]);
    let said = stdout(&attached) + &stderr(&attached);
    assert!(case.here.path().join("small.tare").exists(), "{said}");
    kills::clean(&case, true);
    case.assert_pod_measured("small.tare", &said);
    let said = case.resume(&["--on", &node]);
    case.assert_nothing_left(&said);
    case.run(&["clean", "--programs"]);
}

/// A loader in a pod gets its orders through the API server.
#[test]
fn study_with_a_loader_ends_and_resumes() {
    let test = "server::study_with_a_loader_ends_and_resumes";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("curl")]) {
        return;
    }
    loaders::write_study(&case, 100_000, &case.node, &loaders::ENVIRONMENTS[..3]);
    let running = Running::start(&case, case.weigh_here());
    let lost = LostServer::kill();
    let said = running.end();
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("tare: ")).collect();
    let is_end = |line: &&&str| line.contains("the load cannot go on");
    let ends: Vec<&&str> = lines.iter().filter(is_end).collect();
    let [line] = ends[..] else { panic!("{said}") };
    assert!(line.contains(&format!("pod:{}", case.node)) && line.contains("--resume"), "{line}");
    assert!(line.contains("the API server ") && line.contains("does not answer"), "{line}");
    drop(lost);
    let said = case.resume(&[]);
    case.assert_nothing_left(&said);
}

/// The agents of a system's hosts get their orders through the API server, and end without it.
#[test]
fn study_on_several_nodes_ends_and_resumes() {
    let test = "server::study_on_several_nodes_ends_and_resumes";
    let Some(case) = Case::start(test) else { return };
    let Some(second) = second_node(test) else { return };
    let child = hosts::start_and_measure(&case, &second);
    let running = Running { child, errors: case.here.path().join("said") };
    let lost = LostServer::kill();
    let said = running.end();
    let says_how_to_go_on = |line: &str| line.contains("is lost") && line.contains("--resume");
    assert!(said.lines().any(says_how_to_go_on), "{said}");
    drop(lost);
    let cleaned = case.run_here(&["clean"]);
    assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
    let began = Instant::now();
    while !hosts::left_on_nodes().is_empty() {
        assert!(began.elapsed() < PATIENCE, "{}", hosts::left_on_nodes());
        for node in [&case.node, &second] {
            let cleaned = case.run_here(&["clean", "--on", &format!("kubernetes:{node}")]);
            assert!(cleaned.status.success(), "{}{}", stdout(&cleaned), stderr(&cleaned));
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    let said = case.resume(&[]);
    case.assert_nothing_left(&said);
    assert_eq!(hosts::left_on_nodes(), "");
    case.run(&["clean", "--programs"]);
}
