//! `--tare-image`: the way to a node, and loaders, by the program in an image of `tare image`,
//! without anything of the node.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use tare_kube::{PullPolicy, TareImage};

use super::loaders::write_study;
use super::*;

/// The name under which the tests load the image.
pub(super) const NAME: &str = "tare.test/tare:1";

/// Returns a kubelet in the network namespace of this process, and its containerd's socket.
fn kubelet() -> (u32, PathBuf) {
    let network = |process: &str| fs::read_link(format!("/proc/{process}/ns/net")).ok();
    let own = network("self");
    let is_kubelet = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "kubelet" && network(&pid.to_string()) == own
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let access = PathBuf::from(std::env::var_os("KUBECONFIG").unwrap());
    let folder = access.parent().and_then(Path::parent).unwrap();
    (pids.find(is_kubelet).unwrap(), folder.join("containerd.sock"))
}

/// An image on the node, by its name. Dropping it removes it.
pub(super) struct Loaded(&'static str);

impl Loaded {
    fn ctr(words: &[&str]) -> Output {
        let (pid, socket) = kubelet();
        let mut command = Command::new("nsenter");
        command.args(["--target", &pid.to_string(), "--mount", "--", "ctr", "--address"]);
        command.arg(socket).args(["--namespace", "k8s.io", "images"]).args(words);
        command.output().unwrap()
    }

    /// Makes the image of this program and loads it, as users do.
    pub(super) fn load(folder: &Path) -> Self {
        Self::of_program(Path::new(env!("CARGO_BIN_EXE_tare")), NAME, folder)
    }

    fn of_program(program: &Path, name: &'static str, folder: &Path) -> Self {
        let archive = folder.join("tare.tar");
        let file = fs::File::create(&archive).unwrap();
        let made = Command::new(program).args(["image", "--name", name]).stdout(file).output();
        let made = made.unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        let loaded = Self::ctr(&["import", archive.to_str().unwrap()]);
        assert!(loaded.status.success(), "{}", stderr(&loaded));
        let listed = stdout(&Self::ctr(&["list", "--quiet"]));
        assert!(listed.lines().any(|line| line == name), "{listed}");
        Self(name)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        Self::ctr(&["remove", "--sync", self.0]);
    }
}

/// The shells of the node, and what the pods of the pause program's image run of it, are no
/// programs any more. Dropping this brings them back.
pub(super) struct WithoutShell(Vec<PathBuf>);

impl WithoutShell {
    pub(super) fn hide() -> Self {
        let all = ["sh", "dash", "bash", "busybox", "nsenter", "sleep"];
        let found = all.iter().filter_map(|name| fs::canonicalize(format!("/usr/bin/{name}")).ok());
        let mut paths: Vec<PathBuf> = found.collect();
        paths.sort();
        paths.dedup();
        let mut hidden = Self(Vec::new());
        for path in paths {
            let mounted = Self::on_node(&["mount", "--bind", "/dev/null", path.to_str().unwrap()]);
            assert!(mounted.status.success(), "{}", stderr(&mounted));
            hidden.0.push(path);
        }
        let tried = Self::on_node(&["/bin/sh", "-c", "exit 0"]);
        assert!(!tried.status.success(), "the node has a shell");
        hidden
    }

    fn on_node(words: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--target", &kubelet().0.to_string(), "--mount", "--"]).args(words);
        command.output().unwrap()
    }
}

impl Drop for WithoutShell {
    fn drop(&mut self) {
        for path in &self.0 {
            Self::on_node(&["umount", path.to_str().unwrap()]);
        }
    }
}

/// Returns a line that says why a command is refused.
fn refused(case: &Case, words: &[&str]) -> String {
    let output = case.run(words);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    eprintln!("{said}");
    said
}

#[test]
fn node_without_the_image_says_what_to_do() {
    let Some(case) = Case::start("image::node_without_the_image_says_what_to_do") else { return };
    let said = refused(&case, &["doctor", "--tare-image", "tare.test/none:1"]);
    assert!(said.contains("ErrImageNeverPull") && said.contains("load it on the node"), "{said}");
    case.assert_clean();
    // Nothing listens there.
    let nowhere = ["doctor", "--tare-image", "127.0.0.1:1/tare:1", "--tare-image-pull", "always"];
    let said = refused(&case, &nowhere);
    assert!(said.contains("ErrImagePull") && said.contains("push it where the node"), "{said}");
    case.assert_clean();
    // An image of another program.
    let said = refused(&case, &["doctor", "--tare-image", "tare.test/pause:1"]);
    assert!(said.contains("check that tare.test/pause:1 is what tare image"), "{said}");
    case.assert_clean();
}

#[test]
fn manifests_name_the_image() {
    let Some(case) = Case::start("image::manifests_name_the_image") else { return };
    write_study(&case, 1, &case.node, &[("native", "process", "host")]);
    let words = ["weigh", "small.toml", "--print-manifests", "--tare-image", NAME];
    let printed = case.run(&[&words[..], &["--tare-image-pull", "if-not-present"]].concat());
    assert!(printed.status.success(), "{}", stderr(&printed));
    let text = stdout(&printed);
    let manifests = text.split("---\n").filter(|one| !one.is_empty());
    let manifests: Vec<Value> = manifests.map(|one| serde_json::from_str(one).unwrap()).collect();
    let pods: Vec<&Value> = manifests.iter().filter(|one| one["kind"] == "Pod").collect();
    assert_eq!(pods.len(), 2, "{text}");
    for pod in pods {
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], NAME);
        assert_eq!(container["imagePullPolicy"], "IfNotPresent");
        assert_eq!(pod["spec"]["volumes"], json!([]));
    }
}

