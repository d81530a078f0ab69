//! The system `fio`: Tare's program inside an environment (`tare fio-server`). It runs fio as its
//! child when the driver orders it, and returns what fio printed.
//!
//! Why not `fio --server`: its client polls the state of a job every 0.9 s and does not learn when
//! it starts, so CPU times could not be read at the edges of a short slice. As a child, fio's
//! threads can be counted, and an interrupt ends it within milliseconds.
//!
//! Method: fio reads a job on standard input and writes json+ to standard output; only the job's
//! own files are written. A job ends with the connection that ordered it.
//!
//! Limits: one connection at a time, and one job.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::job::{PLACE, placement};
use super::protocol::{Answer, Order};

/// Time between two checks of the threads of a starting job.
const LOOK: Duration = Duration::from_millis(2);
/// Time between two signs of life.
const SIGN: Duration = Duration::from_secs(1);
/// Time limit for an interrupted fio to end: its operations have to end first.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for a killed fio to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(2);
/// A job counts as begun at the latest this long after its threads have started.
const START_LIMIT: Duration = Duration::from_millis(500);
/// The most that fio reads and writes through files of its own before the first operation.
const START_BYTES: u64 = 256 << 10;
/// Threads of fio besides those of its jobs: the main thread and its helper.
const OWN_THREADS: u64 = 2;

/// Why the server cannot run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("cannot run {}; is fio installed (apt-get install fio)?", .program.display())]
    Version { program: PathBuf, source: io::Error },
    #[error("{} --version printed {said:?}, which is not a version of fio 3", .program.display())]
    NotFio { program: PathBuf, said: String },
    #[error("cannot write {}", .path.display())]
    Report { path: PathBuf, source: io::Error },
    #[error("cannot listen on {address}")]
    Listen { address: SocketAddr, source: io::Error },
}

