//! Systems of a user to attach to, with rows of the user in them.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::socket_peercred;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tare_cql::request::encode_startup;
use tare_db::report::{self, Report};
use tare_testkit::cql::Connection;
use tare_testkit::database::{Server, until};
use tare_testkit::host_state;

use crate::common::{run_in, stderr, stdout, tare};

/// Long enough for a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// The directory of a test, which has the host for itself.
pub(crate) struct Bed {
    folder: tempfile::TempDir,
    _alone: fs::File,
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self { _alone: host_state::alone(), folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Starts a Redis with keys of the user.
    pub(crate) fn redis(&self) -> Redis {
        let port = free_port();
        let mut redis = Redis { child: Redis::start(port), port, size: String::new() };
        for command in ["SET mine:1 hello", "SET tare:000000000001 mine", "RPUSH list a b c"] {
            answer(port, command);
        }
        redis.size = answer(port, "DBSIZE");
        redis
    }

    /// Starts a Redis as the child of a process that outlives it.
    pub(crate) fn redis_with_parent(&self) -> Redis {
        let port = free_port();
        let script =
            format!("redis-server --bind 127.0.0.1 --save '' --port {port} & exec sleep 600");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).current_dir("/").stdout(Stdio::null());
        let child = command.stderr(Stdio::null()).spawn().unwrap();
        wait_for(port);
        Redis { child, port, size: answer(port, "DBSIZE") }
    }

    /// Starts the database as a server of the user.
    pub(crate) fn database(&self) -> Database {
        let data = self.path().join("data");
        let mut command = tare();
        command.args(["db", "--port", "0", "--smp", "1", "--overprovisioned", "yes", "--data"]);
        command.arg(&data);
        Database(Server::start(command, &data.join(report::FILE), report::read).unwrap())
    }

    /// Starts the database in a container of docker, at a published port.
    pub(crate) fn container(&self) -> Result<Container, String> {
        let name = format!("attach-test-{}", std::process::id());
        self.import("docker", &name)?;
        let container = Container { name, port: free_port() };
        let published = format!("127.0.0.1:{}:9042", container.port);
        let mut words = vec!["run", "-d", "--name", &container.name, "-p", &published];
        words.extend([&container.name, "/tare", "db", "--data", "/data", "--smp", "1"]);
        words.extend(["--listen", "0.0.0.0", "--insecure", "--overprovisioned", "yes"]);
        docker(&words)?;
        wait_for_database(container.port);
        Ok(container)
    }

    /// Imports an image of an engine that has Tare's program alone.
    fn import(&self, engine: &str, name: &str) -> Result<(), String> {
        let root = self.path().join("root");
        fs::create_dir_all(&root).unwrap();
        fs::copy(env!("CARGO_BIN_EXE_tare"), root.join("tare")).unwrap();
        let tar = self.path().join("root.tar");
        let packed =
            Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg(".").status();
        assert!(packed.unwrap().success());
        run_engine(engine, &["import", tar.to_str().unwrap(), name]).map(drop)
    }

    /// Lets a compose program of an engine start the service `db`, the database at a published
    /// port, from the file `shop/docker-compose.yml`.
    pub(crate) fn compose(&self, engine: &'static str) -> Result<Compose, String> {
        // A project of this name, and with it the container, is no other test's.
        let project = format!("attachtest{}", std::process::id());
        let image = format!("localhost/{project}:test");
        self.import(engine, &image)?;
        let port = free_port();
        fs::create_dir_all(self.path().join("shop")).unwrap();
        // The limit on files is the one that every host allows.
        let file = format!(
            "version: \"3\"\nservices:\n  db:\n    image: {image}\n    \
             command: [/tare, db, --data, /data, --smp, '1', --listen, 0.0.0.0, --insecure, \
             --overprovisioned, 'yes']\n    ports: ['127.0.0.1:{port}:9042']\n    \
             ulimits: {{ nofile: 1024, nproc: 1024 }}\n"
        );
        fs::write(self.path().join("shop/docker-compose.yml"), file).unwrap();
        let compose = Compose { engine, project, image, port, folder: self.path().into() };
        compose.run(&["up", "-d"])?;
        wait_for_database(port);
        Ok(compose)
    }

