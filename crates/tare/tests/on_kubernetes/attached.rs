//! `attach = { pod = "NAMESPACE/NAME" }`: pods of a user that run already are read and weighed, and
//! are as before afterwards.

use std::io::{BufRead, BufReader};
use std::process::Child;

use serde_json::json;
use tare_cql::request::encode_startup;
use tare_testkit::cql::Connection;

use super::*;

/// A namespace of a user with pods. Dropping it removes it.
pub(super) struct Users {
    namespace: String,
    node: String,
}

impl Users {
    /// `None` where a test has to be skipped.
    fn start(test: &str) -> Option<(Case, Self)> {
        let case = Case::start(test)?;
        if skipped(test, &[Need::Program("curl")]) {
            return None;
        }
        let users = Self::create_namespace(&format!("shop-{}", std::process::id()), &case.node);
        Some((case, users))
    }

    /// Creates a namespace for pods on this node.
    pub(super) fn create_namespace(name: &str, node: &str) -> Self {
        let body = json!({ "metadata": { "name": name } });
        request("POST", "/api/v1/namespaces", &body.to_string());
        // Pods of a namespace are refused until it has an account.
        let account = format!("/api/v1/namespaces/{name}/serviceaccounts/default");
        until("the namespace has an account", || answer("GET", &account, "").0 == 200);
        Self { namespace: name.into(), node: node.into() }
    }

    fn pods(&self) -> String {
        format!("/api/v1/namespaces/{}/pods", self.namespace)
    }

    pub(super) fn pod(&self, name: &str) -> Value {
        let (code, text) = answer("GET", &format!("{}/{name}", self.pods()), "");
        if code == 200 { serde_json::from_str(&text).unwrap() } else { Value::Null }
    }

    /// Creates a pod with this name and specification; on the node of these pods, if that does not
    /// name another.
    pub(super) fn create(&self, name: &str, spec: &Value) {
        let mut spec = spec.clone();
        if spec["nodeName"].is_null() {
            spec["nodeSelector"] = json!({ "kubernetes.io/hostname": self.node });
        }
        let body = json!({ "metadata": { "name": name }, "spec": spec });
        request("POST", &self.pods(), &body.to_string());
    }

    /// Waits until all containers of a pod are ready, and returns the pod.
    fn ready(&self, name: &str) -> Value {
        let is_ready = || {
            let pod = self.pod(name);
            let all = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
            !all.is_empty() && all.iter().all(|one| one["ready"] == true)
        };
        until(&format!("the pod {name} is ready"), is_ready);
        // Its database listens a moment after its process runs.
        let pod = self.pod(name);
        let address = format!("{}:9042", pod["status"]["podIP"].as_str().unwrap());
        until("its database answers", || std::net::TcpStream::connect(&address).is_ok());
        pod
    }

    fn attach(&self, name: &str, words: &str) -> String {
        let Self { namespace, .. } = self;
        format!(
            "[[environment]]\nname = \"{name}\"\nattach = {{ pod = \"{namespace}/{name}\"{words} }}\n"
        )
    }
}

