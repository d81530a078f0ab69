//! Tests with the real irqbalance, if it is installed. The test starts it with an interval that
//! never passes, so that it moves nothing, and controls it through both kinds of socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tare_testkit::{Machine, Reason, skip};
use tare_tune::irqbalance::{self, Irqbalance, IrqbalanceError};
use tare_tune::plan::{Action, Options};
use tare_tune::planner::plan;
use tare_tune::snapshot::Snapshot;

const FOLDER: &str = "/run/irqbalance";

/// Interrupts that are banned by the command line.
const BANNED: [u32; 2] = [24, 31];

/// A running irqbalance. Dropping it ends the process, removes the folder of the socket if the test
/// created it, and restores the CPUs of every interrupt.
struct Started {
    child: Child,
    made_folder: bool,
    affinity: BTreeMap<String, String>,
}

impl Started {
    fn new(with_folder: bool) -> Self {
        let affinity = affinity();
        let made_folder = with_folder && fs::create_dir(FOLDER).is_ok();
        let child = Command::new("irqbalance")
            .args(["--foreground", "--interval=600"])
            .args(BANNED.map(|irq| format!("--banirq={irq}")))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, made_folder, affinity }
    }

    /// Waits for its socket.
    fn socket(&self) -> Irqbalance {
        let start = Instant::now();
        loop {
            match Irqbalance::of(self.child.id()) {
                Ok(irqbalance) => return irqbalance,
                Err(error) if start.elapsed() > Duration::from_secs(10) => panic!("{error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        if self.made_folder {
            let _ = fs::remove_file(format!("{FOLDER}/irqbalance{}.sock", self.child.id()));
            let _ = fs::remove_dir(FOLDER);
        }
        for (path, cpus) in affinity() {
            if let Some(before) = self.affinity.get(&path).filter(|before| **before != cpus) {
                let _ = fs::write(path, before);
            }
        }
    }
}

fn affinity() -> BTreeMap<String, String> {
    let folders = fs::read_dir("/proc/irq").into_iter().flatten().flatten();
    let files = folders.map(|folder| format!("{}/smp_affinity", folder.path().display()));
    files.filter_map(|path| Some((path.clone(), fs::read_to_string(path).ok()?))).collect()
}

/// Returns why the test cannot run here.
fn missing() -> Option<Reason> {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    if !rustix::process::geteuid().is_root() {
        Some(Machine::NotRoot.into())
    } else if Command::new("irqbalance").arg("--version").output().is_err() {
        Some(Reason::not_installed("irqbalance"))
    } else if online.trim() == "0" {
        Some(Machine::OneCpu.into())
    } else {
        None
    }
}

#[test]
fn controls_real_irqbalance() {
    if let Some(reason) = missing() {
        return skip("controls_real_irqbalance", reason);
    }
    let before = affinity();
    if !Path::new(FOLDER).exists() {
        let started = Started::new(false);
        let irqbalance = started.socket();
        assert!(irqbalance.address().starts_with('@'), "{}", irqbalance.address());
        converse(&irqbalance);
    }
    {
        let started = Started::new(true);
        let irqbalance = started.socket();
        let path = format!("{FOLDER}/irqbalance{}.sock", started.child.id());
        assert_eq!(irqbalance.address(), path);
        converse(&irqbalance);
        describe(&irqbalance);
        plan_and_apply(&irqbalance);
    }
    assert_eq!(affinity(), before, "irqbalance moved interrupts");
}

fn converse(irqbalance: &Irqbalance) {
    let bans = || irqbalance.setup().unwrap().banned_irqs;
    let setup = irqbalance.setup().unwrap();
    assert_eq!((setup.interval_s, setup.banned_irqs), (600, BANNED.to_vec()));
    irqbalance.set_bans(&[39, 38]).unwrap();
    assert_eq!(bans(), [38, 39]);
    irqbalance.set_bans(&[]).unwrap();
    assert!(bans().is_empty());
    // As many as fit; a longer message would be cut in the middle of a number.
    let mut many: Vec<u32> = (100..).take(120).collect();
    irqbalance.set_bans(&many).unwrap();
    assert_eq!(bans(), many);
    many.extend(1000..1020);
    let refused = irqbalance.set_bans(&many);
    assert!(matches!(refused, Err(IrqbalanceError::TooMany { count: 140 })), "{refused:?}");
    assert_eq!(bans().len(), 120);
    irqbalance.set_bans(&BANNED).unwrap();
    assert_eq!(bans(), BANNED);
}

/// Checks the files of a snapshot, if no other irqbalance has a lower process id.
fn describe(irqbalance: &Irqbalance) {
    let files: BTreeMap<String, String> = irqbalance::describe().into_iter().collect();
    let file = |name: &str| files.get(&format!("/tare/irqbalance/{name}")).cloned();
    if file("pid") != Some(irqbalance.pid().to_string()) {
        return skip("describe", Machine::DaemonOfHost("irqbalance"));
    }
    assert_eq!(file("trouble"), None);
    assert_eq!(file("socket"), Some(irqbalance.address()));
    assert_eq!(file("banned-irqs").as_deref(), Some("24 31"));
    assert!(file("setup").unwrap().starts_with("SLEEP 600 "));
    assert_eq!(irqbalance::bans().unwrap(), BANNED);
}

/// The plan of this machine adds the interrupts of its devices to the bans; once they are banned it
/// has nothing to change.
fn plan_and_apply(irqbalance: &Irqbalance) {
    let options = Options { only: vec!["irqbalance".into()], ..Options::default() };
    let action = || {
        let snapshot = Snapshot::take(Path::new("/"));
        if snapshot.read("/tare/irqbalance/pid") != Some(&irqbalance.pid().to_string()) {
            return None;
        }
        plan(&snapshot, &options).unwrap().items.pop().map(|item| item.action)
    };
    let change = match action() {
        Some(Action::Change(change)) => change,
        Some(other) => panic!("{other:?}"),
        None => {
            return skip("plan_and_apply", Machine::NoInterrupts);
        }
    };
    let wanted: Vec<u32> = change.wanted.split(' ').map(|irq| irq.parse().unwrap()).collect();
    // Bans of interrupts that this machine does not have are dropped.
    let here = |irq: &&u32| Path::new(&format!("/proc/irq/{irq}")).exists();
    assert!(BANNED.iter().filter(here).all(|irq| wanted.contains(irq)), "{wanted:?}");
    assert!(wanted.iter().any(|irq| !BANNED.contains(irq)), "{wanted:?}");
    irqbalance::set_bans(&wanted).unwrap();
    assert_eq!(action(), Some(Action::AlreadySet { now: change.wanted }));
}