    /// Starts a PostgreSQL, or returns `None` where it is not installed.
    pub(crate) fn postgres(&self) -> Option<Postgres> {
        let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
        let programs = versions.map(|version| version.path().join("bin")).max()?;
        let data = self.path().join("cluster");
        fs::create_dir(&data).unwrap();
        // Its programs refuse root, and have to reach the directory.
        let open = Command::new("chmod").arg("o+x").arg(self.path()).status();
        let given = Command::new("chown").arg("postgres").arg(&data).status();
        assert!(open.unwrap().success() && given.unwrap().success());
        let as_user = |program: &str| {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "postgres", "--clear-groups"]).arg(programs.join(program));
            command.arg("-D").arg(&data).current_dir("/");
            command.stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let made = as_user("initdb").args(["-A", "trust", "-U", "postgres", "--no-sync"]).status();
        assert!(made.unwrap().success());
        let port = free_port();
        let settings = ["listen_addresses=127.0.0.1", "unix_socket_directories="];
        let mut server = as_user("postgres");
        server.args(["-p", &port.to_string()]);
        settings.iter().for_each(|setting| {
            server.args(["-c", setting]);
        });
        let postgres = Postgres { child: server.spawn().unwrap(), port };
        until("PostgreSQL answers", || postgres.ask("SELECT 1").status.success().then_some(()));
        Some(postgres)
    }

    /// Starts a long study in the background.
    pub(crate) fn start_long(&self, text: &str) -> Child {
        let text = text.replace("\nrounds = 3\n", "\nrounds = 5000\n");
        fs::write(self.path().join("s.toml"), text).unwrap();
        let state = self.path().join("state");
        let mut command = tare();
        command.args(["weigh", "s.toml", "-o", "long.tare", "--state"]).arg(state);
        command.current_dir(self.path()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

/// Waits until the first round of a study in the background, and returns what it prints.
pub(crate) fn wait_for_round(study: &mut Child) -> BufReader<ChildStderr> {
    wait_for_line(study, "round")
}

/// Waits until a study in the background prints a line with this start, and returns what follows.
pub(crate) fn wait_for_line(study: &mut Child, start: &str) -> BufReader<ChildStderr> {
    let mut said = BufReader::new(study.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with(start) {
        line.clear();
        assert_ne!(said.read_line(&mut line).unwrap(), 0, "the study ended before {start:?}");
    }
    said
}

/// A Redis of a user. It ends with the test.
pub(crate) struct Redis {
    child: Child,
    pub(crate) port: u16,
    /// Its answer to DBSIZE before any load.
    pub(crate) size: String,
}

impl Redis {
    fn start(port: u16) -> Child {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()]);
        let child = command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        wait_for(port);
        child.unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and starts an empty one at the same port.
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::start(self.port);
    }

    pub(crate) fn assert_runs(&self) {
        assert_eq!(answer(self.port, "PING"), "+PONG");
    }

    /// Checks that the same process has the keys of the user, and no others.
    pub(crate) fn assert_as_before(&self) {
        assert_eq!(answer(self.port, "DBSIZE"), self.size);
        assert_eq!(answer(self.port, "STRLEN mine:1"), ":5");
        assert_eq!(answer(self.port, "STRLEN tare:000000000001"), ":4");
        assert_eq!(answer(self.port, "LLEN list"), ":3");
        let state = fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap();
        assert!(state.contains("State:\tS") || state.contains("State:\tR"), "{state}");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A database of a user. It ends with the test.
pub(crate) struct Database(Server<Report>);

impl Database {
    pub(crate) fn pid(&self) -> u32 {
        self.0.child.id()
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.report.port
    }

    /// Returns the names of its keyspaces.
    pub(crate) fn keyspaces(&self) -> Vec<Vec<u8>> {
        keyspaces(self.port())
    }
}

/// Returns the names of the keyspaces of a database.
pub(crate) fn keyspaces(port: u16) -> Vec<Vec<u8>> {
    let mut client = Connection::open((Ipv4Addr::LOCALHOST, port)).unwrap();
    assert!(answers(&client));
    client.keyspaces()
}

/// Sends STARTUP, and returns whether something answers.
fn answers(client: &Connection) -> bool {
    let mut out = Vec::new();
    encode_startup(&mut out, 0, &[("CQL_VERSION", tare_cql::CQL_VERSION)]);
    let mut stream = client.stream.try_clone().unwrap();
    if stream.write_all(&out).is_err() {
        return false;
    }
    let mut copy = [0; 9];
    std::io::Read::read_exact(&mut stream, &mut copy).is_ok()
}

/// A container of a user. It ends with the test.
pub(crate) struct Container {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Container {
    pub(crate) fn runs_since_its_start(&self) -> bool {
        let format = "{{.State.Running}} {{.State.Paused}} {{.RestartCount}}";
        docker(&["inspect", "-f", format, &self.name]).unwrap().trim() == "true false 0"
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _ = docker(&["rm", "-f", &self.name]);
        // The kernel takes a bridge without ports down up to a second later (linkwatch).
        thread::sleep(Duration::from_secs(2));
        let _ = docker(&["rmi", "-f", &self.name]);
    }
}

/// A project of docker-compose or podman-compose. It ends with the test.
pub(crate) struct Compose {
    engine: &'static str,
    project: String,
    image: String,
    pub(crate) port: u16,
    folder: PathBuf,
}

impl Compose {
    /// The compose file, from the directory of the test.
    pub(crate) const FILE: &str = "shop/docker-compose.yml";

    /// Runs a command of the compose program, from the directory above that of the project.
    pub(crate) fn run(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(format!("{}-compose", self.engine));
        command.args(["-f", Self::FILE, "-p", &self.project]).args(words);
        let output = command.current_dir(&self.folder).stdin(Stdio::null()).output();
        let output = output.map_err(|error| error.to_string())?;
        match output.status.success() {
            true => Ok(stdout(&output)),
            false => Err(stderr(&output)),
        }
    }

    /// Returns of each container of the project whether it runs, when it was started, and how often
    /// it was restarted.
    pub(crate) fn state(&self) -> String {
        let label = format!("label=com.docker.compose.project={}", self.project);
        let all = run_engine(self.engine, &["ps", "-aq", "--filter", &label]).unwrap();
        let format = "{{.State.Running}} {{.State.StartedAt}} {{.RestartCount}}";
        let words: Vec<&str> = ["inspect", "-f", format].into_iter().chain(all.lines()).collect();
        run_engine(self.engine, &words).unwrap()
    }
}

impl Drop for Compose {
    fn drop(&mut self) {
        let _ = self.run(&["down", "-t", "1"]);
        // podman-compose leaves it.
        let _ = run_engine(self.engine, &["network", "rm", &format!("{}_default", self.project)]);
        let _ = run_engine(self.engine, &["rmi", "-f", &self.image]);
    }
}

/// Moves this thread, and what it starts, into the network namespace of an engine, in which it
/// publishes ports. The engine of a test may have one of its own.
pub(crate) fn enter_network_of_engine(engine: &str) -> Result<(), String> {
    let (variable, usual) = match engine {
        "podman" => ("CONTAINER_HOST", "/run/podman/podman.sock"),
        _ => ("DOCKER_HOST", "/var/run/docker.sock"),
    };
    let given = std::env::var(variable).unwrap_or_default();
    let socket = given.strip_prefix("unix://").unwrap_or(usual);
    let engine = UnixStream::connect(socket).map_err(|error| format!("{socket}: {error}"))?;
    let pid = socket_peercred(&engine).unwrap().pid.as_raw_nonzero();
    let network = fs::File::open(format!("/proc/{pid}/ns/net")).unwrap();
    move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
    Ok(())
}

fn docker(words: &[&str]) -> Result<String, String> {
    run_engine("docker", words)
}

fn run_engine(engine: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(engine).args(words).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(stdout(&output)),
        false => Err(stderr(&output)),
    }
}

/// A PostgreSQL of a user. It ends with the test.
pub(crate) struct Postgres {
    child: Child,
    pub(crate) port: u16,
}

impl Postgres {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ask(&self, sql: &str) -> Output {
        let port = self.port.to_string();
        let mut psql = Command::new("psql");
        psql.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "-X", "-tA", "-c", sql]);
        psql.output().unwrap()
    }

    /// Runs a statement, and returns what psql prints.
    pub(crate) fn run(&self, sql: &str) -> String {
        let output = self.ask(sql);
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        stdout(&output)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // SIGQUIT ends it at once, with all of its processes.
        let _ = Command::new("kill").args(["-QUIT", &self.pid().to_string()]).status();
        let _ = self.child.wait();
    }
}

/// A cgroup as systemd makes it for a unit, with one process. It ends with the test.
pub(crate) struct UnitCgroup {
    pub(crate) name: String,
    folders: Vec<PathBuf>,
    pid: u32,
}

impl UnitCgroup {
    /// Moves a process into a new cgroup.
    pub(crate) fn with(pid: u32) -> Self {
        let name = format!("attach-test-{pid}.service");
        let root = Path::new("/sys/fs/cgroup");
        let v1 = ["systemd", "cpu", "memory"].map(|controller| root.join(controller));
        let mut roots: Vec<PathBuf> =
            v1.into_iter().filter(|folder| folder.join("cgroup.procs").exists()).collect();
        if roots.is_empty() {
            roots.push(root.to_path_buf());
        }
        let folders = roots.iter().map(|root| root.join("attach-test.slice").join(&name));
        let folders: Vec<PathBuf> = folders.collect();
        for folder in &folders {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("cgroup.procs"), pid.to_string()).unwrap();
        }
        Self { name, folders, pid }
    }

    /// Returns its path below the root of the hierarchy.
    pub(crate) fn path(&self) -> String {
        format!("/attach-test.slice/{}", self.name)
    }
}