impl Drop for Users {
    fn drop(&mut self) {
        let path = format!("/api/v1/namespaces/{}", self.namespace);
        answer("DELETE", &path, "");
        let began = Instant::now();
        while answer("GET", &path, "").0 != 404 && began.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

pub(super) fn until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Returns the specification of a pod with a database.
fn database(resources: &Value) -> Value {
    let (mut volumes, mut mounts) = (Vec::new(), Vec::new());
    let program = env!("CARGO_BIN_EXE_tare");
    for (name, path, inside) in [
        ("program", program, "/tare"),
        ("usr", "/usr", "/usr"),
        ("lib", "/lib", "/lib"),
        ("lib64", "/lib64", "/lib64"),
    ] {
        if std::path::Path::new(path).exists() {
            volumes.push(json!({ "name": name, "hostPath": { "path": path } }));
            mounts.push(json!({ "name": name, "mountPath": inside, "readOnly": true }));
        }
    }
    volumes.push(json!({ "name": "data", "emptyDir": {} }));
    mounts.push(json!({ "name": "data", "mountPath": "/data" }));
    let words = "/tare db --data /data --smp 1 --overprovisioned yes --listen 0.0.0.0 --insecure";
    let command: Vec<&str> = words.split(' ').collect();
    json!({
        "terminationGracePeriodSeconds": 1,
        "automountServiceAccountToken": false,
        "containers": [{
            "name": "db", "image": "tare.test/pause:1", "imagePullPolicy": "Never",
            "command": command,
            "ports": [{ "containerPort": 9042 }],
            "resources": resources,
            "volumeMounts": mounts,
        }],
        "volumes": volumes,
    })
}

fn burstable() -> Value {
    database(&json!({ "requests": { "cpu": "100m" } }))
}

/// Returns the specification of a Guaranteed pod with a second container.
fn guaranteed() -> Value {
    let amounts = |cpu: &str, memory: &str| {
        let both = json!({ "cpu": cpu, "memory": memory });
        json!({ "requests": both, "limits": both })
    };
    let mut spec = database(&amounts("500m", "512Mi"));
    let sidecar = json!({ "name": "idle", "image": "tare.test/pause:1", "imagePullPolicy": "Never",
                          "resources": amounts("10m", "16Mi") });
    spec["containers"].as_array_mut().unwrap().push(sidecar);
    spec
}

/// Returns a study of these environments, the first one as its baseline.
fn study(rounds: u32, environments: &str) -> String {
    let baseline = environments.lines().nth(1).unwrap().replace("name", "baseline");
    format!(
        "name = \"s\"\n{baseline}\n[system]\nname = \"tare-db\"\n[schedule]\nwindow = \"100ms\"\n\
         lead_in = \"20ms\"\nrounds = {rounds}\nrounds_min = 1\nstop_width_percent = 0\n\
         {environments}[[workload]]\nname = \"w\"\nrows = 500\nlatency_share = 0\n"
    )
}

impl Case {
    /// Returns the command that weighs a study here.
    fn weigh(&self, text: &str, words: &[&str]) -> Command {
        fs::write(self.here.path().join("s.toml"), text).unwrap();
        let mut command = tare();
        command.arg("--state").arg(self.here.path().join("state"));
        command.args(["weigh", "s.toml"]).args(words).current_dir(self.here.path());
        command.stdin(Stdio::null());
        command
    }
}

/// Returns the names of the keyspaces of a pod's database.
fn keyspaces(pod: &Value) -> Vec<Vec<u8>> {
    let address = format!("{}:9042", pod["status"]["podIP"].as_str().unwrap());
    let mut client = Connection::open(address).unwrap();
    let version = [("CQL_VERSION", tare_cql::CQL_VERSION)];
    client.ask(|out| encode_startup(out, 0, &version)).unwrap();
    client.keyspaces()
}

/// Returns what was found of a layer of an environment.
fn layer(record: &Value, environment: &str, layer: &str) -> String {
    let all = record["environments"].as_array().unwrap();
    let found = all.iter().find(|one| one["name"] == environment).unwrap();
    let layers = found["layers"].as_array().unwrap();
    let state = layers.iter().find(|one| one["layer"] == layer);
    let state = state.unwrap_or_else(|| panic!("no layer {layer} in {layers:?}"));
    assert_eq!(state["wanted"], "as found", "{state}");
    assert_eq!(state["in_force"], true, "{state}");
    state["found"].as_str().unwrap().to_string()
}

fn good_slices(record: &Value, environment: &str) -> usize {
    let slices = record["slices"].as_array().unwrap().iter();
    slices.filter(|one| one["environment"] == environment && one["void"].is_null()).count()
}

/// One pod of a StatefulSet and a Guaranteed one are compared, and are as before.
#[test]
fn attached_pods_are_weighed_side_by_side() {
    let test = "attached::attached_pods_are_weighed_side_by_side";
    let Some((case, users)) = Users::start(test) else { return };
    let labels = json!({ "app": "db" });
    let set = json!({
        "metadata": { "name": "db" },
        "spec": {
            "serviceName": "db",
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": burstable() },
        },
    });
    let sets = format!("/apis/apps/v1/namespaces/{}/statefulsets", users.namespace);
    request("POST", &sets, &set.to_string());
    users.create("steady", &guaranteed());
    let before = [users.ready("db-0"), users.ready("steady")];
    let kept: Vec<_> = before.iter().map(keyspaces).collect();
    let environments = users.attach("db-0", "") + &users.attach("steady", ", container = \"db\"");
    let output = case.weigh(&study(3, &environments), &["--json"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let record: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let check = |name: &str, kind: &str, expect: &[&str]| {
        let found = layer(&record, name, kind);
        for part in expect {
            assert!(found.contains(part), "{name} {kind}: {found}");
        }
    };
    let pod = |name: &str| format!("pod {}/{name} on node {}", users.namespace, case.node);
    check("db-0", "runtime", &[&pod("db-0"), "Burstable", "0 restarts", "container db", "(tare)"]);
    check("steady", "runtime", &[&pod("steady"), "Guaranteed"]);
    check("db-0", "cgroup", &["burstable"]);
    check("db-0", "network", &["the pod's own, 10.244.0.", "is its own"]);
    check("db-0", "cpu", &["no quota"]);
    check("steady", "cpu", &["quota: ", "cpuset in force"]);
    check("db-0", "limits.memory", &["none"]);
    check("steady", "limits.memory", &["512 MiB"]);
    check("db-0", "storage", &["emptyDir at /data: "]);
    check("db-0", "sidecar", &["none"]);
    check("steady", "sidecar", &["idle: process "]);
    assert_ne!(layer(&record, "db-0", "cpu.weight"), layer(&record, "steady", "cpu.weight"));
    for name in ["db-0", "steady"] {
        assert!(good_slices(&record, name) >= 1, "{name}: {}", stderr(&output));
    }
    assert!(record.to_string().contains("\"not_frozen\""));
    // The record keeps what the study says, not an address that ends with the pod.
    let attached = &record["environments"][0]["spec"]["attach"];
    assert_eq!(attached["address"], "0.0.0.0:0", "{attached}");
    let after = [users.pod("db-0"), users.pod("steady")];
    assert_eq!(before, after);
    assert_eq!(after.iter().map(keyspaces).collect::<Vec<_>>(), kept);
    case.assert_clean();
}

/// Starts a long study and waits for its third round, when every environment has been loaded.
/// Returns what it prints after that.
fn start_long(case: &Case, text: &str) -> (Child, BufReader<std::process::ChildStderr>) {
    let mut command = case.weigh(text, &["-o", "long.tare"]);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let (mut line, mut all) = (String::new(), String::new());
    for _ in 0..3 {
        line.clear();
        while !line.starts_with("round") {
            line.clear();
            assert_ne!(said.read_line(&mut line).unwrap(), 0, "it ended too early: {all}");
            all += &line;
        }
    }
    (child, said)
}

/// Ends a pod in the middle of a study, which has to say why in one line.
fn ends_with(case: &Case, users: &Users, end: &dyn Fn(), expect: &str) {
    let environment = users.attach("db", "");
    let (mut child, mut said) = start_long(case, &study(100_000, &environment));
    end();
    let mut text = String::new();
    said.read_to_string(&mut text).unwrap();
    assert!(!child.wait().unwrap().success(), "{text}");
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("tare: ")).collect();
    assert_eq!(lines.len(), 1, "{text}");
    assert!(lines[0].contains(&format!("pod {}/db: {expect}", users.namespace)), "{text}");
    let record = case.record("long.tare");
    assert!(good_slices(&record, "db") >= 1, "{text}");
    fs::remove_file(case.here.path().join("long.tare")).unwrap();
    let mut clean = tare();
    clean.arg("--state").arg(case.here.path().join("state")).arg("clean").output().unwrap();
    case.assert_clean();
}

#[test]
fn attached_pod_that_ends_is_one_line() {
    let test = "attached::attached_pod_that_ends_is_one_line";
    let Some((case, users)) = Users::start(test) else { return };
    users.create("db", &burstable());
    let pod = users.ready("db");
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap().to_string();
    let id = id.rsplit('/').next().unwrap().to_string();
    let kill = || {
        let of_pod = |pid: &u32| {
            let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
            groups.contains(&id)
        };
        let pids: Vec<u32> = tare_host::process::all().into_iter().filter(of_pod).collect();
        assert!(!pids.is_empty());
        for pid in pids {
            let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
            assert!(killed.unwrap().success());
        }
    };
    ends_with(&case, &users, &kill, "its container db ");
    // The kubelet starts it again, and nothing is done to it.
    users.ready("db");
    let evict = || {
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction",
                           "metadata": { "name": "db", "namespace": users.namespace } });
        request("POST", &format!("{}/db/eviction", users.pods()), &body.to_string());
    };
    ends_with(&case, &users, &evict, "it was ");
}

#[test]
fn mistakes_about_attached_pods_are_one_line() {
    let test = "attached::mistakes_about_attached_pods_are_one_line";
    let Some((case, users)) = Users::start(test) else { return };
    users.create("steady", &guaranteed());
    let mut large = burstable();
    large["containers"][0]["resources"]["requests"]["cpu"] = json!("4000");
    users.create("large", &large);
    let mut unready = burstable();
    unready["containers"][0]["readinessProbe"] = json!({ "tcpSocket": { "port": 1 } });
    users.create("unready", &unready);
    let mut ports = burstable();
    ports["containers"][0]["ports"] = json!([{ "containerPort": 9042 }, { "containerPort": 7000 }]);
    users.create("ports", &ports);
    let mut no_port = burstable();
    no_port["containers"][0]["ports"] = json!([]);
    users.create("no-port", &no_port);
    let elsewhere = Elsewhere::create(&users);
    for name in ["steady", "ports", "no-port"] {
        users.ready(name);
    }
    until("its process runs", || {
        users.pod("unready")["status"]["containerStatuses"][0]["state"]["running"].is_object()
    });
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success());
        let text = stderr(&output);
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("tare: ")).collect();
        assert_eq!(lines.len(), 1, "{text}");
        let _ = fs::remove_file(case.here.path().join("s.tare"));
        lines[0].to_string()
    };
    let check = |name: &str, words: &str, expect: &str| {
        let line = said(&mut case.weigh(&study(1, &users.attach(name, words)), &[]));
        assert!(line.contains(expect), "{line}");
    };
    check("nobody", "", "there is no pod nobody in the namespace shop-");
    check("steady", "", "has several containers, db, idle; write");
    check("steady", ", container = \"web\"", "has no container web; its containers are db, idle");
    check("large", "", "is not ready: it has no node: ");
    check("unready", "", "is not ready: its container db runs, and its probe says");
    check("ports", "", "has the ports 9042, 7000; write that of the system: port = N");
    check("no-port", "", "names no port; write that of the system: port = N");
    check("no-port", ", port = 9", "does not answer on 10.244.0.");
    check(elsewhere.pod, "", "runs on the node tare-elsewhere, which is not this host; take the");
    let mut powerless = case.weigh(&study(1, &users.attach("steady", ", container = \"db\"")), &[]);
    let admin = std::env::var("KUBECONFIG").unwrap();
    powerless.env("KUBECONFIG", admin.replace("access/admin", "access/powerless"));
    let line = said(&mut powerless);
    assert!(line.contains("cannot get resource \"pods\""), "{line}");
    case.assert_clean();
}

