//! A `tare db` that is stopped with the bench, and `tare load` against it.

#[path = "../program/mod.rs"]
pub(crate) mod program;

use std::fmt::Display;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tare_db::metrics::{self, ShardMetrics};

use crate::Result;
use program::program;

/// Bytes of a row: 5 columns of 60 bytes.
pub(crate) const ROW_BYTES: u64 = 300;
const COLUMNS: [&str; 4] = ["--columns", "5", "--column-bytes", "60"];

/// Where a server runs.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    /// The address on which it listens.
    pub(crate) host: &'a str,
    /// The network namespace of this process; `None` is that of the bench.
    pub(crate) network_of: Option<u32>,
    /// Whether the server has no other CPUs. An overprovisioned one does not bind its threads.
    pub(crate) bound: bool,
}

pub(crate) const HERE: Place<'_> = Place { host: "127.0.0.1", network_of: None, bound: false };

pub(crate) struct Server {
    child: Child,
    host: String,
    pub(crate) port: u16,
    data: PathBuf,
    /// Time from the start of the process until it answers a request, which is after it binds the
    /// port.
    pub(crate) ready: Duration,
}

impl Server {
    pub(crate) fn start(data: &Path, cpus: &str, more: &[&str]) -> Result<Self> {
        Self::start_at(HERE, data, cpus, more)
    }

    pub(crate) fn start_at(
        place: Place<'_>,
        data: &Path,
        cpus: &str,
        more: &[&str],
    ) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let began = Instant::now();
        // Each becomes the next, so the process id is that of the server.
        let mut words = Vec::new();
        if let Some(pid) = place.network_of {
            words.extend(["nsenter".into(), format!("--net=/proc/{pid}/ns/net"), "--".into()]);
        }
        if place.bound {
            words.extend(["taskset", "--cpu-list", cpus].map(String::from));
        }
        words.push(program());
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(["db", "--listen", place.host, "--insecure", "--port", &port.to_string()])
            .args(["--cpus", cpus, "--data"])
            .arg(data)
            .args(more)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let mut server =
            Self { child, host: place.host.into(), port, data: data.into(), ready: Duration::ZERO };
        while answers(place.host, port).is_err() {
            if let Some(status) = server.child.try_wait()? {
                return Err(format!("tare db ended with {status}").into());
            }
            if began.elapsed() > Duration::from_secs(120) {
                return Err("tare db does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        server.ready = began.elapsed();
        Ok(server)
    }

    #[allow(dead_code, reason = "not every bench uses it")]
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn metrics(&self) -> Result<ShardMetrics> {
        Ok(metrics::read(&self.data.join(metrics::FILE))?.total())
    }

    /// Waits until nothing is flushed or compacted; returns how long that took.
    pub(crate) fn wait_idle(&self, deadline: Duration) -> Result<Duration> {
        const QUIET: u32 = 10;
        let (began, mut quiet) = (Instant::now(), 0);
        while quiet < QUIET {
            if began.elapsed() > deadline {
                return Err(format!("the server compacts for more than {deadline:?}").into());
            }
            std::thread::sleep(Duration::from_millis(100));
            let metrics = self.metrics()?;
            let works = metrics.compactions_running + metrics.frozen_memtables > 0;
            quiet = if works { 0 } else { quiet + 1 };
        }
        Ok(began.elapsed().saturating_sub(Duration::from_millis(100) * QUIET))
    }

    /// Returns the resident set in bytes, from `/proc/PID/status`.
    pub(crate) fn resident_bytes(&self) -> Result<u64> {
        let resident = tare_host::process::status_field(self.child.id(), "VmRSS");
        let kilobytes = resident.as_deref().and_then(|value| value.strip_suffix(" kB"));
        Ok(kilobytes.ok_or("no VmRSS")?.parse::<u64>()? << 10)
    }

    /// Returns the bytes that the process has submitted for writing to disk, from `/proc/PID/io`.
    pub(crate) fn written_bytes(&self) -> Result<u64> {
        let text = std::fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        let line = text.lines().find_map(|line| line.strip_prefix("write_bytes:"));
        Ok(line.ok_or("no write_bytes")?.trim().parse()?)
    }

    /// Returns the CPU time of the process in ns.
    pub(crate) fn cpu_ns(&self) -> u64 {
        tare_host::account::Account::new().read(&[self.child.id()])
    }

    /// Kills the server, like a crash.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Stops the server with SIGTERM and waits until it has exited.
    pub(crate) fn stop(mut self) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.child.id().try_into()?).ok_or("no pid")?;
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }

    /// Returns the command for `tare load` on these CPUs with these arguments and the bench's rows.
    pub(crate) fn load(&self, cpus: impl Display, rows: u64, words: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args([
            "load",
            &format!("{}:{}", self.host, self.port),
            "--cpus",
            &cpus.to_string(),
        ]);
        command.args(["--rows", &rows.to_string()]).args(COLUMNS).args(words).arg("--json");
        command.stderr(Stdio::null()).stdout(Stdio::piped());
        command
    }

    /// Writes every row once.
    pub(crate) fn populate(&self, cpus: impl Display, rows: u64) -> Result<()> {
        let words = ["--populate", "--duration", "100ms", "--lead-in", "0s"];
        printed(&mut self.load(cpus, rows, &words)).map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the server has already exited.
        let _killed = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Sends OPTIONS in protocol version 4 and waits for the header of the answer.
fn answers(host: &str, port: u16) -> std::io::Result<()> {
    let mut stream = TcpStream::connect((host, port))?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    stream.write_all(&[4, 0, 0, 0, 5, 0, 0, 0, 0])?;
    stream.read_exact(&mut [0; 9])
}

/// Runs this `tare load` to its end. Returns its report, or why there is none. After failed
/// operations there is one, although the exit code is not 0.
pub(crate) fn printed(load: &mut Command) -> Result<Vec<u8>> {
    let output = load.stderr(Stdio::piped()).output()?;
    if !output.stdout.is_empty() {
        return Ok(output.stdout);
    }
    let why = String::from_utf8_lossy(&output.stderr);
    Err(format!("tare load failed: {}", why.trim_end()).into())
}

/// Returns the number of failed operations in a report, and the message of the first one.
#[allow(dead_code, reason = "not every bench uses it")]
pub(crate) fn errors(output: &[u8]) -> Result<(u64, String)> {
    let report: serde_json::Value = serde_json::from_slice(output)?;
    let errors = report["errors"].as_array().ok_or("tare load printed no errors")?;
    let count = errors.iter().filter_map(|error| error["count"].as_u64()).sum();
    let first = errors.first().and_then(|error| error["first"].as_str());
    Ok((count, first.unwrap_or_default().to_owned()))
}

/// Returns the figure with this name, or path of names, in the output of `tare load --json`.
pub(crate) fn figure(output: &[u8], name: &str) -> Result<f64> {
    let report: serde_json::Value = serde_json::from_slice(output)?;
    let figure = report.pointer(&format!("/{name}")).and_then(serde_json::Value::as_f64);
    figure.ok_or_else(|| format!("tare load printed no {name}").into())
}

/// Returns the first two usable CPUs: server, client.
pub(crate) fn cpus() -> Result<(u32, u32)> {
    let cpus = tare_host::process::cpus_of_this_thread()?;
    let mut cpus = cpus.iter();
    let (client, server) = (cpus.next(), cpus.next());
    client.zip(server).map(|(c, s)| (s, c)).ok_or_else(|| "needs two CPUs".into())
}

/// Creates a directory on the disk of the build directory; removed on drop.
pub(crate) fn scratch() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new().prefix("tare-bench").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?)
}
