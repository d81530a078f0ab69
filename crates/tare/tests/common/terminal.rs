//! The program on a pseudo-terminal, and what it shows there.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use tare_testkit::Need;

/// `setsid` makes the pseudo-terminal the program's controlling terminal.
pub(crate) const NEEDS: [Need; 1] = [Need::Program("setsid")];
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const ENTER: &str = "\x1b[?1049h";
pub(crate) const LEAVE: &str = "\x1b[?1049l";
const SHOW_CURSOR: &str = "\x1b[?25h";

/// The program on a terminal of its own; killed on drop.
pub(crate) struct OnTerminal {
    master: OwnedFd,
    pub(crate) slave: OwnedFd,
    before: String,
    child: Child,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl OnTerminal {
    pub(crate) fn start(here: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        let slave = rustix::fs::open(&name, flags, rustix::fs::Mode::empty()).unwrap();
        size(&slave, 80, 24);
        let before = modes(&slave);
        let copy = || slave.try_clone().unwrap();
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_tare")]).args(arguments);
        command.current_dir(here).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.envs(environment.iter().copied());
        let child = command.stdin(copy()).stdout(copy()).stderr(copy()).spawn().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut from = File::from(master.try_clone().unwrap());
        let into = Arc::clone(&seen);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with an error once no process has the other side open.
            while let Ok(count @ 1..) = from.read(&mut bytes) {
                into.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        Self { master, slave, before, child, seen, reader: Some(reader) }
    }

    pub(crate) fn output(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    pub(crate) fn wait_for(&mut self, text: &str) {
        let started = Instant::now();
        while !render(&self.output()).contains(text) {
            assert_eq!(
                self.child.try_wait().unwrap(),
                None,
                "the program ended early: {}",
                self.output()
            );
            let shown = render(&self.output());
            assert!(started.elapsed() < PATIENCE, "{text:?} does not appear in:\n{shown}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn press(&self, keys: &str) {
        rustix::io::write(&self.master, keys.as_bytes()).unwrap();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for the program to exit and checks that the terminal's modes are restored. Returns the
    /// exit status and what was shown.
    pub(crate) fn end(mut self) -> (ExitStatus, String) {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < PATIENCE, "the program does not exit:\n{}", self.output());
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(modes(&self.slave), self.before, "the terminal's modes are not restored");
        // Closing the last copy of the slave ends the reader.
        let (null, reader) = (File::open("/dev/null").unwrap(), self.reader.take().unwrap());
        drop(std::mem::replace(&mut self.slave, null.into()));
        reader.join().unwrap();
        (status, self.output())
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Killing fails if the program has already exited.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Renders the screen from the output. The program writes only what changed, so words arrive in
/// pieces.
pub(crate) fn render(output: &str) -> String {
    let mut rows = vec![vec![' '; 80]; 24];
    let (mut x, mut y) = (0, 0);
    let mut rest = output.chars();
    while let Some(c) = rest.next() {
        if c != '\x1b' {
            if let Some(cell) = rows.get_mut(y).and_then(|row| row.get_mut(x)) {
                *cell = c;
            }
            x += 1;
            continue;
        }
        rest.next();
        let mut sequence = String::new();
        for c in rest.by_ref() {
            sequence.push(c);
            if c.is_ascii_alphabetic() {
                break;
            }
        }
        if let Some(place) = sequence.strip_suffix('H') {
            let (row, column) = place.split_once(';').unwrap_or(("1", "1"));
            y = row.parse::<usize>().unwrap_or(1) - 1;
            x = column.parse::<usize>().unwrap_or(1) - 1;
        } else if sequence == "2J" {
            rows = vec![vec![' '; 80]; 24];
        }
    }
    rows.into_iter().map(|row| row.into_iter().collect::<String>() + "\n").collect()
}

fn modes(terminal: &OwnedFd) -> String {
    format!("{:?}", tcgetattr(terminal).unwrap())
}

pub(crate) fn size(terminal: &OwnedFd, columns: u16, rows: u16) {
    let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(terminal, size).unwrap();
}

/// Writes a study that runs until it is interrupted.
pub(crate) fn endless(here: &Path) {
    let text = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/fake.toml");
    let text = fs::read_to_string(text).unwrap();
    let long = "rounds = 100_000\nrounds_min = 100_000\nbudget = \"168h\"";
    let text = text.replace("rounds = 40\nrounds_min = 40", long);
    assert!(text.contains(long), "the fake study has another schedule");
    fs::write(here.join("endless.toml"), text).unwrap();
}

pub(crate) const ENDLESS: [&str; 4] = ["weigh", "endless.toml", "-o", "out.tare"];

/// Splits the output into what the live screen showed and what was printed after it.
pub(crate) fn parts(shown: &str) -> (&str, &str) {
    let (_, after) = shown.split_once(ENTER).expect("the screen is entered");
    let (screen, normal) = after.split_once(LEAVE).expect("the screen is left");
    assert!(!normal.contains(ENTER) && !normal.contains(LEAVE), "once:\n{shown}");
    assert!(screen.contains(SHOW_CURSOR), "the cursor is shown again");
    (screen, normal)
}
