//! Scylla by its own account, through the built program. Debian has no Scylla, so that a stand-in
//! (`scylla/stand_in.rs`) is started in its place: it speaks Scylla's metrics, its REST interface
//! and CQL, and is reached by no other way than the installation that these tests make.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;
#[path = "scylla/stand_in.rs"]
mod stand_in;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::Output;
use std::thread;
use std::time::Duration;

use common::{run_in, stderr, stdout};
use serde_json::Value;
use tare_disk::io_properties::{IoProperties, yaml};
use tare_lab::study::SystemSpec;
use tare_testkit::host_state::{self, HostState};
use tare_testkit::{Need, skipped};

const NEEDS: [Need; 3] = [Need::Root, Need::Program("nft"), Need::Program("ip")];

/// The baseline, and the same behind a bridge.
const ENVIRONMENTS: &str = "[[environment]]\nname = \"native\"\nruntime = \"process\"\n\
     [[environment]]\nname = \"bridge\"\nextends = \"native\"\nnetwork = \"bridge\"\n";

/// A directory with an installation, in which studies run. It has the host for itself.
struct Bed {
    folder: tempfile::TempDir,
    _alone: fs::File,
}

impl Bed {
    fn new() -> Self {
        let (folder, alone) = (tempfile::tempdir().unwrap(), host_state::alone());
        stand_in::install(&folder.path().join("scylla"));
        Self { folder, _alone: alone }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Weighs with these lines of the system and of the schedule, and checks that the host is as
    /// before.
    fn weigh(&self, system: &str, schedule: &str, environments: &str) -> Output {
        let directory = self.path().join("scylla");
        let study = format!(
            "name = \"s\"\nbaseline = \"native\"\n\
             [system]\nname = \"scylla\"\ndirectory = {directory:?}\nmemory = \"256M\"\nsmp = 1\n{system}\n\
             [schedule]\nrounds = 3\nrounds_min = 3\nstop_width_percent = 0\nseed = 7\n\
             window = \"500ms\"\nlead_in = \"100ms\"\n{schedule}\n{environments}\
             [[workload]]\nname = \"w\"\nrows = 2000\nwrite_share = 0.5\n"
        );
        fs::write(self.path().join("study.toml"), study).unwrap();
        let state = self.path().join("state");
        let before = HostState::read();
        let words = ["weigh", "study.toml", "--json", "--state", state.to_str().unwrap()];
        let output = run_in(self.path(), words);
        let left = before.difference(&HostState::read());
        assert!(left.is_empty(), "the host is not as it was:\n{}", left.join("\n"));
        output
    }

    /// As [`Bed::weigh`], and returns the report, which must be one.
    fn report(&self, system: &str, schedule: &str, environments: &str) -> Value {
        let output = self.weigh(system, schedule, environments);
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).unwrap()
    }

    fn page(&self) -> String {
        let output = run_in(self.path(), ["report", "s.tare", "--html", "page.html"]);
        assert!(output.status.success(), "{}", stderr(&output));
        fs::read_to_string(self.path().join("page.html")).unwrap()
    }

