//! Containers as Docker 20.10 and Podman 4.3 describe them: the rebuilt command, what changes in
//! it, and that no secret is printed.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tare_tune::fixture::Host as HostFixture;
use tare_tune::flags::running::{Inspection, diff};
use tare_tune::flags::{Diff, FlagsError, Host, Request};
use tare_tune::plan::{Options, cpus};
use tare_tune::planner::read_machine;

const LIMITS: &str = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             unlimited            unlimited            processes\n\
                      Max open files            1048576              1048576              files\n\
                      Max locked memory         65536                65536                bytes\n";

fn inspection(engine: &'static str) -> Inspection {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/found/{engine}.json"));
    let found: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    Inspection {
        engine,
        name: "db".into(),
        container: found["container"].clone(),
        image: found["image"].clone(),
        info: found["info"].clone(),
        limits: Some(LIMITS.into()),
    }
}

/// Returns the diff on a host with 16 cores, 32 threads and 244 GiB, of which 15 cores are for
/// databases.
fn on_host(inspection: &Inspection, request: &Request) -> Result<Diff, FlagsError> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/i3.8xlarge.toml");
    let fixture: HostFixture = toml::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let snapshot = fixture.build();
    let options = Options::default();
    let machine = read_machine(&snapshot, &options).unwrap();
    let cpus = cpus::choose(&machine, &options).unwrap();
    diff(inspection, None, request, &machine.topology, &cpus, &Host::read(&snapshot))
}

fn request() -> Request {
    Request { memory_bytes: Some(8 << 30), ..Request::default() }
}

#[test]
fn the_command_of_a_container_is_rebuilt() {
    let found = on_host(&inspection("docker"), &request()).unwrap();
    assert_eq!(
        found.now,
        "docker run \\
  --detach \\
  --name=db \\
  --env=POSTGRES_PASSWORD \\
  --env=MODE=x \\
  --label=team=db \\
  --network=own \\
  --network-alias=data \\
  --publish=7000 \\
  --publish=127.0.0.1:9043:9042 \\
  --add-host=a:1.2.3.4 \\
  --volume=/srv/host:/host:ro \\
  --mount=type=tmpfs,target=/scratch,tmpfs-size=1048576 \\
  --volume=8e5c5c8ea265936934490238645c28f51a1c21b536638773dc9d1199c1add2f8:/data \\
  --cpus=1.5 \\
  --memory=536870912 \\
  --ulimit=nofile=1024:2048 \\
  --sysctl=net.core.somaxconn=1024 \\
  --cap-add=CAP_SYS_NICE \\
  --security-opt=no-new-privileges \\
  --restart=on-failure:3 \\
  --health-cmd=true \\
  --health-interval=5000ms \\
  scylladb/scylla:test \\
  /tare \\
  db \\
  --data=/data \\
  --memory=64M \\
  --smp=1
"
    );
}

