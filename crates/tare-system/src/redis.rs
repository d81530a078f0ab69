//! Redis and Valkey, which differ in the name of their program.
//!
//! It takes inline commands and answers in RESP
//! (<https://redis.io/docs/latest/develop/reference/protocol-spec/>). Nothing is saved to disk
//! unless the study sets `appendonly`, because a snapshot forks the process in the middle of a
//! slice.
//!
//! Its data is saved as a snapshot of all keys (`SAVE`), and read at the start. A server that logs
//! its writes reads its log instead, so it gets the snapshot by the name of the log, as which every
//! version since 4.0 takes it.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::process::Signal;
use tare_host::tree_copy::FileUse;
use tare_lab::PartError;
use tare_lab::environment::{DataSnapshot, Endpoint, HostProgram, Launch};
use tare_lab::study::{OptionInfo, SystemSpec};
use tare_lab::system::{BackgroundWork, Instances, OwnLatency, System};

use super::certificate::{CERTIFICATE_FILE, KEY_FILE, ServerCertificate};
use super::client_route::{ClientRoute, ClientRouteError, SystemConnection};
use super::options::Options;
use super::redis_answers::{bulk, count, element, pairs};
use super::saved_data::{self, DataCheck, DataFiles, DataStamp, ProgramVersion};
use super::starter::StartPlan;
use super::{SystemInfo, TlsSupport, instances, redis_latency};

pub(super) const REDIS: SystemInfo = SystemInfo {
    name: "redis",
    help: "Redis of the host (apt-get install redis-server)",
    speaks: |_| "redis".into(),
    found: Some(|| super::program("redis-server", "apt-get install redis-server")),
    options: OPTIONS,
    takes_device: false,
    in_memory: false,
    tls: TlsSupport::Alone,
    make: |spec, client_route| make("redis", spec, client_route),
};

pub(super) const VALKEY: SystemInfo = SystemInfo {
    name: "valkey",
    found: Some(|| super::program("valkey-server", "apt-get install valkey-server")),
    help: "Valkey of the host (apt-get install valkey-server)",
    make: |spec, client_route| make("valkey", spec, client_route),
    ..REDIS
};

const OPTIONS: &[OptionInfo] = &[
    OptionInfo {
        name: "program",
        values: &[],
        help: "name on PATH or path of the server (default: redis-server, valkey-server)",
    },
    OptionInfo {
        name: "appendonly",
        values: &["no", "everysec", "always"],
        help: "no: nothing is written to the disk (default); else a log, synced each second or each write",
    },
    OptionInfo {
        name: "io_threads",
        values: &[],
        help: "threads that read and write sockets (default 1)",
    },
    OptionInfo {
        name: "arguments",
        values: &[],
        help: "more words of its command line, such as \"--maxmemory 1gb --hz 10\"",
    },
    instances::INSTANCES,
];

/// Settings that may differ between environments or change the cost of an operation.
const SETTINGS: &[&str] = &[
    "redis_version",
    "valkey_version",
    "redis_mode",
    "multiplexing_api",
    "mem_allocator",
    "io_threads_active",
    "maxmemory_policy",
    "aof_enabled",
];

/// Counters of `INFO` that are not 0 while it works in the background.
const BUSY: &[&str] = &[
    "loading",
    "async_loading",
    "rdb_bgsave_in_progress",
    "aof_rewrite_in_progress",
    "aof_rewrite_scheduled",
    "lazyfree_pending_objects",
];

/// Those of them that fork a process, which copies every page that changes meanwhile.
const FORKS: &[&str] = &["rdb_bgsave_in_progress", "aof_rewrite_in_progress"];

/// The snapshot of all keys, and the log of writes, by their default names.
const SNAPSHOT: &str = "dump.rdb";
const LOG: &str = "appendonly.aof";
/// Words of the command line that give these files other names or places.
const PLACES: &[&str] = &["--dir", "--dbfilename", "--appendfilename", "--appenddirname"];
/// Time limit for writing the snapshot.
const SAVE_LIMIT: Duration = Duration::from_secs(300);
/// A log that is written on begins with the snapshot, so that is not shared.
static DATA: DataFiles = DataFiles {
    mark: SNAPSHOT,
    while_running: None,
    use_of: |path| match path.to_str() {
        Some(SNAPSHOT) => FileUse::Changing,
        _ => FileUse::LeftOut,
    },
    stop: Signal::TERM,
};

/// Redis or Valkey with the options of a study.
#[derive(Clone, Debug)]
pub struct Redis {
    name: &'static str,
    options: Options,
    instances: Instances,
    client_route: ClientRoute,
}

fn make(
    name: &'static str,
    spec: &SystemSpec,
    client_route: &ClientRoute,
) -> Result<Box<dyn System>, PartError> {
    let options = Options::new(spec);
    let instances = instances::read(&options)?;
    Ok(Box::new(Redis { name, options, instances, client_route: client_route.clone() }))
}

