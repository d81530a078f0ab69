//! The stand-in for Scylla: `tare db` behind Scylla's flags, files and ports. The installation's
//! `libexec/scylla` is a script that runs this test program again.
//!
//! Its metrics have the names, types, helps and form of `reactor::register_metrics`
//! (src/core/reactor.cc) and `write_text_representation` (src/core/prometheus.cc) in
//! scylladb/seastar, of transport/server.cc in scylladb/scylladb, and of the recording
//! scylla/tests/fixtures/scylla_5_metrics.txt in DataDog/integrations-core; its REST interface
//! those of api/api-doc/compaction_manager.json and column_family.json in scylladb/scylladb. The
//! values are those that `tare db`, which has a polling loop for each shard too, counts of itself.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use tare_cql::frame::{self, Direction};
use tare_cql::request::Request;
use tare_cql::response::{ColumnSpec, EncodedColumns, Reply, RowsWriter};
use tare_cql::types::Type;
use tare_db::metrics::{Metrics, ShardMetrics};

/// Set for the process that is the stand-in, to the words of its command line.
const WORDS: &str = "TARE_TEST_SCYLLA_WORDS";
pub(crate) const VERSION: &str = "5.4.9-0.20240703.stand-in";
/// The loaders of the host's programs, of which an installation has one of its own.
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
/// The port of `tare db` beside that of the stand-in.
const DATABASE_PORT: u16 = 9099;

/// Makes an installation whose program is the stand-in.
pub(crate) fn install(directory: &Path) {
    for folder in ["libexec", "libreloc", "bin"] {
        fs::create_dir_all(directory.join(folder)).unwrap();
    }
    let loader = LOADERS.iter().map(Path::new).find(|path| path.exists()).unwrap();
    std::os::unix::fs::symlink(loader, directory.join("libreloc/ld.so")).unwrap();
    // Under the name that a process of Scylla has.
    let program = directory.join("bin/scylla");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = --version ]; then echo {VERSION}; exit 0; fi\n\
         {WORDS}=\"$*\" exec {} --exact stand_in::serves_if_it_is_started_as_scylla --nocapture\n",
        program.display()
    );
    let path = directory.join("libexec/scylla");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Starts the stand-in without Tare, with these words and this configuration.
pub(crate) fn start(directory: &Path, words: &str) -> Child {
    let words = words.split(' ').filter(|word| !word.is_empty());
    let mut command = Command::new(directory.join("libexec/scylla"));
    command.args(words).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

#[test]
fn serves_if_it_is_started_as_scylla() {
    if let Ok(words) = std::env::var(WORDS) {
        StandIn::new(&words).serve();
    }
}

struct StandIn {
    flags: HashMap<String, String>,
    settings: HashMap<String, String>,
}

impl StandIn {
    fn new(words: &str) -> Self {
        let words: Vec<&str> = words.split(' ').collect();
        let pairs = words.windows(2).filter(|pair| pair[0].starts_with("--"));
        let flags: HashMap<String, String> =
            pairs.map(|pair| (pair[0].into(), pair[1].into())).collect();
        let text = fs::read_to_string(&flags["--options-file"]).unwrap();
        let lines = text.lines().filter_map(|line| line.split_once(": "));
        let settings =
            lines.map(|(name, value)| (name.into(), value.trim_matches('"').into())).collect();
        Self { flags, settings }
    }

    fn address(&self, name: &str, port: &str, default_port: u16) -> SocketAddr {
        let port = self.settings.get(port).map_or(default_port, |port| port.parse().unwrap());
        SocketAddr::new(self.settings[name].parse().unwrap(), port)
    }

    fn serve(&self) {
        let stop = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM]);
        let mut stop = stop.unwrap();
        let folder = PathBuf::from(&self.settings["workdir"]);
        let table = folder.join("data/tare_test/rows-1");
        for directory in [&table, &folder.join("data/system_schema")] {
            fs::create_dir_all(directory).unwrap();
        }
        for (component, bytes) in [("Data.db", 1 << 20), ("Statistics.db", 1 << 10)] {
            fs::write(table.join(format!("me-1-big-{component}")), vec![0; bytes]).unwrap();
        }
        // Its own data in place of what Scylla has in its log.
        let data = folder.join("commitlog");
        let api = self.address("api_address", "api_port", 10000);
        let database = SocketAddr::new(api.ip(), DATABASE_PORT);
        let mut child = Command::new(env!("CARGO_BIN_EXE_tare"))
            .args(["db", "--insecure", "--overprovisioned", "no", "--durability", "periodic"])
            .args(["--listen", &database.ip().to_string(), "--port", &DATABASE_PORT.to_string()])
            .args(["--smp", &self.flags["--smp"], "--data"])
            .arg(&data)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        while TcpStream::connect(database).is_err() {
            assert!(child.try_wait().unwrap().is_none(), "tare db has ended");
            thread::sleep(Duration::from_millis(20));
        }
        let file = data.join(tare_db::metrics::FILE);
        let metrics = self.address("prometheus_address", "prometheus_port", 9180);
        if metrics.port() != 0 {
            let file = file.clone();
            listen(metrics, move |socket| answer(socket, |path| metrics_page(&file, path)));
        }
        listen(api, move |socket| answer(socket, |path| rest(&file, path)));
        let port = self.settings["native_transport_port"].parse().unwrap();
        let clients = SocketAddr::new(self.flags["--rpc-address"].parse().unwrap(), port);
        listen(clients, move |socket| relay(socket, database));
        stop.forever().next();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        child.wait().unwrap();
    }
}