/// A node that does not exist, and a pod that the API says to run there.
struct Elsewhere {
    pod: &'static str,
    /// The path of the pod in the API.
    path: String,
}

impl Elsewhere {
    const NODE: &'static str = "/api/v1/nodes/tare-elsewhere";

    fn create(users: &Users) -> Self {
        let node = json!({ "metadata": { "name": "tare-elsewhere" } });
        request("POST", "/api/v1/nodes", &node.to_string());
        let made = Self { pod: "far", path: format!("{}/far", users.pods()) };
        let mut spec = burstable();
        spec["nodeName"] = json!("tare-elsewhere");
        users.create(made.pod, &spec);
        let container = json!({
            "name": "db", "image": "", "imageID": "", "ready": true, "restartCount": 0,
            "containerID": "containerd://0123456789abcdef0123456789abcdef", "state": { "running": {} },
        });
        let status = json!({ "status": { "phase": "Running", "podIP": "10.9.9.9",
            "podIPs": [{ "ip": "10.9.9.9" }], "containerStatuses": [container] } });
        request("PATCH", &format!("{}/status", made.path), &status.to_string());
        made
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        // No kubelet ends it.
        answer("DELETE", &self.path, r#"{"gracePeriodSeconds":0}"#);
        answer("DELETE", Self::NODE, "");
    }
}

/// The command on the node has an account that may get pods, and nothing else.
#[test]
fn attached_pod_is_weighed_through_the_api() {
    let test = "attached::attached_pod_is_weighed_through_the_api";
    let Some((case, users)) = Users::start(test) else { return };
    users.create("db", &burstable());
    let before = users.ready("db");
    fs::write(case.here.path().join("s.toml"), study(2, &users.attach("db", ""))).unwrap();
    let printed = case.run(&["weigh", "s.toml", "--print-manifests"]);
    assert!(printed.status.success(), "{}", stderr(&printed));
    let text = stdout(&printed);
    let manifests = text.split("---\n").filter(|one| !one.is_empty());
    let manifests = manifests.map(|one| serde_json::from_str::<Value>(one).unwrap());
    let roles: Vec<Value> = manifests.filter(|one| one["kind"] == "ClusterRole").collect();
    let of_account = json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]);
    assert!(roles.iter().any(|role| role["rules"] == of_account), "{text}");
    let weighed = case.run(&["weigh", "s.toml", "-o", "s.tare"]);
    assert!(weighed.status.success(), "{}", stderr(&weighed));
    let record = case.record("s.tare");
    assert!(good_slices(&record, "db") >= 1, "{}", stderr(&weighed));
    assert_eq!(users.pod("db"), before);
    case.run(&["clean", "--programs"]);
    case.assert_clean();
}