impl Redis {
    /// Returns the name on PATH or the path of the server.
    fn program(&self) -> String {
        self.options.text_or("program", &format!("{}-server", self.name)).to_string()
    }

    /// Returns whether it writes a log, which it then reads at its start in place of a snapshot.
    fn has_log(&self) -> bool {
        let words = self.options.words("arguments");
        // The last one of a command line counts.
        let last = words.windows(2).rfind(|pair| pair[0] == "--appendonly");
        last.map_or(self.options.text_or("appendonly", "no") != "no", |pair| pair[1] != "no")
    }

    /// Returns the words of its command line by which it finds its data elsewhere.
    fn places(&self) -> String {
        let words = self.options.words("arguments");
        let pairs = words.windows(2).filter(|pair| PLACES.contains(&pair[0].as_str()));
        pairs.map(|pair| pair.join(" ")).collect::<Vec<_>>().join(" ")
    }

    /// Writes all keys into a snapshot.
    fn write_snapshot(&self, at: &Endpoint) -> Result<(), ClientRouteError> {
        let mut line = open(&self.client_route, at.address)?;
        line.limit(SAVE_LIMIT);
        line.send("SAVE", b"SAVE\r\n")?;
        let answer = line.line()?;
        if answer == "+OK" { Ok(()) } else { Err(line.unexpected_answer(answer)) }
    }

    /// Reads `INFO` as (name, value).
    fn info(&self, at: &Endpoint) -> Result<Vec<(String, String)>, ClientRouteError> {
        info(&self.client_route, at.address)
    }
}

impl System for Redis {
    fn name(&self) -> &str {
        self.name
    }

    fn launch(&self, _cpus: usize) -> Launch {
        let name = self.program();
        let mut command = ["{program}", "--bind", "{listen}"].map(String::from).to_vec();
        let certificate = self.client_route.certificate.as_deref();
        command.extend(match certificate {
            None => ["--port", "{port}"].map(String::from).to_vec(),
            Some(_) => tls_words(),
        });
        // The network belongs to the study alone; without a password Redis would answer only on
        // loopback.
        let words = ["--dir", "{data}", "--protected-mode", "no", "--save", ""];
        command.extend(words.map(String::from));
        match self.options.text_or("appendonly", "no") {
            "no" => command.extend(["--appendonly", "no"].map(String::from)),
            sync => {
                command.extend(["--appendonly", "yes", "--appendfsync", sync].map(String::from))
            }
        }
        if let Some(threads) = self.options.text("io_threads") {
            command.extend(["--io-threads".into(), threads.into()]);
        }
        command.extend(self.options.words("arguments"));
        let files = certificate.map(ServerCertificate::files).unwrap_or_default();
        let version = ProgramVersion::Printed("--version".into());
        let restored = Some(DataCheck { version, shape: self.places() });
        let renamed = self.has_log().then(|| (SNAPSHOT.into(), LOG.into())).into_iter().collect();
        let plan = StartPlan { files, command, restored, renamed, ..StartPlan::default() };
        let arguments = plan.arguments();
        let program = HostProgram { name, ..HostProgram::default() };
        Launch { arguments, program: Some(program), ..Launch::default() }
    }

    fn instances(&self) -> Instances {
        self.instances
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        let mut line = open(&self.client_route, at.address)?;
        line.send("PING", b"PING\r\n")?;
        let answer = line.line()?;
        // It answers `-LOADING Redis is loading the dataset in memory` while it loads its log.
        if answer == "+PONG" { Ok(()) } else { Err(line.unexpected_answer(answer).into()) }
    }

    fn settings(&self, at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        let mut info = self.info(at)?;
        info.retain(|(name, _)| SETTINGS.contains(&name.as_str()));
        Ok(info)
    }

    fn pending(&self, at: &Endpoint) -> Result<Option<String>, PartError> {
        let info = self.info(at)?;
        Ok(busy(&info))
    }

    fn can_save_data(&self) -> bool {
        true
    }

    fn save_data(
        &self,
        at: &Endpoint,
        processes: &[u32],
        to: &Path,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        // A snapshot elsewhere would not be read by a start that looks for it here.
        if !self.places().is_empty() {
            return Ok(None);
        }
        let info = self.info(at)?;
        let version = |name: &str| info.iter().find(|(own, _)| own == name).map(|(_, value)| value);
        let version = version("valkey_version").or_else(|| version("redis_version"));
        let version = version.map(|version| saved_data::series(version)).unwrap_or_default();
        self.write_snapshot(at)?;
        let Some(running) = DATA.of(at, processes, Path::new(&self.program())) else {
            return Ok(None);
        };
        running.save(DataStamp { system: self.name.into(), version, shape: String::new() }, to)
    }

