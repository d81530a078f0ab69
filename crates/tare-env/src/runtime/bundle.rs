//! The OCI bundle: an empty root file system, and a `config.json` with every layer. Reports show
//! the diff of that file between environments, so equal layers give equal text.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use rustix::process::{Resource, getrlimit};
use serde_json::{Value, json};
use tare_host::RUN_VARIABLE;
use tare_host::memory_policy::PAGES_VARIABLE;
use tare_host::user_namespace::{FIRST_ID, ID_COUNT};
use tare_lab::environment::CpuPlan;
use tare_lab::layer::{Capabilities, User};
use tare_std::cpus::CpuSet;

use crate::layer::confinement::huge_pages;
use crate::layer::rootfs::{DATA, PROGRAM};
use crate::layer::security::{self, SecurityError};
use crate::layer::{self, Layers, limits};

/// Why a bundle could not be written.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("cannot write the bundle at {}", .path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("the configuration is not a valid OCI runtime specification")]
    Form(#[from] serde_json::Error),
    #[error(transparent)]
    Security(#[from] SecurityError),
}

/// The contents of a bundle, except the layers.
#[derive(Debug)]
pub(crate) struct Contents<'a> {
    pub(crate) id: &'a str,
    pub(crate) run: &'a str,
    pub(crate) program: &'a Path,
    /// The directory to mount for the data; without one the data is in the root.
    pub(crate) data: Option<&'a Path>,
    /// Major and minor number of the block device whose node is there, if any.
    pub(crate) device: Option<(u32, u32)>,
    pub(crate) arguments: Vec<String>,
    /// Files and directories of the host to mount at the same paths.
    pub(crate) files: &'a [PathBuf],
    /// PATH inside.
    pub(crate) path: &'a str,
    /// Whether the root is read-only.
    pub(crate) read_only: bool,
    /// Path of the cgroup below the root of each hierarchy.
    pub(crate) cgroup: &'a str,
    pub(crate) network: Option<&'a Path>,
    pub(crate) cpus: &'a CpuPlan,
    /// The NUMA nodes to which the memory is bound, if it is.
    pub(crate) nodes: Option<CpuSet>,
    /// Version and major revision of the kernel that the container runs on.
    pub(crate) kernel: (u32, u32),
    /// The name of the AppArmor profile, if there is one.
    pub(crate) profile: Option<&'a str>,
}

/// The directories of the root file system. They must exist, because the root is read-only.
pub(crate) const MOUNT_POINTS: [&str; 5] = ["proc", "dev", "sys", "tmp", "data"];

/// Creates the root file system in a directory, with mount points for the host's `files`.
pub(super) fn write_root(folder: &Path, files: &[PathBuf]) -> Result<(), BundleError> {
    let fail = |path: &Path| {
        let path = path.to_path_buf();
        move |source| BundleError::Write { path, source }
    };
    let root = folder.join("rootfs");
    for name in MOUNT_POINTS {
        let path = root.join(name);
        fs::create_dir_all(&path).map_err(fail(&path))?;
    }
    for file in files.iter().map(PathBuf::as_path).chain([Path::new(PROGRAM)]) {
        let path = root.join(file.strip_prefix("/").unwrap_or(file));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(fail(parent))?;
        }
        let made =
            if file.is_dir() { fs::create_dir_all(&path) } else { File::create(&path).map(drop) };
        made.map_err(fail(&path))?;
    }
    Ok(())
}

/// Writes `config.json` to a directory and returns its text.
pub(super) fn write(
    folder: &Path,
    contents: &Contents<'_>,
    layers: &Layers,
) -> Result<String, BundleError> {
    let text = text(contents, layers)?;
    let path = folder.join("config.json");
    fs::write(&path, &text).map_err(|source| BundleError::Write { path, source })?;
    Ok(text)
}

/// Returns the text of a `config.json`.
pub(crate) fn text(contents: &Contents<'_>, layers: &Layers) -> Result<String, BundleError> {
    let config = config(contents, layers)?;
    // The runtime would reject an invalid configuration with a poorer error.
    serde_json::from_value::<Spec>(config.clone())?;
    Ok(serde_json::to_string_pretty(&config)?)
}

