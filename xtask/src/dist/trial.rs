//! Runs every package where it would be used: the tarball on an empty root, the Debian package in a
//! root of its own, the image under runc and docker. What cannot run here is skipped by name.
//!
//! Needs root. Everything that it makes lies in a temporary folder, besides a container and an
//! image of docker's, which are removed.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::{Release, image};
use crate::say;

/// CAP_SYS_RESOURCE of capabilities(7): `docker run --privileged` asks for every capability.
const SYS_RESOURCE: u32 = 24;

/// The name of the emulator in the root of a trial.
const EMULATOR: &str = "emulator";

/// Runs one package in a folder of its own; returns what was skipped and why, if anything was.
type Trial<'a> = dyn Fn(&Path) -> anyhow::Result<Option<&'static str>> + 'a;

pub(super) fn run(release: &Release, tar: &Path, deb: &Path, oci: &Path) -> anyhow::Result<()> {
    let scratch = tempfile::tempdir().context("cannot make a temporary folder")?;
    let root = scratch.path();
    let trials: [(&str, &str, &Trial<'_>); 4] = [
        ("tarball on an empty root", "chroot", &|root| tarball(release, tar, root).map(|()| None)),
        ("Debian package", "dpkg", &|root| package(release, deb, root).map(|()| None)),
        ("image under runc", "runc", &|root| under_runc(release, oci, root).map(|()| None)),
        ("image under docker", "docker", &|_| under_docker(release, oci)),
    ];
    let mut failed = Vec::new();
    for (at, (name, program, trial)) in trials.into_iter().enumerate() {
        if release.emulator.is_some() && matches!(program, "runc" | "docker") {
            say(&format!("skipped: {name}: its programs run only on {}", release.machine.name()));
            continue;
        }
        if !runs(program) {
            say(&format!("skipped: {name}: needs {program} on the PATH"));
            continue;
        }
        let folder = root.join(at.to_string());
        fs::create_dir(&folder).with_context(|| format!("{}", folder.display()))?;
        match trial(&folder) {
            Ok(None) => say(&format!("ok: {name}")),
            Ok(Some(reason)) => say(&format!("skipped: {name}{reason}")),
            Err(error) => {
                say(&format!("failed: {name}: {error:#}"));
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "dist: failed: {}", failed.join(", "));
    Ok(())
}

/// Unpacks it into a folder, makes that the root, and runs a study there.
fn tarball(release: &Release, archive: &Path, root: &Path) -> anyhow::Result<()> {
    unpack(File::open(archive).with_context(|| format!("{}", archive.display()))?, root)?;
    let program = format!("/{}/tare", release.name());
    let study = format!("/{}/studies/fake.toml", release.name());
    expect(in_root(release, root)?.args([&program, "--version"]), &release.version)?;
    let mut weigh = in_root(release, root)?;
    weigh.args([&program, "weigh", &study, "--progress", "lines", "-o", "/fake.tare"]);
    expect(&mut weigh, "A/A")?;
    ensure!(root.join("fake.tare").is_file(), "the study left no record");
    Ok(())
}

/// Installs it into a root of its own, runs it there, removes it.
fn package(release: &Release, archive: &Path, root: &Path) -> anyhow::Result<()> {
    let database = root.join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        fs::create_dir_all(database.join(folder)).context("cannot make a database of dpkg")?;
    }
    fs::write(database.join("status"), "").context("cannot make a database of dpkg")?;
    let dpkg = || {
        let mut command = Command::new("dpkg");
        command.arg(format!("--root={}", root.display()));
        command.arg(format!("--log={}", root.join("var/lib/dpkg/log").display()));
        command
    };
    let mut install = dpkg();
    if release.emulator.is_some() {
        install.arg("--force-architecture");
    }
    expect(install.arg("--install").arg(archive), "")?;
    let mut program = in_root(release, root)?;
    expect(program.args(["/usr/bin/tare", "--version"]), &release.version)?;
    if release.emulator.is_some() {
        fs::remove_file(root.join(EMULATOR)).context("cannot remove the emulator")?;
    }
    ensure!(root.join("usr/share/man/man1/tare.1.gz").is_file(), "there is no man page");
    expect(dpkg().args(["--purge", "tare"]), "")?;
    let left: Vec<_> =
        fs::read_dir(root)?.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    ensure!(left == ["var"], "removing it left {left:?}");
    Ok(())
}

/// Unpacks the layer and runs it as a container.
fn under_runc(release: &Release, archive: &Path, root: &Path) -> anyhow::Result<()> {
    let (layout, bundle) = (root.join("layout"), root.join("bundle"));
    let file = File::open(archive).with_context(|| format!("{}", archive.display()))?;
    tar::Archive::new(file).unpack(&layout).context("cannot unpack the image")?;
    let blob = |descriptor: &Value| -> anyhow::Result<std::path::PathBuf> {
        let digest = descriptor["digest"].as_str().context("a descriptor without a digest")?;
        Ok(layout.join("blobs").join(digest.replace(':', "/")))
    };
    let parse = |path: &Path| -> anyhow::Result<Value> {
        Ok(serde_json::from_slice(&fs::read(path).with_context(|| format!("{}", path.display()))?)?)
    };
    let index = parse(&layout.join("index.json"))?;
    let manifest = parse(&blob(&index["manifests"][0])?)?;
    unpack(File::open(blob(&manifest["layers"][0])?)?, &bundle.join("rootfs"))?;
    expect(Command::new("runc").arg("spec").current_dir(&bundle), "")?;
    let path = bundle.join("config.json");
    let mut config = parse(&path)?;
    config["process"]["args"] = json!(["/tare", "--version"]);
    config["process"]["terminal"] = json!(false);
    fs::write(&path, serde_json::to_vec(&config)?)?;
    let name = format!("tare-dist-{}", std::process::id());
    let mut run = Command::new("runc");
    run.arg("--root").arg(root.join("state")).args(["run", "--bundle"]).arg(&bundle).arg(name);
    expect(&mut run, &release.version)
}

/// Loads it and runs it as the guides say: with the host's network and processes.
fn under_docker(release: &Release, archive: &Path) -> anyhow::Result<Option<&'static str>> {
    if !Command::new("docker").arg("version").output().is_ok_and(|output| output.status.success()) {
        return Ok(Some(": no engine answers; try scripts/engine cargo xtask dist --try"));
    }
    let tag = format!("{}:{}", image::NAME, release.version);
    let known = Command::new("docker").args(["image", "inspect", &tag]).output()?;
    ensure!(!known.status.success(), "docker has an image {tag} already; remove it first");
    expect(Command::new("docker").arg("load").arg("--input").arg(archive), &tag)?;
    let run = |more: &[&str], words: &[&str], wanted: &str| {
        let mut command = Command::new("docker");
        command.args(["run", "--rm", "--network", "host"]).args(more).arg(&tag).args(words);
        expect(&mut command, wanted)
    };
    let result = run(&[], &["--version"], &release.version).and_then(|()| {
        if !has_capability(SYS_RESOURCE)? {
            return Ok(Some(" --privileged: this machine lacks CAP_SYS_RESOURCE"));
        }
        run(&["--privileged", "--pid", "host"], &["doctor"], "").map(|()| None)
    });
    expect(Command::new("docker").args(["image", "rm", &tag]), "")?;
    result
}

/// Returns a command that runs a program of the release with another root.
fn in_root(release: &Release, root: &Path) -> anyhow::Result<Command> {
    let mut command = Command::new("chroot");
    command.arg(root);
    if let Some(emulator) = &release.emulator {
        fs::copy(emulator, root.join(EMULATOR)).context("cannot copy the emulator")?;
        command.arg(Path::new("/").join(EMULATOR));
    }
    Ok(command)
}

fn unpack(file: File, folder: &Path) -> anyhow::Result<()> {
    tar::Archive::new(GzDecoder::new(file))
        .unpack(folder)
        .with_context(|| format!("cannot unpack into {}", folder.display()))
}

/// Runs a command that has to succeed and to print `wanted`.
fn expect(command: &mut Command, wanted: &str) -> anyhow::Result<()> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {command:?}"))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() || !printed.contains(wanted) {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{command:?}: {}; it printed {printed:?} and {error:?}", output.status);
    }
    Ok(())
}

fn runs(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Whether this process has a capability of capabilities(7), by its number.
fn has_capability(number: u32) -> anyhow::Result<bool> {
    let status =
        fs::read_to_string("/proc/self/status").context("cannot read /proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let mask = line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    Ok(mask.context("/proc/self/status has no CapEff")? >> number & 1 == 1)
}