/// Serves each connection to an address on a thread of its own.
fn listen(address: SocketAddr, serve: impl Fn(TcpStream) + Clone + Send + 'static) {
    let listener = TcpListener::bind(address).unwrap();
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let serve = serve.clone();
            thread::spawn(move || serve(socket));
        }
    });
}

/// Answers a request as Seastar's server does: a page in chunks, or a short text with its length.
fn answer(mut socket: TcpStream, page: impl Fn(&str) -> Option<(String, bool)>) {
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        match socket.read(&mut part) {
            Ok(0) | Err(_) => return,
            Ok(count) => request.extend_from_slice(&part[..count]),
        }
    }
    let request = String::from_utf8_lossy(&request);
    let path = request.split(' ').nth(1).unwrap();
    let text = match page(path) {
        None => {
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nServer: Seastar httpd\r\n\r\n".into()
        }
        Some((body, true)) => {
            let halves = body.split_at(body.len() / 2);
            let chunk = |part: &str| match part.len() {
                0 => String::new(),
                length => format!("{length:x}\r\n{part}\r\n"),
            };
            format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nServer: Seastar httpd\r\n\
                 Transfer-Encoding: chunked\r\n\r\n{}{}0\r\n\r\n",
                chunk(halves.0),
                chunk(halves.1)
            )
        }
        Some((body, false)) => format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Type: application/json\r\n\
             Server: Seastar httpd\r\n\r\n{body}",
            body.len()
        ),
    };
    let _ = socket.write_all(text.as_bytes());
}

/// A family of metrics: its name, its help, and its value of a shard in ms or requests.
type Family = (&'static str, &'static str, fn(&ShardMetrics) -> u64);

const MS: u64 = 1_000_000;
const FAMILIES: &[Family] = &[
    ("reactor_awake_time_ms_total", "Total reactor awake time (wall_clock)", |shard| {
        (shard.busy_ns + shard.idle_poll_ns) / MS
    }),
    ("reactor_cpu_busy_ms", "Total cpu busy time in milliseconds", |shard| shard.busy_ns / MS),
    (
        "reactor_cpu_steal_time_ms",
        "Total steal time, the time in which something else was running while the reactor was runnable (not sleeping).Because this is in userspace, some time that could be legitimally thought as steal time is not accounted as such. For example, if we are sleeping and can wake up but the kernel hasn't woken us up yet.",
        |shard| shard.cpu_wait_ns / MS,
    ),
    (
        "reactor_cpu_used_time_ms",
        "Total reactor thread CPU time (from CLOCK_THREAD_CPUTIME)",
        |shard| shard.cpu_ns / MS,
    ),
    ("reactor_sleep_time_ms_total", "Total reactor sleep time (wall clock)", |shard| {
        shard.sleep_ns / MS
    }),
    ("transport_requests_served", "Counts a number of served requests.", |shard| {
        shard.reads + shard.writes
    }),
];