fn config(contents: &Contents<'_>, layers: &Layers) -> Result<Value, BundleError> {
    let own = layers.cgroup == layer::Cgroup::Own;
    let mut namespaces = vec![
        json!({ "type": "pid" }),
        json!({ "type": "ipc" }),
        json!({ "type": "uts" }),
        json!({ "type": "mount" }),
    ];
    if own {
        namespaces.push(json!({ "type": "cgroup" }));
    }
    if layers.confinement.user == User::Namespace {
        namespaces.push(json!({ "type": "user" }));
    }
    if let Some(path) = contents.network {
        namespaces.push(json!({ "type": "network", "path": path }));
    }
    let mut resources = json!({ "devices": [{ "allow": false, "access": "rwm" }] });
    if let (Some((major, minor)), Some(rules)) =
        (contents.device, resources["devices"].as_array_mut())
    {
        let (kind, access) = ("b", "rw");
        rules.push(json!({ "allow": true, "type": kind, "major": major, "minor": minor,
            "access": access }));
    }
    if layers.cpu.has_cpuset() {
        resources["cpu"] = json!({ "cpus": layers.cpu.set(contents.cpus).to_string() });
    }
    if let Some(quota) = layers.cpu.quota() {
        // Older runtimes refuse or ignore a burst, which `layer::limits` adds.
        let bandwidth = limits::bandwidth(quota);
        resources["cpu"] = json!({ "quota": bandwidth.quota_us, "period": bandwidth.period_us });
    }
    if let Some(nodes) = &contents.nodes {
        resources["cpu"]["mems"] = json!(nodes.to_string());
    }
    if let Some(bytes) = layers.limits.memory_bytes {
        resources["memory"] = json!({ "limit": bytes });
    }
    // The limits of a native process, so that environments do not differ in them. Explicit, because
    // runtimes in Go raise their own soft limit and may pass it on.
    let files = getrlimit(Resource::Nofile);
    let hard = files.maximum.unwrap_or(1 << 20);
    let soft = files.current.unwrap_or(hard);
    let capabilities = match layers.confinement.capabilities {
        Capabilities::Default => security::CAPABILITIES,
        Capabilities::None => &[],
    };
    let mut variables =
        vec![format!("PATH={}", contents.path), format!("{RUN_VARIABLE}={}", contents.run)];
    let pages = huge_pages::variable(layers.confinement.pages);
    variables.extend(pages.map(|value| format!("{PAGES_VARIABLE}={value}")));
    let mut args = vec![PROGRAM.to_string()];
    args.extend(contents.arguments.iter().cloned());
    let mut config = json!({
        "ociVersion": "1.0.2",
        "hostname": contents.id,
        "root": { "path": "rootfs", "readonly": contents.read_only },
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": args,
            "env": variables,
            "cwd": "/",
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
            },
            "rlimits": [{ "type": "RLIMIT_NOFILE", "hard": hard, "soft": soft }],
            "noNewPrivileges": false,
        },
        "mounts": mounts(contents, layers.confinement.user),
        "linux": {
            "namespaces": namespaces,
            "cgroupsPath": format!("/{}", contents.cgroup),
            "resources": resources,
            "maskedPaths": oci_spec::runtime::get_default_maskedpaths(),
            "readonlyPaths": oci_spec::runtime::get_default_readonly_paths(),
        },
    });
    if layers.confinement.user == User::Namespace {
        let ids = json!([{ "containerID": 0, "hostID": FIRST_ID, "size": ID_COUNT }]);
        config["linux"]["uidMappings"] = ids.clone();
        config["linux"]["gidMappings"] = ids;
    }
    if let Some(profile) = contents.profile {
        config["process"]["apparmorProfile"] = json!(profile);
    }
    if let Some(filter) = security::default_profile(layers.security, contents.kernel)? {
        config["linux"]["seccomp"] = filter;
    }
    Ok(config)
}