#[test]
fn image_of_another_build_is_refused() {
    let Some(case) = Case::start("image::image_of_another_build_is_refused") else { return };
    if skipped("image::image_of_another_build_is_refused", &[Need::Program("ctr")]) {
        return;
    }
    let other = case.here.path().join("other");
    fs::copy(env!("CARGO_BIN_EXE_tare"), &other).unwrap();
    // A byte after the end of a program changes nothing but its hash.
    let mut file = fs::OpenOptions::new().append(true).open(&other).unwrap();
    file.write_all(b"x").unwrap();
    drop(file);
    let name = "tare.test/other:1";
    let _loaded = Loaded::of_program(&other, name, case.here.path());
    let said = refused(&case, &["doctor", "--tare-image", name]);
    assert!(said.contains("has another program") && said.contains("make it again"), "{said}");
    case.assert_clean();
    // It has copied itself to the node, where nobody starts it.
    let cleaned = case.run(&["clean", "--programs"]);
    assert!(
        stdout(&cleaned).contains("a copy of Tare"),
        "{}{}",
        stdout(&cleaned),
        stderr(&cleaned)
    );
}

/// The pod has nothing of the node, and what is started through it is on the node.
#[test]
fn program_of_the_image_is_the_way_to_the_node() {
    let test = "image::program_of_the_image_is_the_way_to_the_node";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("ctr"), Need::Program("curl")]) {
        return;
    }
    let _loaded = Loaded::load(case.here.path());
    let run = format!("{:08x}", std::process::id());
    let namespace = format!("tare-{run}-n0");
    let access = Access::find().unwrap();
    let image = TareImage { name: NAME.into(), pull: PullPolicy::Never };
    let made = case.cluster.create_node_pod(&access, &namespace, &run, &case.node, Some(&image));
    let said = made.map_err(|error| error.to_string()).and_then(|pod| {
        let start = |words: &[&str]| -> Result<(String, Option<i32>), String> {
            let (stdin, nothing) = std::io::pipe().unwrap();
            drop(nothing);
            let ((mut output, stdout), (mut errors, stderr)) =
                (std::io::pipe().unwrap(), std::io::pipe().unwrap());
            let streams = Streams { stdin, stdout, stderr };
            let process = pod.start(words[0], &words[1..], streams);
            let process = process.map_err(|error| error.to_string())?;
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            errors.read_to_string(&mut text).unwrap();
            Ok((text, process.wait(None).map_err(|error| error.to_string())?))
        };
        let look =
            "cat /proc/self/oom_score_adj /proc/self/cgroup; readlink /proc/self/ns/mnt; exit 7";
        Ok((mounts_of_the_pod(), start(&["sh", "-c", look])?, start(&["no-such-program"])?))
    });
    case.cluster.delete_namespace(&namespace, &run).unwrap();
    let (mounts, (text, code), (missing, missing_code)) = said.unwrap();
    assert_eq!(code, Some(7), "{text}");
    assert_eq!(text.lines().next(), Some("0"), "{text}");
    assert!(!text.contains("kubepods"), "{text}");
    let of_node = fs::read_link(format!("/proc/{}/ns/mnt", kubelet().0)).unwrap();
    assert_eq!(text.lines().last().map(Path::new), Some(&*of_node), "{text}");
    assert!(missing.contains("cannot start no-such-program on the node"), "{missing}");
    assert_eq!(missing_code, Some(4), "{missing}");
    for directory in ["/usr", "/lib", "/lib64", "/bin", "/sbin"] {
        let has = |line: &&str| line.split(' ').nth(4).is_some_and(|at| at.starts_with(directory));
        assert_eq!(mounts.lines().find(has), None, "{mounts}");
    }
    case.assert_clean();
}

