//! A connection to other hosts, and what goes wrong with them, on machines of a bed.
#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::error::Error;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write, empty};
use std::net::{IpAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use tare_remote::{RemoteError, RemoteHost};
use tare_std::host_address::{HostAddress, RemoteAddress};
use tare_testkit::ssh_bed::{MachineSpec, SshBed, USER};

/// A program that answers `--version` on every machine of the bed.
const PROGRAM: &str = "/bin/bash";

fn connect(bed: &SshBed, address: &str, directory: &Path) -> Result<RemoteHost, RemoteError> {
    let address: HostAddress = address.parse().unwrap();
    let Some(RemoteAddress::Ssh(address)) = address.remote() else { panic!("{address}") };
    RemoteHost::connect_with(address, directory, Some(&bed.config()))
}

/// Returns an error as users see it.
fn line(error: &RemoteError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

#[test]
fn commands_run_and_the_program_is_copied_once() {
    let Some(bed) = SshBed::start("commands_run_and_the_program_is_copied_once", &["one", "two"])
    else {
        return;
    };
    let here = tempfile::tempdir().unwrap();
    let host = connect(&bed, "ssh:one", here.path()).unwrap();
    let basics = host.basics().unwrap();
    assert!(basics.is_root);
    assert_eq!(basics.architecture, std::env::consts::ARCH);
    assert_eq!(basics.seen_from, Some(IpAddr::V4(bed.ip_here("one"))));
    let other = connect(&bed, &format!("ssh:{USER}@two"), here.path()).unwrap();
    assert!(!other.basics().unwrap().is_root);

    // No word is read by a shell.
    let words = ["a b", "$(id)", "`id`", "'\"", "*", "-n", ""];
    let printed = host.output("printf", &[&["%s|"][..], &words].concat(), empty()).unwrap();
    assert_eq!(String::from_utf8_lossy(&printed), "a b|$(id)|`id`|'\"|*|-n||");
    let error = host.output("sh", &["-c", "echo no >&2; exit 3"], empty()).unwrap_err();
    assert_eq!(error.to_string(), "sh on ssh:one failed (exit status: 3): no");

    let mut process = host.start("cat", &[]).unwrap();
    let mut answers = BufReader::new(process.stdout.take().unwrap());
    for word in ["first", "second"] {
        writeln!(process.stdin.as_mut().unwrap(), "{word}").unwrap();
        let mut answer = String::new();
        answers.read_line(&mut answer).unwrap();
        assert_eq!(answer.trim(), word);
    }
    assert!(process.wait().unwrap().success());
    let mut rest = String::new();
    answers.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");

    let path = host.install(Path::new(PROGRAM)).unwrap().path;
    let inode = || bed.run("one", "stat", &["-c", "%i %Y", &path]);
    let first = inode();
    assert_eq!(host.install(Path::new(PROGRAM)).unwrap().path, path);
    assert_eq!(inode(), first, "the same bytes were copied again");
    // A copy that was changed is replaced.
    bed.run("one", "truncate", &["-s", "10", &path]);
    host.install(Path::new(PROGRAM)).unwrap();
    assert_eq!(bed.run("one", "stat", &["-c", "%s", &path]).trim(), size(PROGRAM));
    assert_eq!(bed.run("one", "ls", &["/var/tmp"]).lines().count(), 1, "nothing else stays");
    // The machines share no directory of the copies.
    assert_eq!(bed.run("two", "ls", &["/var/tmp"]), "");
}

fn size(file: &str) -> String {
    fs::metadata(file).unwrap().len().to_string()
}

#[test]
fn each_fault_of_a_host_is_one_line() {
    let Some(bed) = SshBed::start("each_fault_of_a_host_is_one_line", &["one"]) else { return };
    let here = tempfile::tempdir().unwrap();
    let host = connect(&bed, "ssh:one", here.path()).unwrap();
    let refused = |expected: &str| {
        let text = line(&host.install(Path::new(PROGRAM)).unwrap_err());
        assert!(text.contains(expected) && !text.contains('\n'), "{text:?}");
    };
    bed.run("one", "mount", &["-o", "remount,noexec", "/var/tmp"]);
    refused("ssh:one forbids programs in /var/tmp (Permission denied)");
    bed.run("one", "mount", &["-o", "remount,exec", "/var/tmp"]);
    bed.run("one", "sh", &["-c", "rm /var/tmp/*"]);
    bed.run("one", "mount", &["-o", "remount,size=100k", "/var/tmp"]);
    refused("on ssh:one: No space left on device");
    assert_eq!(bed.run("one", "ls", &["/var/tmp"]), "", "a part of a copy stays");
    let fake = bed.directory().join("uname");
    fs::write(&fake, "#!/bin/sh\necho aarch64\n").unwrap();
    bed.run("one", "chmod", &["755", fake.to_str().unwrap()]);
    bed.run("one", "mount", &["--bind", fake.to_str().unwrap(), "/usr/bin/uname"]);
    refused("ssh:one is a machine of aarch64, and this program is for x86_64");
    refused("/tare-aarch64, or set TARE_PROGRAMS to its directory");
}

#[test]
fn other_architecture_gets_its_own_program() {
    let test = "other_architecture_gets_its_own_program";
    let Some(bed) = SshBed::start(test, &["one"]) else { return };
    let here = tempfile::tempdir().unwrap();
    let host = connect(&bed, "ssh:one", here.path()).unwrap();
    // It represents a machine of another architecture, and a script the program that runs there.
    let fake = bed.directory().join("uname");
    fs::write(&fake, "#!/bin/sh\necho aarch64\n").unwrap();
    bed.run("one", "chmod", &["755", fake.to_str().unwrap()]);
    bed.run("one", "mount", &["--bind", fake.to_str().unwrap(), "/usr/bin/uname"]);
    let (own, other) = (here.path().join("tare"), here.path().join("tare-aarch64"));
    fs::copy(PROGRAM, &own).unwrap();
    let refused = |expected: &str| {
        let text = line(&host.install(&own).unwrap_err());
        assert!(text.contains(expected) && !text.contains('\n'), "{text:?}");
    };
    refused(&format!("for aarch64 at {}", other.display()));
    fs::copy(PROGRAM, &other).unwrap();
    refused("tare-aarch64 is no program for aarch64, which ssh:one is a machine of");
    fs::write(&other, "#!/bin/sh\necho tare 0.0.1\n").unwrap();
    refused(&format!("is tare 0.0.1, and this program is tare {}", env!("CARGO_PKG_VERSION")));
    fs::write(&other, format!("#!/bin/sh\necho tare {}\n", env!("CARGO_PKG_VERSION"))).unwrap();
    let path = host.install(&own).unwrap().path;
    assert_eq!(bed.run("one", "stat", &["-c", "%s", &path]).trim(), size(other.to_str().unwrap()));
}

#[test]
fn each_refusal_of_ssh_is_one_line() {
    let Some(bed) = SshBed::start("each_refusal_of_ssh_is_one_line", &["one"]) else { return };
    let here = tempfile::tempdir().unwrap();
    let refused = |address: &str, expected: &str| {
        let text = line(&connect(&bed, address, here.path()).unwrap_err());
        assert!(text.contains(expected) && !text.contains('\n'), "{text:?}");
        assert!(!text.contains("PRIVATE KEY"), "{text:?}");
    };
    refused("ssh:no-such-host.invalid", "ssh no-such-host.invalid true");
    refused("ssh:one:23", "Connection refused");
    let config = fs::read_to_string(bed.config()).unwrap();
    let other = bed.directory().join("other");
    let strange = config.replace("/key\n", "/other\n");
    assert!(other.exists() && strange != config);
    fs::write(bed.config(), strange).unwrap();
    refused("ssh:one", "Permission denied");
    fs::write(bed.config(), &config).unwrap();
    let known = fs::read_to_string(bed.directory().join("known")).unwrap();
    let key = fs::read_to_string(bed.directory().join("other.pub")).unwrap();
    let changed = format!("{} {key}", known.split_whitespace().next().unwrap());
    fs::write(bed.directory().join("known"), changed).unwrap();
    refused("ssh:one", "its host key is not the known one");
    fs::write(bed.directory().join("known"), "").unwrap();
    refused("ssh:one", "its host key is not known; run ssh one once");
}

#[test]
fn a_bed_has_clocks_lines_and_an_end() {
    let specs = [
        MachineSpec::new("one").monotonic_s(86_400),
        MachineSpec::new("two").delay(Duration::from_millis(20)),
    ];
    let Some(mut bed) = SshBed::start_with("a_bed_has_clocks_lines_and_an_end", &specs) else {
        return;
    };
    let uptime = |name: &str| -> f64 {
        let text = bed.run(name, "cat", &["/proc/uptime"]);
        text.split(' ').next().unwrap().parse().unwrap()
    };
    let ahead = uptime("one") - uptime("two");
    assert!((86_000.0..87_000.0).contains(&ahead), "{ahead}");
    let here = tempfile::tempdir().unwrap();
    let host = connect(&bed, "ssh:one", here.path()).unwrap();
    // There and back, so twice the delay and never less.
    let begun = Instant::now();
    drop(TcpStream::connect((bed.ip("two"), 22)).unwrap());
    assert!(begun.elapsed() >= Duration::from_millis(40), "{:?}", begun.elapsed());
    bed.cut("one");
    let mut process = host.start("true", &[]).unwrap();
    assert_eq!(process.wait_at_most(Duration::from_millis(300)).unwrap(), None);
    bed.mend("one");
    host.check().unwrap();
    bed.kill("one");
    assert!(host.output("true", &[], empty()).is_err());
    let (namespace, directory) = (bed.namespace("two").to_string(), bed.directory().to_path_buf());
    assert!(Path::new("/run/netns").join(&namespace).exists());
    drop(bed);
    assert!(!Path::new("/run/netns").join(&namespace).exists() && !directory.exists());
}