/// Returns Docker's mounts for a container with a read-only root, and Tare's.
fn mounts(contents: &Contents<'_>, user: User) -> Value {
    let tmpfs = |path: &str, options: &[&str]| json!({ "destination": path, "type": "tmpfs", "source": "tmpfs", "options": options });
    let mut mounts = vec![
        json!({ "destination": "/proc", "type": "proc", "source": "proc",
          "options": ["nosuid", "noexec", "nodev"] }),
        tmpfs("/dev", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        json!({ "destination": "/dev/pts", "type": "devpts", "source": "devpts",
          "options": ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"] }),
        tmpfs("/dev/shm", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        // Only the owner of a network namespace may mount its sysfs (sysfs_init_fs_context).
        match user {
            User::Host => json!({ "destination": "/sys", "type": "sysfs", "source": "sysfs",
              "options": ["nosuid", "noexec", "nodev", "ro"] }),
            User::Namespace => json!({ "destination": "/sys", "type": "bind", "source": "/sys",
              "options": ["rbind", "nosuid", "noexec", "nodev", "ro"] }),
        },
        tmpfs("/tmp", &["nosuid", "nodev", "mode=1777"]),
        json!({ "destination": PROGRAM, "type": "bind", "source": contents.program,
          "options": ["bind", "ro", "nosuid", "nodev"] }),
    ];
    mounts.extend(contents.files.iter().map(|file| {
        json!({ "destination": file, "type": "bind", "source": file,
          "options": ["bind", "ro", "nosuid", "nodev"] })
    }));
    if let Some(data) = contents.data {
        let mut options = vec!["bind", "rw", "nosuid"];
        options.extend(contents.device.is_none().then_some("nodev"));
        mounts.push(json!({ "destination": DATA, "type": "bind", "source": data,
          "options": options }));
    }
    Value::Array(mounts)
}

/// Returns version and major revision of the running kernel.
pub(crate) fn kernel() -> (u32, u32) {
    numbers(&rustix::system::uname().release().to_string_lossy())
}

/// Returns version and major revision of a kernel release.
pub(crate) fn numbers(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_lab::layer::Security;
    use tare_lab::layer::{Confinement, Cpu, Host, Inject, Limits, Network, Quota};

    fn text(layers: &Layers) -> String {
        text_on(layers, None)
    }

    fn text_on(layers: &Layers, nodes: Option<&str>) -> String {
        let cpus = CpuPlan {
            all: CpuSet::parse_list("0-3").unwrap(),
            system: CpuSet::parse_list("2-3").unwrap(),
            client: CpuSet::parse_list("0").unwrap(),
            ..CpuPlan::default()
        };
        let contents = Contents {
            id: "tare-ab12-e0",
            run: "ab12",
            program: Path::new("/bin/tare"),
            data: Some(Path::new("/d")),
            device: None,
            arguments: vec!["db".into()],
            files: &[],
            path: "/",
            read_only: true,
            cgroup: "tare-ab12/e0",
            network: None,
            cpus: &cpus,
            nodes: nodes.map(|nodes| CpuSet::parse_list(nodes).unwrap()),
            kernel: kernel(),
            profile: None,
        };
        super::text(&contents, layers).unwrap()
    }

    #[test]
    fn each_layer_changes_only_its_part() {
        let base = Layers {
            network: Network::Host,
            cpu: Cpu::Shared,
            security: Security::None,
            confinement: Confinement::default(),
            cgroup: layer::Cgroup::Own,
            host: Host::AsIs,
            inject: Inject::default(),
            limits: Limits::default(),
        };
        let plain = text(&base);
        assert_eq!(plain, text(&base), "the same layers give the same text");
        let pinned = text(&Layers { cpu: Cpu::Pinned, ..base.clone() });
        assert!(pinned.contains(r#""cpus": "2-3""#) && !plain.contains("\"cpu\""));
        let quota = text(&Layers { cpu: Cpu::Quota(Quota::of(0.5)), ..base.clone() });
        assert!(quota.contains(r#""quota": 50000"#));
        let filtered = text(&Layers { security: Security::Default, ..base.clone() });
        assert!(filtered.contains("seccomp") && !plain.contains("seccomp"));
        let limited = text(&Layers {
            limits: Limits { memory_bytes: Some(1 << 20), ..Limits::default() },
            ..base.clone()
        });
        assert!(limited.contains(r#""limit": 1048576"#));
        let with = |confinement| text(&Layers { confinement, ..base.clone() });
        let default = Confinement::default();
        let bare = with(Confinement { capabilities: Capabilities::None, ..default });
        assert!(!bare.contains("CAP_CHOWN") && plain.contains("CAP_CHOWN"));
        let mapped = with(Confinement { user: User::Namespace, ..default });
        assert!(mapped.contains("uidMappings") && mapped.contains("rbind"), "{mapped}");
        assert!(!plain.contains("uidMappings"));
        let small = with(Confinement { pages: tare_lab::layer::Pages::Never, ..default });
        assert!(small.contains("TARE_PAGES=never") && !plain.contains("TARE_PAGES"));
        let bound = text_on(&base, Some("1"));
        assert!(bound.contains(r#""mems": "1""#) && !plain.contains("mems"));
        let both = text_on(&Layers { cpu: Cpu::Pinned, ..base.clone() }, Some("1"));
        assert!(both.contains(r#""mems": "1""#) && both.contains(r#""cpus": "2-3""#));
        for changed in [pinned, quota, filtered, limited, bare, mapped, small, bound, both] {
            assert!(serde_json::from_str::<Spec>(&changed).is_ok());
        }
    }
}