/// Returns the mounts of the process that keeps the pod running.
fn mounts_of_the_pod() -> String {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let waits = |path: &PathBuf| {
        fs::read(path.join("cmdline")).is_ok_and(|line| line == b"/tare\0pod\0wait\0")
    };
    let process = entries.map(|entry| entry.path()).find(waits).unwrap();
    assert!(!process.join("root/usr").exists() && !process.join("root/bin").exists());
    fs::read_to_string(process.join("mountinfo")).unwrap()
}

/// A study on a node that has no shell, which a pod of the same image loads.
#[test]
fn study_runs_on_a_node_without_a_shell() {
    let test = "image::study_runs_on_a_node_without_a_shell";
    let Some(case) = Case::start(test) else { return };
    if skipped(test, &[Need::Program("ctr")]) {
        return;
    }
    let _loaded = Loaded::load(case.here.path());
    let _without = WithoutShell::hide();
    let said = refused(&case, &["doctor"]);
    assert!(said.contains("a node without sleep, sh and nsenter below /usr needs --tare-image"));
    case.assert_clean();
    let image = ["--tare-image", NAME];
    let checked = case.run(&[&["doctor"], &image[..]].concat());
    assert!(checked.status.success(), "{}", stderr(&checked));
    assert!(stdout(&checked).contains("runc"), "{}", stdout(&checked));
    case.assert_clean();
    write_study(&case, 1, &case.node, &[("native", "process", "host")]);
    let weighed = case.run(&[&["weigh", "small.toml"], &image[..]].concat());
    let said = stderr(&weighed);
    assert_eq!(weighed.status.code(), Some(4), "{said}");
    assert!(said.contains("it is started by /bin/sh, which this host does not have"), "{said}");
    // The first one is the baseline.
    let environments = [("native", "kubernetes", "host"), ("pod", "kubernetes", "bridge")];
    write_study(&case, 2, &case.node, &environments);
    let weighed = case.run(&[&["weigh", "small.toml", "-o", "small.tare"], &image[..]].concat());
    let said = stderr(&weighed);
    assert!(weighed.status.success(), "{said}");
    case.assert_clean();
    case.assert_pod_measured("small.tare", &said);
    let record = case.record("small.tare");
    let loaded = |slice: &&Value| {
        let parts = slice["loaders"].as_array();
        slice["void"].is_null() && parts.is_some_and(|parts| parts.len() == 1)
    };
    let slices = record["slices"].as_array().unwrap();
    assert!(slices.iter().filter(loaded).count() >= 2, "{said}");
    // The tools of the node are not in the pod.
    let loader = format!("pod:{}", case.node);
    let asked = case.run_here(&[&["doctor", "--loader", &loader], &image[..]].concat());
    assert!(stdout(&asked).contains("missing"), "{}{}", stdout(&asked), stderr(&asked));
    let cleaned = case.run(&[&["clean", "--programs"], &image[..]].concat());
    assert!(
        stdout(&cleaned).contains("a copy of Tare"),
        "{}{}",
        stdout(&cleaned),
        stderr(&cleaned)
    );
    case.assert_clean();
}
