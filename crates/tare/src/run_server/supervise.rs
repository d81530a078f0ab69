//! Watches over the command of a run.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process, setsid};

use super::frame::{Frame, Kind, read_frame};
use super::hub::Hub;
use super::session::{self, ENDED, Ended, LOG, SOCKET, SessionSpec, WORK};
use super::{files, terminal};

/// A watcher is lost that sends nothing for this long. It sends a frame every 5 s.
const SILENCE: Duration = Duration::from_secs(30);
/// A watcher is lost that does not read for this long.
const BLOCKED: Duration = Duration::from_secs(10);
/// The time in which a watcher whose connection broke can come again.
const RETURN: Duration = Duration::from_secs(12);
/// The time until the first watcher comes.
const FIRST: Duration = Duration::from_secs(30);
/// The time in which a supervisor starts.
const START: Duration = Duration::from_secs(20);
/// The time for what was printed to arrive after the command has ended.
const REST: Duration = Duration::from_secs(2);

/// Starts a run from the archive on standard input, and prints its directory.
pub(super) fn start(out: &mut dyn Write) -> anyhow::Result<()> {
    let directory = session::create()?;
    let started = start_in(&directory);
    if started.is_err() {
        let _ = fs::remove_dir_all(&directory);
    }
    started?;
    Ok(writeln!(out, "{}", directory.display())?)
}