    fn data_identity(&self, _cpus: usize) -> Option<Vec<(String, String)>> {
        // Of the options with a name, none is in a snapshot.
        saved_data::identity(Path::new(&self.program()), &self.options.words("arguments"))
    }

    fn open_data(
        &self,
        folder: &Path,
        description: &str,
    ) -> Result<Option<Rc<dyn DataSnapshot>>, PartError> {
        DATA.open(folder, description)
    }

    fn background(&self, at: &Endpoint) -> Result<Vec<BackgroundWork>, PartError> {
        Ok(background(&self.info(at)?))
    }

    fn own_latency(&self, at: &Endpoint) -> Result<Option<OwnLatency>, PartError> {
        let mut line = open(&self.client_route, at.address)?;
        Ok(Some(redis_latency::read(&mut line)?))
    }
}

/// Returns the options with which it listens for TLS alone, without certificates of clients.
fn tls_words() -> Vec<String> {
    let certificate = format!("{{data}}/{CERTIFICATE_FILE}");
    let key = format!("{{data}}/{KEY_FILE}");
    let words = ["--port", "0", "--tls-port", "{port}", "--tls-auth-clients", "no"];
    let files = ["--tls-cert-file", &certificate, "--tls-key-file", &key];
    // Its version 6 does not start without authorities.
    let files = files.into_iter().chain(["--tls-ca-cert-file", &certificate]);
    words.into_iter().chain(files).map(String::from).collect()
}

/// Returns the saves and rewrites, each of which forks, and the evicted keys. A fork that still
/// runs is in `total_forks` already (`redisFork` of Redis counts at its start), so that it counts
/// in the slices after the first one by what runs.
fn background(info: &[(String, String)]) -> Vec<BackgroundWork> {
    let value = |name: &str| {
        let found = info.iter().find(|(own, _)| own == name);
        found.and_then(|(_, value)| value.parse::<u64>().ok())
    };
    let is_running = FORKS.iter().any(|name| value(name).is_some_and(|value| value != 0));
    let forks = value("total_forks").map(|forks| forks.saturating_sub(u64::from(is_running)));
    let saves = forks.map(|total| BackgroundWork { name: "saves", total, is_running });
    let evicted = value("evicted_keys").map(|total| BackgroundWork::total("evictions", total));
    saves.into_iter().chain(evicted).collect()
}

/// How many keys a step of [`remove_keys`] looks at.
const KEYS_OF_STEP: u32 = 500;

/// Connects, and logs in where the route has a login.
fn open(route: &ClientRoute, address: SocketAddr) -> Result<SystemConnection, ClientRouteError> {
    let mut line = route.connect(address)?;
    if let Some(login) = route.login() {
        let words = ["AUTH", &login.username, &login.password];
        let word = |word: &str| format!("${}\r\n{word}\r\n", word.len());
        let request = words.map(word).concat();
        line.send("AUTH", format!("*{}\r\n{request}", words.len()).as_bytes())?;
        match line.line()? {
            answer if answer == "+OK" => {}
            answer => return Err(line.refused_login(login, answer.trim_start_matches('-'))),
        }
    }
    Ok(line)
}

/// Reads `INFO` as (name, value).
fn info(
    route: &ClientRoute,
    address: SocketAddr,
) -> Result<Vec<(String, String)>, ClientRouteError> {
    let mut line = open(route, address)?;
    line.send("INFO", b"INFO\r\n")?;
    Ok(pairs(&bulk(&mut line)?))
}

/// What a Redis does with keys, as far as it matters to others in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KeyPolicy {
    /// It keeps them.
    Keeps,
    /// It may drop keys for new ones, by this policy.
    Evicts(String),
    /// It has only some of them, as a node of a Redis Cluster.
    Clustered,
}