impl Drop for UnitCgroup {
    fn drop(&mut self) {
        for folder in &self.folders {
            let slice = folder.parent().unwrap();
            let _ = fs::write(slice.parent().unwrap().join("cgroup.procs"), self.pid.to_string());
            let _ = fs::remove_dir(folder);
            let _ = fs::remove_dir(slice);
        }
    }
}

pub(crate) fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

/// Waits until the database of a container answers.
fn wait_for_database(port: u16) {
    until("the container listens", || {
        Connection::open((Ipv4Addr::LOCALHOST, port)).ok().filter(answers)
    });
}

fn wait_for(port: u16) {
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(began.elapsed() < PATIENCE, "nobody listens on {port}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Asks a Redis something, and returns the first line of its answer.
pub(crate) fn answer(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    stream.write_all(format!("{command}\r\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line.trim_end().into()
}

/// Returns the table of an attached environment.
pub(crate) fn attach(name: &str, target: &str, port: u16) -> String {
    format!(
        "[[environment]]\nname = {name:?}\nattach = {{ {target}, address = \"127.0.0.1:{port}\" }}\n"
    )
}

/// Returns a study of a few short slices with these environments, the first one as its baseline.
pub(crate) fn study(system: &str, environments: &str) -> String {
    let baseline = environments.lines().nth(1).unwrap().replace("name", "baseline");
    let (driver, load) = match system {
        "postgres" => ("pgbench", "pgbench = { clients = 2 }\nlatency_share = 0"),
        _ => ("tare-load", "rows = 500\nlatency_share = 0.3"),
    };
    format!(
        "name = \"s\"\n{baseline}\ndriver = {driver:?}\n[system]\nname = {system:?}\n\
         [schedule]\nwindow = \"100ms\"\nlead_in = \"20ms\"\nrounds = 3\nrounds_min = 3\n\
         {environments}[[workload]]\nname = \"w\"\n{load}\n"
    )
}

/// Weighs a study.
pub(crate) fn weigh(here: &Path, text: &str, words: &[&str]) -> Output {
    fs::write(here.join("s.toml"), text).unwrap();
    let state = here.join("state");
    let mut arguments = vec!["weigh", "s.toml", "--state", state.to_str().unwrap()];
    arguments.extend(words);
    run_in(here, arguments)
}

pub(crate) fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in:\n{text}"))
}
