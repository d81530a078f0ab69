//! Probes on this machine observe work of a known size.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use super::*;
use tare_testkit::{Machine, Reason, skip};

/// The counters of some probes during `work`.
pub(super) fn seen(names: &[&str], scope: &Scope, work: impl FnOnce()) -> Vec<(String, f64)> {
    let roots = Roots::default();
    let cpus = cpus_of("0");
    let mut probes: Vec<_> =
        names.iter().map(|name| kind(name).open(&roots, &cpus).unwrap()).collect();
    for probe in &mut probes {
        probe.prepare(scope).unwrap();
        probe.begin().unwrap();
    }
    work();
    let counters = probes.iter_mut().flat_map(|probe| probe.end().unwrap());
    counters.map(|counter| (counter.name, counter.value)).collect()
}

pub(super) fn of(seen: &[(String, f64)], name: &str) -> f64 {
    let found = seen.iter().find(|(known, _)| known == name);
    found.unwrap_or_else(|| panic!("no {name} in {seen:?}")).1
}

pub(super) fn system(pid: u32) -> Scope {
    Scope { system: vec![pid], ..Scope::default() }
}

/// A child process that is killed on drop.
pub(super) struct KillOnDrop(pub(super) Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn sleeps_are_voluntary_switches() {
    let sleeps = 50;
    // A thread that starts inside the slice is found at its end if it still runs.
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let seen = seen(&["switches", "run_queue"], &system(std::process::id()), || {
        std::thread::spawn(move || {
            for _ in 0..sleeps {
                std::thread::sleep(Duration::from_micros(200));
            }
            wait.recv().ok();
        });
        std::thread::sleep(Duration::from_millis(100));
    });
    drop(done);
    assert!(of(&seen, "system_switches_voluntary") >= f64::from(sleeps), "{seen:?}");
    assert!(of(&seen, "system_run_queue_wait_ns") > 0.0, "{seen:?}");
}

#[test]
fn busiest_thread_is_found_among_idle_ones() {
    let start = |script: &str| {
        KillOnDrop(Command::new("sh").args(["-c", script]).stdout(Stdio::null()).spawn().unwrap())
    };
    let (busy, idle) = (start("while :; do :; done"), start("sleep 60"));
    let client = vec![idle.0.id(), busy.0.id()];
    let scope = Scope { client, ..system(idle.0.id()) };
    let seen = seen(&["run_queue"], &scope, || std::thread::sleep(Duration::from_millis(200)));
    let share = |part: &str| of(&seen, &format!("{part}_busiest_thread_share"));
    assert!(share("client") > 0.0 && share("client") <= 1.0, "{seen:?}");
    assert!(share("system") < share("client") / 2.0, "{seen:?}");
}

#[test]
fn touched_pages_are_minor_faults_and_memory() {
    let bytes = 32 << 20;
    let mut kept = Vec::new();
    let seen = seen(&["page_faults", "memory"], &system(std::process::id()), || {
        let mut pages = vec![0u8; bytes];
        for page in pages.chunks_mut(4096) {
            page[0] = 1;
        }
        kept = pages;
    });
    assert_eq!(kept.iter().filter(|byte| **byte == 1).count(), bytes / 4096);
    // A huge page takes one fault instead of 512.
    assert!(of(&seen, "system_page_faults_minor") >= (bytes / (2 << 20)) as f64, "{seen:?}");
    assert!(of(&seen, "system_rss_anon_bytes_at_end") >= bytes as f64, "{seen:?}");
}

/// Sends 1 MB over loopback.
fn talk() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut all).unwrap();
        all.len()
    });
    TcpStream::connect(address).unwrap().write_all(&vec![7; 1 << 20]).unwrap();
    assert_eq!(reader.join().unwrap(), 1 << 20);
}

#[test]
fn counts_loopback_bytes() {
    let seen = seen(&["tcp", "net_devices"], &system(std::process::id()), talk);
    assert!(of(&seen, "system_net_lo_in_bytes") >= f64::from(1 << 20), "{seen:?}");
    assert!(of(&seen, "system_tcp_segments_out") >= 16.0, "{seen:?}");
    assert!(of(&seen, "system_tcp_segments_in") >= 16.0, "{seen:?}");
}

/// The traffic of this namespace does not count for a process in another namespace.
#[test]
fn reads_files_of_other_namespace() {
    let test = "reads_files_of_other_namespace";
    let child = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo up; read x"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(child) = child else {
        return skip(test, Reason::not_installed("unshare"));
    };
    let mut child = KillOnDrop(child);
    let mut up = [0; 3];
    if child.0.stdout.as_mut().unwrap().read_exact(&mut up).is_err() {
        return skip(test, Machine::NotRoot);
    }
    let own = vec![std::process::id()];
    let scope = Scope { system: vec![child.0.id()], client: own, ..Scope::default() };
    let seen = seen(&["tcp", "net_devices"], &scope, talk);
    assert_eq!(of(&seen, "system_tcp_segments_in"), 0.0);
    assert_eq!(of(&seen, "system_net_in_bytes"), 0.0);
    assert!(of(&seen, "client_tcp_segments_in") >= 16.0);
}

#[test]
fn synced_writes_reach_disk() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let scope = Scope { data: vec![file.path().parent().unwrap().into()], ..Scope::default() };
    let seen = seen(&["disk"], &scope, || {
        file.as_file().write_all(&vec![1; 1 << 20]).unwrap();
        file.as_file().sync_all().unwrap();
    });
    // A directory in memory has no disk.
    if !seen.is_empty() {
        assert!(of(&seen, "disk_written_bytes") >= f64::from(1 << 20), "{seen:?}");
        assert!(of(&seen, "disk_writes") >= 1.0, "{seen:?}");
    }
}

#[test]
fn ended_process_keeps_last_reading() {
    let child = Command::new("sleep").arg("60").spawn().unwrap();
    let mut child = KillOnDrop(child);
    let pid = child.0.id();
    let seen = seen(&["switches", "page_faults", "run_queue"], &system(pid), || {
        child.0.kill().unwrap();
        child.0.wait().unwrap();
    });
    assert!(seen.iter().all(|(_, value)| *value == 0.0), "{seen:?}");
}