    fn values(&self, query: &str) -> Vec<f64> {
        let record = rusqlite::Connection::open(self.path().join("s.tare")).unwrap();
        let mut rows = record.prepare(query).unwrap();
        let rows = rows.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

#[test]
fn reactors_give_the_cpu_time_of_an_operation() {
    let test = "reactors_give_the_cpu_time_of_an_operation";
    if skipped(test, &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let report = bed.report("", "", ENVIRONMENTS);
    assert!(!report.to_string().contains("no_polling_account"), "{report}");
    let accounts = bed.values("SELECT count(*) FROM slices WHERE busy_ns IS NULL AND void IS NULL");
    assert_eq!(accounts, [0.0], "every slice has the account");
    // It polls: the process has more CPU time than work.
    let idle = bed.values("SELECT sum(idle_poll_ns) > 0 FROM slices WHERE phase = 'latency'");
    assert_eq!(idle, [1.0]);
    let loops = "SELECT count(*) FROM counters WHERE name = 'event_loop_1_busy_ns' AND value > 0";
    assert!(bed.values(loops)[0] >= 9.0, "each slice has the busy time of its reactor");
    let work = "SELECT count(DISTINCT name) FROM counters WHERE name LIKE 'background_%'";
    assert_eq!(bed.values(work), [2.0], "flushes and compactions");
    let page = bed.page();
    assert!(page.contains("busy time of its event loops (reactors)"), "the page names its account");
    let terminal = stdout(&run_in(bed.path(), ["report", "s.tare"]));
    assert!(terminal.contains("event loops (reactors)"), "{terminal}");
}

#[test]
fn without_metrics_no_cpu_cost_is_claimed() {
    let test = "without_metrics_no_cpu_cost_is_claimed";
    if skipped(test, &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let report = bed.report("settings = \"prometheus_port=0\"", "", ENVIRONMENTS);
    assert!(report.to_string().contains("no_polling_account"), "{report}");
    let verdicts = report["analysis"]["findings"].as_array().unwrap().iter();
    let verdicts = verdicts.filter_map(|finding| finding["server_cpu_cost"]["verdict"].as_str());
    let claims: Vec<&str> = verdicts.filter(|verdict| ["loss", "gain"].contains(verdict)).collect();
    assert!(claims.is_empty(), "{claims:?}");
    let page = bed.page();
    assert!(page.contains("its busy time is unknown"), "the page has it");
    assert!(page.contains("prometheus_port = 0"), "and why");
}

#[test]
fn loaded_data_is_restored() {
    let test = "loaded_data_is_restored";
    if skipped(test, &NEEDS) {
        return;
    }
    let bed = Bed::new();
    let report = bed.report("", "data = \"restored\"", ENVIRONMENTS);
    let text = report.to_string();
    assert!(text.contains("restored in "), "{text}");
    assert!(!text.contains("operation_errors"), "{text}");
    let layers = report["environments"][0]["layers"].as_array().unwrap();
    let data = layers.iter().find(|layer| layer["layer"] == "data").unwrap();
    let found = data["found"].as_str().unwrap();
    assert!(found.contains("1 MiB") || found.contains("1.0 MiB"), "the table is linked: {found}");
}

#[test]
fn what_tare_disk_writes_is_an_io_properties_file() {
    let folder = tempfile::tempdir().unwrap();
    stand_in::install(folder.path());
    let file = folder.path().join("io_properties.yaml");
    let disk = IoProperties {
        read_iops: 95_000.0,
        read_bandwidth: 545e6,
        write_iops: 60_000.0,
        write_bandwidth: 430e6,
    };
    let scylla = tare_system::find("scylla").unwrap();
    for mount_point in ["/var/lib/scylla", "/srv/a b: #"] {
        fs::write(&file, yaml(Path::new(mount_point), &disk)).unwrap();
        let text = |path: &Path| path.to_str().unwrap().to_string();
        let options = vec![
            ("directory".into(), text(folder.path())),
            ("memory".into(), "1G".into()),
            ("developer_mode".into(), "0".into()),
            ("io_properties".into(), text(&file)),
        ];
        let spec = SystemSpec { name: "scylla".into(), options };
        let system = scylla.make(&spec, &tare_system::ClientRoute::default()).unwrap();
        let plan = system.launch(1).arguments.pop().unwrap();
        let plan: Value = serde_json::from_str(&plan).unwrap();
        let made = plan["files"][0][1].as_str().unwrap();
        let expect = "disks:\n  - mountpoint: \"{data}\"\n    read_iops: 95000\n";
        assert!(made.starts_with(expect), "{made}");
        assert!(plan["command"].to_string().contains("--io-properties-file"));
    }
}

/// A stand-in that runs before the study. Dropping it ends it.
struct Live(std::process::Child);

impl Live {
    /// Starts it with its metrics at this port of 127.77.0.1, where clients reach it too.
    fn start(bed: &Bed, metrics_port: u16) -> Self {
        let folder = bed.path().join("live");
        fs::create_dir(&folder).unwrap();
        let configuration = folder.join("scylla.yaml");
        let text = format!(
            "workdir: \"{}\"\nnative_transport_port: 9042\nprometheus_address: {LIVE}\n\
             prometheus_port: {metrics_port}\napi_address: {LIVE}\n",
            folder.display()
        );
        fs::write(&configuration, text).unwrap();
        let words =
            format!("--smp 1 --rpc-address {LIVE} --options-file {}", configuration.display());
        let mut live = Self(stand_in::start(&bed.path().join("scylla"), &words));
        while TcpStream::connect((LIVE, 9042)).is_err() {
            assert!(live.0.try_wait().unwrap().is_none(), "the stand-in has ended");
            thread::sleep(Duration::from_millis(20));
        }
        live
    }

    fn environment(&self) -> String {
        let pid = self.0.id();
        format!(
            "[[environment]]\nname = \"native\"\n\
             attach = {{ pid = {pid}, address = \"{LIVE}:9042\" }}\n"
        )
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

const LIVE: &str = "127.77.0.1";

#[test]
fn attached_scylla_has_the_account_if_its_metrics_answer() {
    let test = "attached_scylla_has_the_account_if_its_metrics_answer";
    if skipped(test, &NEEDS) {
        return;
    }
    for (port, has_account) in [(9180, true), (9181, false)] {
        let bed = Bed::new();
        let live = Live::start(&bed, port);
        let report = bed.report("", "", &live.environment()).to_string();
        assert_eq!(report.contains("no_polling_account"), !has_account, "{report}");
        let accounts = "SELECT count(*) > 0 FROM slices WHERE busy_ns IS NOT NULL";
        assert_eq!(bed.values(accounts), [f64::from(u8::from(has_account))]);
    }
}
