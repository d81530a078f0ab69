//! A private containerd for a test: its own directories and socket, ended with the test. A test
//! finds it by CONTAINERD_ADDRESS, so it runs again in a process with that variable.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tare_host::exec;

/// The variable for containerd's socket, and the default.
const VARIABLE: &str = "CONTAINERD_ADDRESS";
const SOCKET: &str = "/run/containerd/containerd.sock";

/// The directories that shims make on the host. Their path is built in (`socketRoot` in
/// runtime/v2/shim/util_unix.go of containerd).
const BUILT_IN: [&str; 2] = ["/run/containerd", "/run/containerd/s"];

struct PrivateContainerd {
    process: Child,
    folder: PathBuf,
    /// Directories of `BUILT_IN` that were not there.
    made: Vec<&'static str>,
}

impl PrivateContainerd {
    fn start(test: &str) -> Self {
        let name = format!("tare-test-containerd-{test}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(&folder).unwrap();
        let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let text = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\", \"io.containerd.internal.v1.opt\"]\n\
             [grpc]\naddress = {:?}\n[debug]\nlevel = \"warn\"\n",
            path("root"),
            path("state"),
            path("socket"),
        );
        fs::write(folder.join("config.toml"), text).unwrap();
        let made = BUILT_IN.into_iter().filter(|path| !Path::new(path).exists()).collect();
        let log = fs::File::create(folder.join("log")).unwrap();
        let process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "containerd", "--config", &path("config.toml")])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let private = Self { process, folder, made };
        let deadline = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(private.socket()).is_err() {
            let log = fs::read_to_string(private.folder.join("log")).unwrap();
            assert!(Instant::now() < deadline, "containerd does not answer:\n{log}");
            thread::sleep(Duration::from_millis(20));
        }
        private
    }

    fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Returns what of a run is left in containerd and in its directories.
    fn left(&self) -> Vec<String> {
        let mut list = Command::new("ctr");
        list.arg("--address").arg(self.socket()).args(["ns", "ls", "-q"]);
        let names = list.output().unwrap().stdout;
        let names = String::from_utf8(names).unwrap();
        let mut left: Vec<String> = names.lines().map(String::from).collect();
        for folder in ["root", "state"] {
            let tasks = self.folder.join(folder).join("io.containerd.runtime.v2.task");
            let found = fs::read_dir(tasks).into_iter().flatten().flatten();
            left.extend(found.map(|one| one.path().to_string_lossy().into_owned()));
        }
        let processes = Command::new("ps").args(["-eo", "args"]).output().unwrap().stdout;
        let processes = String::from_utf8(processes).unwrap();
        let socket = self.socket().to_string_lossy().into_owned();
        let shims = processes.lines().filter(|line| line.contains(&socket));
        left.extend(shims.map(|line| format!("tare-shim: {line}")));
        left.retain(|name| name.contains("/tare-") || name.starts_with("tare-"));
        left
    }
}

impl Drop for PrivateContainerd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
        // They are empty, or a shim has left its socket.
        let removed: Vec<_> = self.made.iter().rev().map(fs::remove_dir).collect();
        assert!(thread::panicking() || removed.iter().all(Result::is_ok), "{removed:?}");
    }
}

/// Returns whether a test must go on in this process: a containerd answers here, or none is
/// installed. Otherwise the test has run in a process that finds a private one, and has passed.
pub(crate) fn goes_on(test: &str) -> bool {
    let configured = std::env::var_os(VARIABLE).is_some() || Path::new(SOCKET).exists();
    let installed = ["containerd", "ctr", "setpriv"].iter().all(|name| exec::find(name).is_some());
    if configured || !installed || !tare_testkit::skip::is_root() {
        return true;
    }
    let _host = super::host();
    let private = PrivateContainerd::start(test);
    let status = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(VARIABLE, private.socket())
        .status()
        .unwrap();
    let log = fs::read_to_string(private.folder.join("log")).unwrap();
    assert!(status.success(), "{test} with containerd:\n{log}");
    assert_eq!(private.left(), Vec::<String>::new());
    false
}