/// Asks a Redis what it does with keys.
pub(crate) fn key_policy(
    route: &ClientRoute,
    address: SocketAddr,
) -> Result<KeyPolicy, ClientRouteError> {
    let info = info(route, address)?;
    let value = |name: &str| {
        let found = info.iter().find(|(own, _)| own == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let policy = value("maxmemory_policy");
    if value("cluster_enabled") == "1" {
        return Ok(KeyPolicy::Clustered);
    }
    match matches!(value("maxmemory"), "" | "0") || policy == "noeviction" {
        true => Ok(KeyPolicy::Keeps),
        false => Ok(KeyPolicy::Evicts(policy.into())),
    }
}

/// Removes every key that begins with `prefix`, which has letters, digits, underscores and colons.
pub(crate) fn remove_keys(
    route: &ClientRoute,
    address: SocketAddr,
    prefix: &str,
) -> Result<(), ClientRouteError> {
    let mut line = open(route, address)?;
    let mut cursor = "0".to_string();
    loop {
        let scan = format!("SCAN {cursor} MATCH {prefix}* COUNT {KEYS_OF_STEP}");
        line.send(&scan, format!("{scan}\r\n").as_bytes())?;
        count(&mut line, '*')?;
        cursor = element(&mut line)?;
        let keys = (0..count(&mut line, '*')?).map(|_| element(&mut line));
        let keys: Vec<String> = keys.collect::<Result<_, _>>()?;
        if !keys.is_empty() {
            line.send("DEL", format!("DEL {}\r\n", keys.join(" ")).as_bytes())?;
            count(&mut line, ':')?;
        }
        if cursor == "0" {
            return Ok(());
        }
    }
}

fn busy(info: &[(String, String)]) -> Option<String> {
    let busy = info.iter().filter(|(name, value)| BUSY.contains(&name.as_str()) && value != "0");
    let busy: Vec<String> = busy.map(|(name, value)| format!("{name} = {value}")).collect();
    (!busy.is_empty()).then(|| busy.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{command_of, make, plan_of};

    #[test]
    fn forks_and_evictions_are_background_work() {
        let text = |forks: u64, saves: u8| {
            format!(
                "# Stats\r\ntotal_forks:{forks}\r\nevicted_keys:5\r\nrdb_bgsave_in_progress:{saves}\r\n"
            )
        };
        let of = |text: String| background(&pairs(&text));
        let evictions = BackgroundWork::total("evictions", 5);
        let saves = |total, is_running| BackgroundWork { name: "saves", total, is_running };
        assert_eq!(of(text(3, 0)), [saves(3, false), evictions.clone()]);
        // The third one runs.
        assert_eq!(of(text(3, 1)), [saves(2, true), evictions]);
        assert_eq!(of("# Server\r\n".into()), []);
    }

    #[test]
    fn with_a_certificate_it_listens_for_tls_alone() {
        let made = ServerCertificate::make().unwrap();
        let certificate = Some(std::sync::Arc::new(made.clone()));
        let route = ClientRoute { certificate, ..ClientRoute::default() };
        let spec = SystemSpec { name: "redis".into(), options: Vec::new() };
        let launch = REDIS.make(&spec, &route).unwrap().launch(1);
        let plan: StartPlan = serde_json::from_str(launch.arguments.last().unwrap()).unwrap();
        let words = plan.command.join(" ");
        assert!(words.contains("--port 0 --tls-port {port} --tls-auth-clients no"), "{words}");
        assert!(words.contains("--tls-key-file {data}/tls/key.pem"), "{words}");
        assert_eq!(plan.files, made.files());
    }

    #[test]
    fn options_become_arguments() {
        let command = command_of(&*make("redis", &[]));
        let expect = "{program} --bind {listen} --port {port} --dir {data} --protected-mode no --save  --appendonly no";
        assert_eq!(command, expect);
        let options = [("appendonly", "always"), ("io_threads", "2"), ("arguments", "--hz 20")];
        let system = make("valkey", &options);
        let expect = "--appendonly yes --appendfsync always --io-threads 2 --hz 20";
        assert!(command_of(&*system).ends_with(expect));
        assert_eq!(system.launch(1).program.unwrap().name, "valkey-server");
    }

    #[test]
    fn log_gets_the_restored_snapshot() {
        let renamed = |options: &[(&str, &str)]| plan_of(&*make("redis", options)).renamed;
        let to_log = [(SNAPSHOT.to_string(), LOG.to_string())];
        assert_eq!(renamed(&[]), []);
        assert_eq!(renamed(&[("appendonly", "everysec")]), to_log);
        assert_eq!(renamed(&[("arguments", "--appendonly yes")]), to_log);
        assert_eq!(renamed(&[("appendonly", "always"), ("arguments", "--appendonly no")]), []);
        let shape =
            |options: &[(&str, &str)]| plan_of(&*make("redis", options)).restored.unwrap().shape;
        assert_eq!(shape(&[("arguments", "--hz 20")]), "");
        let elsewhere = [("arguments", "--hz 20 --dbfilename x.rdb")];
        assert_eq!(shape(&elsewhere), "--dbfilename x.rdb");
    }

    #[test]
    fn info_has_settings_and_background_work() {
        let text = "# Server\r\nredis_version:7.0.15\r\nloading:0\r\nrdb_bgsave_in_progress:0\r\n";
        let info = pairs(text);
        assert!(info.contains(&("redis_version".into(), "7.0.15".into())), "{info:?}");
        assert_eq!(busy(&info), None);
        let info = pairs(&text.replace("in_progress:0", "in_progress:1"));
        assert_eq!(busy(&info).as_deref(), Some("rdb_bgsave_in_progress = 1"));
    }
}
