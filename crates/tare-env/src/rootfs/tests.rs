use std::os::unix::fs::symlink;

use super::*;
use tare_lab::layer::Rootfs;
use tare_testkit::EnvironmentBuilder;

fn spec(runtime: &str, name: &str, value: &str) -> EnvironmentSpec {
    EnvironmentBuilder::new(runtime).rootfs(&[(name, value)]).build()
}

/// Returns an error with its causes in one line.
pub(super) fn chain(error: &RootError) -> String {
    tare_host::error_line(error)
}

#[test]
fn checks_source_against_runtime() {
    let parse = |runtime, name, value| Source::parse(&spec(runtime, name, value));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
    let two = parse("oci:runc", "packages", "redis-server libc6=2.36-9+deb12u10").unwrap();
    assert_eq!(two, Some(Source::Packages(names(&["redis-server", "libc6=2.36-9+deb12u10"]))));
    let named = parse("docker:runc", "image", "redis:7").unwrap();
    assert_eq!(named, Some(Source::Named("redis:7".into())));
    let none = EnvironmentSpec { rootfs: Rootfs::None, ..spec("process", "packages", "x") };
    assert_eq!(Source::parse(&none).unwrap(), None);
    for (runtime, name, value, expect) in [
        ("oci:runc", "packages", "redis-server -o", "\"-o\" is not the name of a package"),
        ("oci:runc", "packages", "redis-", "\"redis-\" is not"),
        ("oci:runc", "packages", "a;b", "\"a;b\" is not"),
        ("oci:runc", "packages", " ", "a list of packages"),
        ("oci:runc", "directory", "relative", "an absolute path"),
        ("oci:runc", "directory", "/a:/b", "an absolute path"),
        ("process", "directory", "/srv", "a process uses the host's"),
        ("oci:runc", "image", "redis:7", "an absolute path"),
        ("docker", "image", "-x", "or the name of an image"),
        ("vm:qemu", "directory", "/srv", "use a container"),
    ] {
        let error = parse(runtime, name, value).unwrap_err().to_string();
        assert!(error.contains(expect), "{error}");
    }
}

#[test]
fn refuses_changed_cache() {
    let cache = tempfile::tempdir().unwrap();
    let source = Source::Packages(vec!["nothing".into()]);
    let place = source.place(cache.path()).unwrap();
    let root = place.join("root");
    fs::create_dir_all(root.join("usr/bin")).unwrap();
    fs::write(root.join("usr/bin/server"), "one").unwrap();
    symlink("usr/bin", root.join("bin")).unwrap();
    let files = tree::read(&root).unwrap();
    assert_eq!(files["bin"].split(' ').next_back(), Some("usr/bin"));
    let manifest =
        Manifest { made_of: vec!["nothing 1".into(), "other 2".into()], config: None, files };
    fs::write(place.join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
    let found = provide(&source, cache.path()).unwrap();
    assert_eq!(found.path, root);
    assert!(
        found.text.starts_with("nothing 1 and 1 packages more; 4 files, sha256 "),
        "{}",
        found.text
    );

    fs::write(root.join("usr/bin/server"), "two").unwrap();
    fs::write(root.join("usr/more"), "").unwrap();
    let error = provide(&source, cache.path()).unwrap_err().to_string();
    assert!(error.contains("2 files differ, usr/bin/server the first"), "{error}");
    fs::write(place.join(MANIFEST), "{").unwrap();
    let error = provide(&source, cache.path()).unwrap_err().to_string();
    assert!(error.contains("manifest"), "{error}");
}

#[test]
fn finds_programs_only_inside_root() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    for place in ["usr/bin", "usr/lib/jvm/java-11/bin", "usr/lib/jvm/java-17/bin", "opt"] {
        fs::create_dir_all(path.join(place)).unwrap();
    }
    for file in ["usr/bin/real", "usr/lib/jvm/java-11/bin/java", "usr/lib/jvm/java-17/bin/java"] {
        fs::write(path.join(file), "").unwrap();
    }
    // Inside, / is the root, also for absolute links.
    symlink("/usr/bin/real", path.join("usr/bin/link")).unwrap();
    symlink("/../../etc/passwd", path.join("usr/bin/out")).unwrap();
    symlink("usr/bin", path.join("bin")).unwrap();
    let root = Root { path: path.into(), text: String::new(), config: None };
    let find = |name: &str| root.program(name).map(|path| path.to_string_lossy().into_owned());
    assert_eq!(find("link").unwrap(), "/usr/bin/link");
    assert_eq!(find("/bin/real").unwrap(), "/bin/real");
    assert_eq!(find("java").unwrap(), "/usr/lib/jvm/java-17/bin/java");
    assert_eq!(find("/opt/other/bin/java").unwrap(), "/usr/lib/jvm/java-17/bin/java");
    for name in ["out", "usr", "/etc/passwd"] {
        let error = find(name).unwrap_err().to_string();
        assert!(error.contains(&format!("no program {name} ")), "{error}");
    }

    assert!(overlay::check(&root, &["/opt/jars".into(), "/srv/x".into()]).is_ok());
    let error = overlay::check(&root, &["/bin/jars".into()]).unwrap_err().to_string();
    assert!(error.contains("/bin is no directory there"), "{error}");
}

#[test]
fn directory_must_have_usr_or_bin() {
    let folder = tempfile::tempdir().unwrap();
    let source = Source::Directory(folder.path().into());
    let error = provide(&source, folder.path()).unwrap_err().to_string();
    assert!(error.contains("no directory usr or bin"), "{error}");
    fs::create_dir(folder.path().join("bin")).unwrap();
    let found = provide(&source, folder.path()).unwrap();
    assert_eq!(found.path, folder.path());
    let error = provide(&Source::Directory("/no/such".into()), folder.path()).unwrap_err();
    assert!(error.to_string().contains("/no/such"), "{error}");
}