#[test]
fn only_what_differs_changes() {
    let found = on_host(&inspection("docker"), &request()).unwrap();
    let changed = found.diff.lines().skip(2).filter(|line| line.starts_with(['-', '+']));
    let changed: Vec<&str> = changed.collect();
    assert_eq!(
        changed,
        [
            "-  --network=own \\",
            "-  --network-alias=data \\",
            "-  --publish=7000 \\",
            "-  --publish=127.0.0.1:9043:9042 \\",
            "+  --network=host \\",
            "-  --cpus=1.5 \\",
            "-  --memory=536870912 \\",
            "-  --ulimit=nofile=1024:2048 \\",
            "-  --sysctl=net.core.somaxconn=1024 \\",
            "+  --memory=8589934592 \\",
            "+  --ulimit=nofile=800000:800000 \\",
            "+  --cpuset-cpus=1,17 \\",
            "+  --ulimit=memlock=-1:-1 \\",
            "+  --memory-swap=8589934592 \\",
            "+  --log-driver=local \\",
            "+  --log-opt=max-size=100m \\",
            "-  --memory=64M \\",
            "-  --smp=1",
            "+  --memory=6656M \\",
            "+  --smp=2 \\",
            "+  --cpuset=1,17 \\",
            "+  --overprovisioned=0 \\",
            "+  --developer-mode=0",
        ],
        "{}",
        found.text()
    );
    let says = |part: &str| {
        assert!(found.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", found.notes);
    };
    says("9043 -> 9042");
    says("published at 127.0.0.1 only");
    says("set POSTGRES_PASSWORD in the environment");
    says("The volume at /data has no name of yours");
    says("Nothing is mounted at /var/lib/scylla");
    says("Containers on the network own");
    says("docker rm db");
}

#[test]
fn a_container_that_has_the_flags_does_not_change() {
    let mut inspection = inspection("docker");
    let config = &mut inspection.container["HostConfig"];
    config["NetworkMode"] = json!("host");
    config["NanoCpus"] = json!(0);
    config["CpusetCpus"] = json!("1,17");
    config["Memory"] = json!(8u64 << 30);
    config["MemorySwap"] = json!(8u64 << 30);
    config["LogConfig"] = json!({"Type": "local", "Config": {"max-size": "100m"}});
    config["Ulimits"] = json!([
        {"Name": "nofile", "Soft": 800_000, "Hard": 900_000},
        {"Name": "memlock", "Soft": -1, "Hard": -1},
    ]);
    let words = [
        "--smp",
        "2",
        "--cpuset=1,17",
        "--overprovisioned=0",
        "--developer-mode=0",
        "--memory=6656M",
    ];
    inspection.container["Config"]["Cmd"] = json!(words);
    let found = on_host(&inspection, &Request::default()).unwrap();
    assert_eq!((found.diff.as_str(), found.changes.as_slice()), ("", [].as_slice()));
    assert!(found.text().starts_with("# docker:db: nothing to change\n"), "{}", found.text());
}

#[test]
fn secrets_are_in_no_part_of_the_output() {
    let mut inspection = inspection("docker");
    let config = &mut inspection.container["Config"];
    config["Env"] = json!(["POSTGRES_PASSWORD=hunter2", "URL=postgres://me:corr3ct@h/db"]);
    config["Cmd"] = json!(["redis-server", "--requirepass", "batt ery", "--masterauth=staple"]);
    config["Labels"] = json!({"backup.token": "hors3"});
    config["Healthcheck"] =
        json!({"Test": ["CMD-SHELL", "redis-cli -a wh1te ping || mysql -pblack"]});
    let found = on_host(&inspection, &request()).unwrap();
    let all = found.text() + &serde_json::to_string(&found).unwrap();
    for secret in ["hunter2", "corr3ct", "batt ery", "staple", "hors3", "wh1te", "black"] {
        assert!(!all.contains(secret), "{secret}: {all}");
    }
    for part in [
        "--env=POSTGRES_PASSWORD \\\n",
        "--env=URL \\\n",
        "--requirepass \\\n  \"${REQUIREPASS:?}\" \\\n  --masterauth=\"${MASTERAUTH:?}\"",
        "--label=backup.token=\"${BACKUP_TOKEN:?}\"",
        "set BACKUP_TOKEN, ",
    ] {
        assert!(
            found.wanted.contains(part) || found.notes.iter().any(|n| n.contains(part)),
            "{part}: {all}"
        );
    }
}

#[test]
fn defaults_of_podman_are_not_options() {
    let found = on_host(&inspection("podman"), &request()).unwrap();
    assert_eq!(
        found.now,
        "podman run \\
  --detach \\
  --name=pdb \\
  --env=SECRET_X \\
  --publish=9043:9042 \\
  --volume=vol:/data:rw,rprivate,nosuid,nodev,rbind \\
  --cpus=1 \\
  --memory=268435456 \\
  --ulimit=nofile=1048576:1048576 \\
  --ulimit=nproc=32768:32768 \\
  localhost/x/tare:test \\
  /tare \\
  db \\
  --data=/data
"
    );
    assert!(found.wanted.contains("--network=host"), "{}", found.wanted);
    assert!(found.wanted.contains("--pids-limit=32768"), "{}", found.wanted);
    assert!(!found.wanted.contains("--publish"), "{}", found.wanted);
}

#[test]
fn what_cannot_change_is_a_note() {
    let mut inspection = inspection("docker");
    let config = &mut inspection.container["HostConfig"];
    config["NetworkMode"] = json!("container:abc");
    config["AutoRemove"] = json!(true);
    config["RestartPolicy"] = json!({"Name": "no"});
    config["SecurityOpt"] = json!(["seccomp={\"defaultAction\": \"SCMP_ACT_ALLOW\"}"]);
    config["DeviceRequests"] = json!([{"Driver": "nvidia", "Count": -1}]);
    inspection.container["Config"]["Entrypoint"] = json!(["/entry", "first"]);
    let request = Request { seccomp: Some("/io.json".into()), ..request() };
    let found = on_host(&inspection, &request).unwrap();
    let says = |part: &str| {
        assert!(found.notes.iter().any(|note| note.contains(part)), "{part}: {:?}", found.notes);
    };
    says("Its network is that of another container");
    says("removed with the container (--rm)");
    says("no restart policy");
    says("seccomp profile of its own");
    says("DeviceRequests");
    says("entry point of its own");
    assert!(found.now.contains("--entrypoint=/entry"), "{}", found.now);
    assert!(found.now.contains("scylladb/scylla:test \\\n  first \\\n  /tare"), "{}", found.now);
}

#[test]
fn a_host_with_too_few_cpus_is_one_line() {
    let mut inspection = inspection("docker");
    inspection.container["HostConfig"]["NanoCpus"] = json!(64_000_000_000u64);
    let error = on_host(&inspection, &request()).unwrap_err().to_string();
    assert_eq!(error, "it needs 64 CPUs of its own, but this host has 30 for databases");
}
