//! `attach` with `hosts`: a system that runs already on another machine, with its client here.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};

use tare_testkit::database::until;
use tare_testkit::skipped;
use tare_testkit::ssh_bed::SshBed;

use super::bed::{Bed, json, study, wait_for_round};
use super::{NEEDS, has_doubt, layer};
use crate::common::{run_in, stderr, stdout, tare};

const MACHINE: &str = "db1";
const PORT: &str = "6379";

/// A machine with a Redis of a user. Both end with the test.
struct There {
    machines: SshBed,
    // After the machines: it has the host for itself.
    here: Bed,
    pid: String,
    /// Its answer to DBSIZE before any load.
    size: String,
}

impl There {
    fn start(test: &str) -> Option<Self> {
        if skipped(test, &NEEDS) {
            return None;
        }
        let here = Bed::new();
        let machines = SshBed::start(test, &[MACHINE])?;
        let redis = "redis-server --daemonize yes --pidfile /run/redis.pid --protected-mode no \
                     --save '' --dir /run";
        machines.run(MACHINE, "sh", &["-c", &format!("{redis} --port {PORT}")]);
        let ask =
            |words: &str| machines.command(MACHINE, "redis-cli").args(words.split(' ')).output();
        let size = until("Redis answers", || {
            let done = ask("SET mine:1 hello").unwrap();
            (done.status.success() && stdout(&done).trim() == "OK").then(|| ask("DBSIZE").unwrap())
        });
        let (size, pid) = (stdout(&size), machines.run(MACHINE, "cat", &["/run/redis.pid"]));
        Some(Self { here, pid: pid.trim().into(), size, machines })
    }

    /// Returns a study that attaches to a process of the machine at an address of it.
    fn study(&self, pid: &str, address: &str) -> String {
        let environment = format!(
            "[[environment]]\nname = \"mine\"\nattach = {{ pid = {pid}, address = {address:?} }}\n"
        );
        let host = format!("[system]\nhosts = [\"ssh:{MACHINE}\"]\n");
        study("redis", &environment).replace("[system]\n", &host)
    }

    fn address(&self) -> String {
        format!("{}:{PORT}", self.machines.ip(MACHINE))
    }

    fn weigh(&self, text: &str, words: &[&str]) -> Command {
        fs::write(self.here.path().join("s.toml"), text).unwrap();
        let mut command = tare();
        command.args(["weigh", "s.toml", "--state"]).arg(self.here.path().join("state"));
        command.args(words).current_dir(self.here.path());
        command.env("TARE_SSH_CONFIG", self.machines.config());
        command
    }

    /// Starts a study that would go on for minutes, and returns it once it has measured a round.
    fn weigh_long(&self) -> (std::process::Child, impl Read) {
        let text =
            self.study(&self.pid, &self.address()).replace("rounds = 3\n", "rounds = 5000\n");
        let mut command = self.weigh(&text, &["-o", "long.tare"]);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let said = wait_for_round(&mut child);
        (child, said)
    }

    fn size(&self) -> String {
        self.machines.run(MACHINE, "redis-cli", &["DBSIZE"])
    }

    /// Checks that the same process has the keys of the user and no others, and that no agent and
    /// no run is left beside it.
    fn assert_as_before(&self) {
        assert_eq!(self.size(), self.size);
        self.machines.run(MACHINE, "test", &["-e", &format!("/proc/{}", self.pid)]);
        until("the agent ends", || {
            self.machines.processes(MACHINE, "host-agent").is_empty().then_some(())
        });
        let words = ["/var/lib/tare", "-path", "*/runs/*"];
        assert_eq!(self.machines.run(MACHINE, "find", &words), "");
    }
}

#[test]
fn redis_of_another_machine_is_measured() {
    let Some(there) = There::start("redis_of_another_machine_is_measured") else { return };
    let text = there.study(&there.pid, &there.address());
    let output = there.weigh(&text, &["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    there.assert_as_before();
    let report = json(&stdout(&output));
    let runtime = format!("process {} (redis-server)", there.pid);
    assert_eq!(layer(&report, "runtime"), ("as found".into(), runtime));
    assert!(!has_doubt(&report, "client_shares_cpus"), "{report}");
    assert!(report.to_string().contains("node_1_cpu_ns"), "{report}");
    let start = "sleep 600 >/dev/null 2>&1 & echo $!";
    let other = there.machines.run(MACHINE, "sh", &["-c", start]);
    for (pid, address, expect) in [
        (other.trim(), there.address(), "(redis-server) answers on"),
        ("4194303", there.address(), "there is no process 4194303"),
        (&*there.pid, format!("{}:1", there.machines.ip(MACHINE)), "answer"),
        (&*there.pid, format!("127.0.0.1:{PORT}"), "at which this host reaches ssh:db1"),
    ] {
        let _ = fs::remove_file(there.here.path().join("s.tare"));
        let output = there.weigh(&there.study(pid, &address), &[]).output().unwrap();
        assert!(!output.status.success(), "{pid} at {address} is accepted");
        let said = stderr(&output);
        let errors: Vec<&str> = said.lines().filter(|line| line.starts_with("tare: ")).collect();
        assert!(errors.len() == 1 && errors[0].contains(expect), "{expect:?} is not in {said}");
    }
    there.assert_as_before();
}

#[test]
fn redis_of_another_machine_that_ends_ends_the_study() {
    let test = "redis_of_another_machine_that_ends_ends_the_study";
    let Some(there) = There::start(test) else { return };
    let (mut child, mut output) = there.weigh_long();
    there.machines.run(MACHINE, "kill", &["-9", &there.pid]);
    let mut said = String::new();
    output.read_to_string(&mut said).unwrap();
    assert!(!child.wait().unwrap().success(), "{said}");
    let expect = format!("ssh:{MACHINE}: pid {}: its process {} has ended", there.pid, there.pid);
    assert_eq!(said.lines().filter(|line| line.contains(&expect)).count(), 1, "{said}");
}

#[test]
fn clean_after_kill_removes_the_rows_on_another_machine() {
    let test = "clean_after_kill_removes_the_rows_on_another_machine";
    let Some(there) = There::start(test) else { return };
    let (mut child, _output) = there.weigh_long();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_ne!(there.size(), there.size, "the load has left no rows");
    let state = there.here.path().join("state");
    let clean = run_in(there.here.path(), ["clean", "--state", state.to_str().unwrap()]);
    assert!(clean.status.success(), "{}{}", stdout(&clean), stderr(&clean));
    there.assert_as_before();
}