fn start_in(directory: &Path) -> anyhow::Result<()> {
    files::receive(io::stdin().lock(), directory)?;
    let errors = File::create(directory.join("errors"))?;
    let mut command = Command::new(crate::own_program()?);
    command.args(["run-server", "supervise"]).arg(directory);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).current_dir("/");
    let mut supervisor = command.spawn().context("cannot start a process")?;
    let begun = Instant::now();
    while !directory.join(SOCKET).exists() && !directory.join(ENDED).exists() {
        if supervisor.try_wait()?.is_some() || begun.elapsed() > START {
            let errors = fs::read_to_string(directory.join("errors")).unwrap_or_default();
            bail!("the run did not start: {}", errors.trim());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Runs the command of a run to its end.
pub(super) fn run(directory: &Path) -> anyhow::Result<()> {
    session::check(directory)?;
    setsid().context("cannot start a session")?;
    let spec = session::read_spec(directory)?;
    let Some(_lock) = session::lock(directory)? else { bail!("the run has a supervisor") };
    let hub = Arc::new(Hub::default());
    let (mut child, keys, printed) = start_command(directory, &spec, &hub)?;
    session::write_child(directory, child.id())?;
    let pid = Pid::from_child(&child);
    // Under another name until it listens, so that nobody connects too early.
    let socket = directory.join("socket.part");
    let listener = UnixListener::bind(&socket).context("cannot listen on a socket")?;
    fs::rename(&socket, directory.join(SOCKET))?;
    let ended = Arc::new(AtomicBool::new(false));
    let has_ended = Arc::clone(&ended);
    let watched = Watched { hub: Arc::clone(&hub), keys, pid, detach: spec.detach, has_ended };
    let accept = watched.clone();
    std::thread::spawn(move || accept.accept(&listener));
    if !spec.detach {
        std::thread::spawn(move || watched.expect_watcher());
    }
    let status = child.wait()?;
    ended.store(true, Ordering::Relaxed);
    // Until both readers are done; what the command left behind may hold the pipes open.
    while printed.recv_timeout(REST).is_ok() {}
    let ended = Ended { code: status.code(), signal: status.signal() };
    let ended = serde_json::to_vec(&ended)?;
    fs::write(directory.join(LOG), hub.log())?;
    fs::write(directory.join("ended.part"), &ended)?;
    fs::rename(directory.join("ended.part"), directory.join(ENDED))?;
    hub.send(&Frame::new(Kind::Ended, &ended));
    Ok(())
}

/// Starts the command. Returns the end of its terminal that takes keys, if it has one, and what is
/// disconnected when everything that it printed is in the hub.
fn start_command(
    directory: &Path,
    spec: &SessionSpec,
    hub: &Arc<Hub>,
) -> anyhow::Result<(Child, Option<Arc<File>>, Receiver<()>)> {
    let mut command = Command::new(crate::own_program()?);
    command.args(["run-server", "run"]).arg(directory);
    command.arg("--parent").arg(std::process::id().to_string());
    command.current_dir(directory.join(WORK));
    let (done, printed) = channel();
    let Some(asked) = &spec.terminal else {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the command")?;
        let streams: [(Kind, Option<Box<dyn Read + Send>>); 2] = [
            (Kind::Output, child.stdout.take().map(|stream| Box::new(stream) as _)),
            (Kind::Errors, child.stderr.take().map(|stream| Box::new(stream) as _)),
        ];
        for (kind, stream) in streams {
            if let Some(stream) = stream {
                forward(kind, stream, Arc::clone(hub), done.clone());
            }
        }
        return Ok((child, None, printed));
    };
    let (ours, theirs) = terminal::open().context("cannot open a terminal")?;
    terminal::resize(&ours, asked.columns, asked.rows)?;
    command.env("TERM", &asked.term).env("NO_COLOR", &asked.no_colour);
    command.stdin(theirs.try_clone()?).stdout(theirs.try_clone()?).stderr(theirs);
    let child = command.spawn().context("cannot start the command")?;
    // It holds the other end, and the terminal ends only with the last of them.
    drop(command);
    forward(Kind::Output, Box::new(ours.try_clone()?), Arc::clone(hub), done);
    Ok((child, Some(Arc::new(ours)), printed))
}

/// Sends what a stream has to the hub, until its end.
fn forward(kind: Kind, mut stream: Box<dyn Read + Send>, hub: Arc<Hub>, done: Sender<()>) {
    std::thread::spawn(move || {
        let mut bytes = vec![0; 64 << 10];
        // A terminal that nobody has open fails with EIO.
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            hub.send(&Frame::new(kind, &bytes[..count]));
        }
        drop(done);
    });
}

/// What the watchers of a command can do.
#[derive(Clone)]
struct Watched {
    hub: Arc<Hub>,
    keys: Option<Arc<File>>,
    pid: Pid,
    detach: bool,
    has_ended: Arc<AtomicBool>,
}

impl Watched {
    /// Takes watchers, one after another.
    fn accept(&self, listener: &UnixListener) {
        for stream in listener.incoming().flatten() {
            let watched = self.clone();
            std::thread::spawn(move || watched.serve(stream));
        }
    }

    /// Does what a watcher asks until it leaves.
    fn serve(&self, mut stream: UnixStream) {
        let set = stream
            .set_read_timeout(Some(SILENCE))
            .and_then(|()| stream.set_write_timeout(Some(BLOCKED)));
        let (Ok(()), Ok(to_watcher)) = (set, stream.try_clone()) else { return };
        let Ok(Some(Frame { kind: Kind::Hello, contents })) = read_frame(&mut stream) else {
            return;
        };
        let Some((after, again)) = hello(&contents) else { return };
        let Some(number) = self.hub.watch(to_watcher, after, again) else { return };
        while let Ok(Some(frame)) = read_frame(&mut stream) {
            self.obey(&frame);
        }
        // A watcher that fell silent must not take its relay for connected.
        let _ = stream.shutdown(Shutdown::Both);
        let is_last = self.hub.leave(number);
        if self.detach || !is_last {
            return;
        }
        std::thread::sleep(RETURN);
        if !self.hub.was_watched_after(number) {
            self.interrupt();
        }
    }

    fn obey(&self, frame: &Frame) {
        match (frame.kind, &self.keys) {
            // A command that has ended needs no keys.
            (Kind::Keys, Some(keys)) => drop((&**keys).write_all(&frame.contents)),
            (Kind::Size, Some(keys)) => {
                if let [a, b, c, d] = frame.contents[..] {
                    let (columns, rows) = (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]));
                    drop(terminal::resize(keys, columns, rows));
                }
            }
            (Kind::Interrupt, _) => self.interrupt(),
            _ => {}
        }
    }

    /// Lets the command end cleanly.
    fn interrupt(&self) {
        if !self.has_ended.load(Ordering::Relaxed) {
            let _ = kill_process(self.pid, Signal::INT);
        }
    }

    /// Interrupts a command that nobody watches.
    fn expect_watcher(&self) {
        std::thread::sleep(FIRST);
        if !self.hub.was_watched_after(0) {
            self.interrupt();
        }
    }
}

fn hello(contents: &[u8]) -> Option<(u64, bool)> {
    let (after, again) = contents.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*after), again == [1]))
}
