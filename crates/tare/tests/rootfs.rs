//! Systems with their own root file systems, through the built program: from packages, and from an
//! image that the test builds of those packages, under every OCI runtime of this host.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::{run_in, stderr};
use tare_testkit::{Need, Reason, skipped};

const NEEDS: [Need; 7] = [
    Need::Root,
    Need::Program("runc"),
    Need::Program("nft"),
    Need::Program("ip"),
    Need::Program("apt-get"),
    Need::Program("dpkg-deb"),
    Need::Program("redis-benchmark"),
];

/// Returns the OCI runtimes of this host, as a study names them.
fn runtimes() -> Vec<&'static str> {
    let known = ["oci:runc", "oci:crun", "oci:runsc"];
    let here = (tare_env::runtime::oci::RUNTIME.found)();
    known.into_iter().filter(|name| here.iter().any(|found| found == name)).collect()
}

/// Weighs a system briefly in these root file systems; the first environment is the baseline.
fn weigh(folder: &Path, system: &str, environments: &[(String, &str)]) -> Output {
    let environments: String = environments
        .iter()
        .map(|(runtime, rootfs)| {
            let name = format!("{runtime} {}", rootfs.split(' ').nth(1).unwrap_or_default());
            format!("[[environment]]\nname = {name:?}\nruntime = {runtime:?}\nrootfs = {rootfs}\n")
        })
        .collect();
    let baseline = environments.lines().nth(1).unwrap().trim_start_matches("name = ").to_string();
    let study = format!(
        "name = \"tiny\"\nbaseline = {baseline}\ndriver = \"redis-benchmark\"\n{system}\n\
         [schedule]\nrounds = 1\nrounds_min = 1\nstop_width_percent = 0\nbudget = \"5m\"\nseed = 7\n\
         window = \"300ms\"\nlead_in = \"100ms\"\n{environments}\
         [[workload]]\nname = \"w\"\nlatency_share = 0\nredis-benchmark = {{ clients = 4, keyspace = 100 }}\n"
    );
    fs::write(folder.join("study.toml"), study).unwrap();
    let state = folder.join("state");
    let _ = fs::remove_file(folder.join("out.tare"));
    let words = ["weigh", "study.toml", "--output", "out.tare", "--json", "--state"];
    run_in(folder, words.into_iter().chain([state.to_str().unwrap()]))
}

/// Returns what was read back for the layer `rootfs.made_of` of each environment.
fn made_of(folder: &Path) -> Vec<String> {
    let database = rusqlite::Connection::open(folder.join("out.tare")).unwrap();
    let voids: u32 = database
        .query_row("SELECT count(*) FROM slices WHERE void IS NOT NULL", [], |row| row.get(0))
        .unwrap();
    assert_eq!(voids, 0, "a layer is not in force");
    let sql = "SELECT found FROM layers WHERE layer = 'rootfs.made_of' AND in_force";
    let mut statement = database.prepare(sql).unwrap();
    let found = statement.query_map([], |row| row.get(0)).unwrap();
    found.collect::<Result<_, _>>().unwrap()
}

/// Writes an archive like that of `docker save`, from a root file system and with a configuration.
fn save(root: &Path, folder: &Path, archive: &Path) {
    let image = folder.join("image");
    fs::create_dir_all(&image).unwrap();
    let tar = |words: &[&str]| {
        let ran = Command::new("tar").args(words).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    let path = |path: &Path| path.to_str().unwrap().to_string();
    let layer = image.join("layer.tar");
    tar(&["--create", "--file", &path(&layer), "--directory", &path(root), "."]);
    let sum = Command::new("sha256sum").arg(&layer).output().unwrap().stdout;
    let sum = String::from_utf8_lossy(&sum).split(' ').next().unwrap().to_string();
    let machine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let config = format!(
        r#"{{"architecture":"{machine}","os":"linux","rootfs":{{"type":"layers","diff_ids":["sha256:{sum}"]}},
            "config":{{"Entrypoint":["redis-server"],"Cmd":["--save",""],"User":"nobody","WorkingDir":"/tmp"}}}}"#
    );
    fs::write(image.join("config.json"), config).unwrap();
    let manifest = r#"[{"Config":"config.json","RepoTags":["redis:test"],"Layers":["layer.tar"]}]"#;
    fs::write(image.join("manifest.json"), manifest).unwrap();
    tar(&["--create", "--file", &path(archive), "--directory", &path(&image), "."]);
    fs::remove_dir_all(&image).unwrap();
}