fn metrics_page(file: &Path, path: &str) -> Option<(String, bool)> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    if path != "/metrics" {
        return None;
    }
    let wanted = query.strip_prefix("__name__=").unwrap_or("*");
    let is_wanted = |name: &str| match wanted.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == wanted,
    };
    let Metrics { shards, .. } = tare_db::metrics::read(file).unwrap();
    let mut text = String::new();
    for (name, help, value) in FAMILIES.iter().filter(|(name, ..)| is_wanted(name)) {
        text += &format!("# HELP scylla_{name} {help}\n# TYPE scylla_{name} counter\n");
        for (number, shard) in shards.iter().enumerate() {
            text += &format!("scylla_{name}{{shard=\"{number}\"}} {}\n", value(shard));
        }
    }
    Some((text, true))
}

fn rest(file: &Path, path: &str) -> Option<(String, bool)> {
    let total = tare_db::metrics::read(file).unwrap().total();
    let text = match path {
        "/compaction_manager/compactions" if total.compactions_running > 0 => {
            r#"[{"id": "1", "ks": "tare", "cf": "rows", "completed": 1, "total": 2, "task_type": "COMPACTION", "unit": "keys"}]"#.into()
        }
        "/compaction_manager/compactions" => "[]".into(),
        "/compaction_manager/metrics/pending_tasks" => "0".into(),
        "/compaction_manager/metrics/completed_tasks" => total.compactions.to_string(),
        "/column_family/metrics/pending_flushes" => total.frozen_memtables.to_string(),
        "/column_family/metrics/memtable_switch_count" => total.flushes.to_string(),
        _ => return None,
    };
    Some((text, false))
}

/// Passes a client's frames to the database, and answers those that ask for what only Scylla has.
fn relay(mut client: TcpStream, database: SocketAddr) {
    let mut server = TcpStream::connect(database).unwrap();
    client.set_nodelay(true).unwrap();
    server.set_nodelay(true).unwrap();
    let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(std::net::Shutdown::Both);
    });
    let (mut input, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        match client.read(&mut part) {
            Ok(0) | Err(_) => break,
            Ok(count) => input.extend_from_slice(&part[..count]),
        }
        let mut offset = 0;
        while let Ok(Some((frame, length))) =
            frame::decode(&input[offset..], Direction::Request, 1 << 24)
        {
            let request = &input[offset..offset + length];
            let passed = match Request::decode(&frame) {
                Ok(Request::Query { statement, .. }) if statement.contains("system.versions") => {
                    rows(Reply::to(&frame), &["version"], &[&[VERSION]], &mut client)
                }
                Ok(Request::Query { statement, .. }) if statement.contains("system.config") => {
                    let settings = [&["num_tokens", "256"][..]];
                    rows(Reply::to(&frame), &["name", "value"], &settings, &mut client)
                }
                _ => server.write_all(request),
            };
            if passed.is_err() {
                return;
            }
            offset += length;
        }
        input.drain(..offset);
    }
    let _ = server.shutdown(std::net::Shutdown::Both);
}

fn rows(
    reply: Reply,
    names: &[&str],
    rows: &[&[&str]],
    client: &mut TcpStream,
) -> std::io::Result<()> {
    let columns =
        names.iter().map(|name| ColumnSpec { name, kind: &Type::Text }).collect::<Vec<_>>();
    let columns = EncodedColumns::new("", "", columns);
    let mut out = Vec::new();
    let mut writer = RowsWriter::begin(&mut out, reply, &columns, None);
    for row in rows {
        row.iter().for_each(|cell| writer.cell(Some(cell.as_bytes())));
        writer.end_row();
    }
    writer.finish();
    client.write_all(&out)
}