/// Why a job gave no output.
#[derive(Debug, thiserror::Error)]
enum JobError {
    #[error("cannot start fio")]
    Start(#[source] io::Error),
    #[error("cannot write the job to fio")]
    Hand(#[source] io::Error),
    #[error("cannot wait for fio")]
    Wait(#[source] io::Error),
    #[error("fio did not end within {} s of being interrupted", .limit.as_secs())]
    Stuck { limit: Duration },
    #[error("a job runs already")]
    Busy,
}

/// Serves until the process ends. `data` is the directory or block device of the jobs; `report`
/// names the file in which the server records what it runs.
///
/// # Errors
/// If fio cannot run, the report cannot be written, or the address cannot be listened on.
pub fn serve(
    program: &Path,
    listen: SocketAddr,
    data: &Path,
    report: &str,
) -> Result<(), ServerError> {
    let version = version(program)?;
    let said = serde_json::json!({ "fio": version, "program": program });
    // A device node is in the directory that otherwise holds the data.
    let folder = if data.is_dir() { data } else { data.parent().unwrap_or(data) };
    let path = folder.join(report);
    fs::write(&path, said.to_string()).map_err(|source| ServerError::Report { path, source })?;
    let fail = |source| ServerError::Listen { address: listen, source };
    let listener = TcpListener::bind(listen).map_err(fail)?;
    loop {
        let (stream, _) = listener.accept().map_err(fail)?;
        // An error of a connection ends the connection; the driver sees that.
        let _ = converse(stream, program, data, &version);
    }
}

fn version(program: &Path) -> Result<String, ServerError> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let output =
        output.map_err(|source| ServerError::Version { program: program.into(), source })?;
    let said = String::from_utf8_lossy(&output.stdout).trim().to_string();
    let major = said.strip_prefix("fio-").and_then(|rest| rest.split('.').next()?.parse().ok());
    match major {
        Some(3..=99) => Ok(said),
        _ => Err(ServerError::NotFio { program: program.into(), said }),
    }
}

/// Something that happens while a job runs.
enum Event {
    Order(Order),
    /// The driver has gone.
    Gone,
}

/// Serves one driver until it disconnects.
fn converse(mut stream: TcpStream, program: &Path, data: &Path, version: &str) -> io::Result<()> {
    stream.set_nodelay(true)?;
    say(&mut stream, &Answer::Ready { version: version.into() })?;
    let (sender, events) = mpsc::channel();
    let orders = stream.try_clone()?;
    thread::spawn(move || listen(orders, &sender));
    while let Ok(Event::Order(order)) = events.recv() {
        let done = match order {
            Order::Run { job, jobs, size } => {
                let job = job.replace(PLACE, &placement(data, data.is_dir(), size));
                run(&mut stream, &events, program, &job, jobs)
            }
            // The job had already ended and was reported to the driver.
            Order::Stop => continue,
        };
        match done {
            Ok(Some(answer)) => say(&mut stream, &answer)?,
            Ok(None) => break,
            Err(error) => {
                let source = std::error::Error::source(&error);
                let why = source.map(|source| format!(": {source}")).unwrap_or_default();
                say(&mut stream, &Answer::Failed { error: format!("{error}{why}") })?;
            }
        }
    }
    Ok(())
}

fn say(stream: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn listen(stream: TcpStream, events: &Sender<Event>) {
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let Ok(order) = serde_json::from_str(&line) else { break };
        if events.send(Event::Order(order)).is_err() {
            return;
        }
    }
    // This fails only if the receiver is gone.
    let _ = events.send(Event::Gone);
}

/// Runs one job to its end; `None` if the driver has disconnected.
fn run(
    stream: &mut TcpStream,
    events: &Receiver<Event>,
    program: &Path,
    job: &str,
    jobs: u64,
) -> Result<Option<Answer>, JobError> {
    let mut fio = Fio::start(program, job)?;
    let (mut running, mut signed) = (false, Instant::now());
    let mut limit: Option<Instant> = None;
    loop {
        if let Some(answer) = fio.ended()? {
            return Ok(Some(answer));
        }
        if !running && fio.works(jobs) {
            running = true;
            if say(stream, &Answer::Running).is_err() {
                return Ok(None);
            }
        }
        if signed.elapsed() >= SIGN {
            signed = Instant::now();
            if say(stream, &Answer::Alive).is_err() {
                return Ok(None);
            }
        }
        if limit.is_some_and(|limit| Instant::now() > limit) {
            return Err(JobError::Stuck { limit: STOP_LIMIT });
        }
        // Seldom during the measurement, because checking takes CPU time.
        let patience = if running && limit.is_none() { LOOK * 25 } else { LOOK };
        match events.recv_timeout(patience) {
            Ok(Event::Order(Order::Stop)) => {
                fio.interrupt();
                limit = Some(Instant::now() + STOP_LIMIT);
            }
            Ok(Event::Order(Order::Run { .. })) => return Err(JobError::Busy),
            Ok(Event::Gone) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

/// The bytes that a process has moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct IoProgress {
    /// Bytes through read(2), write(2) and similar calls.
    calls: u64,
    /// Bytes to and from a disk, or into pages that will be written.
    disk: u64,
}

/// Reads `/proc/PID/io` (proc_pid_io(5)).
fn io_progress(text: &str) -> IoProgress {
    let value = |name: &str| -> u64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
    };
    IoProgress {
        calls: value("rchar") + value("wchar"),
        disk: value("read_bytes") + value("write_bytes"),
    }
}

/// A running fio. Dropping it kills it.
struct Fio {
    child: Child,
    /// When all threads were first seen, and the bytes moved by then.
    threads_there: Option<(Instant, IoProgress)>,
    stdout: Option<thread::JoinHandle<String>>,
    stderr: Option<thread::JoinHandle<String>>,
}

impl Fio {
    fn start(program: &Path, job: &str) -> Result<Self, JobError> {
        let mut child = Command::new(program)
            .args(["-", "--output-format=json+", "--eta=never"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(JobError::Start)?;
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let fio = Self {
            child,
            threads_there: None,
            stdout: stdout.map(|stream| thread::spawn(|| text(stream))),
            stderr: stderr.map(|stream| thread::spawn(|| text(stream))),
        };
        // Closing standard input ends the job file.
        let handed = stdin.map_or(Ok(()), |mut stdin| stdin.write_all(job.as_bytes()));
        handed.map_err(JobError::Hand)?;
        Ok(fio)
    }

    /// Returns whether its jobs have begun. Threads exist before the first operation, on a busy
    /// host long before, so bytes must move too, as far as the kernel counts them (not those of
    /// io_submit(2) that stay in memory) and the rate makes any due.
    fn works(&mut self, jobs: u64) -> bool {
        let folder = format!("/proc/{}", self.child.id());
        let threads = fs::read_dir(format!("{folder}/task")).map_or(0, Iterator::count) as u64;
        if threads < jobs + OWN_THREADS {
            return false;
        }
        let io_progress =
            io_progress(&fs::read_to_string(format!("{folder}/io")).unwrap_or_default());
        let (since, before) =
            *self.threads_there.get_or_insert_with(|| (Instant::now(), io_progress));
        io_progress.disk > before.disk
            || io_progress.calls >= before.calls + START_BYTES
            || since.elapsed() > START_LIMIT
    }

    /// Interrupts it, so that it stops cleanly and prints what it has counted.
    fn interrupt(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Only `ended` reaps it, so its number still belongs to it. An ended process needs no
        // signal.
        let _ = pid.map(|pid| kill_process(pid, Signal::INT));
    }

    fn ended(&mut self) -> Result<Option<Answer>, JobError> {
        let Some(status) = self.child.try_wait().map_err(JobError::Wait)? else { return Ok(None) };
        let text = |thread: &mut Option<thread::JoinHandle<String>>| {
            thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        let (output, stderr) = (text(&mut self.stdout), text(&mut self.stderr));
        Ok(Some(Answer::Done { output, stderr, status: status.to_string() }))
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        // An ended process cannot be killed and need not be.
        let _ = self.child.kill();
        // A hanging operation keeps even a killed process alive; the next driver must still be
        // served.
        let deadline = Instant::now() + KILL_LIMIT;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            thread::sleep(LOOK);
        }
    }
}

fn text(mut stream: impl Read) -> String {
    let mut bytes = Vec::new();
    // Unread output shows as missing in the result.
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_io_is_read() {
        let text = "rchar: 100\nwchar: 20\nsyscr: 5\nread_bytes: 4096\nwrite_bytes: 8192\n";
        assert_eq!(io_progress(text), IoProgress { calls: 120, disk: 12_288 });
        assert_eq!(io_progress(""), IoProgress::default());
    }

    #[test]
    fn other_program_is_not_fio() {
        let folder = tempfile::tempdir().unwrap();
        let listen = "127.0.0.1:0".parse().unwrap();
        let serve = |program: &str| {
            let error = serve(Path::new(program), listen, folder.path(), "fio.json").unwrap_err();
            error.to_string()
        };
        assert!(serve("/no/such/fio").contains("apt-get install fio"));
        assert!(serve("/bin/true").contains("not a version of fio 3"));
    }
}