#[test]
fn redis_runs_from_packages_and_from_an_image() {
    let test = "redis_runs_from_packages_and_from_an_image";
    if skipped(test, &NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let packages = "{ packages = [\"redis-server\"] }";
    let all: Vec<_> = runtimes().into_iter().map(|name| (name.to_string(), packages)).collect();
    let output = weigh(folder.path(), "[system]\nname = \"redis\"", &all);
    let said = stderr(&output);
    if said.contains("cannot get the packages") {
        return tare_testkit::skip(test, Reason::Other(said));
    }
    assert!(output.status.success(), "{said}");
    let found = made_of(folder.path());
    // The A/A control is an environment too.
    assert_eq!(found.len(), all.len() + 1, "{found:?}");
    assert!(found.iter().all(|text| text.contains("redis-server 5:") && *text == found[0]));

    // The same files as an image, started with its own entry point.
    let root = fs::read_dir(tare_env::rootfs::CACHE).unwrap().flatten().map(|entry| entry.path());
    let root = root.filter(|path| path.to_string_lossy().contains("/redis-server-"));
    let root = root.map(|path| path.join("root")).find(|path| path.is_dir()).unwrap();
    let archive = folder.path().join("redis.tar");
    save(&root, folder.path(), &archive);
    let image = format!("{{ image = {archive:?} }}");
    let system = "[system]\nname = \"image\"\nspeaks = \"redis\"\nport = 6379\n\
                  ready_says = \"Ready to accept connections\"\nready_send = \"PING\\r\\n\"\nready_expect = \"PONG\"\n\
                  command = \"--protected-mode no --save\"";
    let all: Vec<_> =
        runtimes().into_iter().map(|name| (name.to_string(), image.as_str())).collect();
    let output = weigh(folder.path(), system, &all);
    let place = tare_env::rootfs::cached().into_iter().filter(|name| name.starts_with("redis-"));
    let place =
        place.filter(|name| !name.starts_with("redis-server-") && !name.starts_with("redis-tools"));
    for name in place {
        let _ = fs::remove_dir_all(Path::new(tare_env::rootfs::CACHE).join(name));
    }
    assert!(output.status.success(), "{}", stderr(&output));
    let found = made_of(folder.path());
    assert_eq!(found.len(), all.len() + 1, "{found:?}");
    assert!(found.iter().all(|text| text.starts_with("redis:test, image sha256 ")), "{found:?}");
}

#[test]
fn an_invalid_root_file_system_is_refused_before_the_start() {
    let test = "an_invalid_root_file_system_is_refused_before_the_start";
    if skipped(test, &NEEDS) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let system = "[system]\nname = \"redis\"";
    for (runtime, rootfs, expect) in [
        ("process", "{ directory = \"/srv\" }", "a process uses the host's"),
        ("oci:runc", "{ directory = \"srv\" }", "an absolute path"),
        ("oci:runc", "{ packages = [\"-o\"] }", "the name of a package"),
        (
            "oci:runc",
            "{ directory = \"/a\", image = \"/b\" }",
            "give one of: packages, image, directory",
        ),
        ("oci:runc", "{ image = \"/no/such/archive\" }", "/no/such/archive"),
    ] {
        let output = weigh(folder.path(), system, &[(runtime.into(), rootfs)]);
        let said = stderr(&output);
        assert!(!output.status.success() && said.contains(expect), "{rootfs}: {said}");
    }
}
