use super::*;
use proptest::prelude::*;

fn node() -> impl Strategy<Value = Node> {
    let odd = prop_oneof![
        Just(String::new()),
        Just(" ".to_string()),
        Just("a = b -> c/".to_string()),
        Just("\"quoted".to_string()),
        Just("[none] mq-deadline".to_string()),
        Just("# no comment".to_string()),
        Just("two\nlines".to_string()),
        Just("\n\n".to_string()),
        Just("ends\r\n".to_string()),
        ".{0,12}",
        "(?s).{0,20}",
    ];
    prop_oneof![
        4 => odd.prop_map(Node::File),
        1 => "[a-z./]{1,12}".prop_map(Node::Link),
        1 => Just(Node::Directory),
    ]
}

fn path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        3 => "[a-z0-9_:]{1,6}",
        1 => Just("a = b".to_string()),
        1 => Just("a -> b".to_string()),
        1 => Just("ends =".to_string()),
        1 => Just("..".to_string()),
        1 => "[^/\0]{1,5}",
    ];
    let top =
        prop_oneof![Just("sys"), Just("proc"), Just("tare"), Just("other"), Just("host.toml")];
    (top, prop::collection::vec(part, 0..4)).prop_map(|(top, parts)| {
        // A name is either a file or a folder, never both.
        let folders = parts.iter().rev().skip(1).rev().map(|part| format!("/{part}_d"));
        let last = parts.last().map(|part| format!("/{part}")).unwrap_or_default();
        format!("/{top}{}{last}", folders.collect::<String>())
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn saved_snapshot_loads_equal(nodes in prop::collection::btree_map(path(), node(), 0..20)) {
        let folder = tempfile::tempdir().unwrap();
        let mut snapshot = Snapshot::default();
        for (path, node) in nodes {
            snapshot.nodes.insert(path, node);
        }
        let clean = snapshot.sanitised();
        snapshot.save(folder.path()).unwrap();
        prop_assert_eq!(&Snapshot::load(folder.path()).unwrap(), &clean);
        // Saving again replaces it.
        clean.save(folder.path()).unwrap();
        prop_assert_eq!(Snapshot::load(folder.path()).unwrap(), clean);
    }
}

#[test]
fn saved_folder_is_readable_and_editable() {
    let folder = tempfile::tempdir().unwrap();
    let mut snapshot = Snapshot::default();
    let file = |text: &str| Node::File(text.into());
    snapshot.insert("/proc/interrupts", file("  CPU0\n 1: 5"));
    snapshot.insert("/proc/irq/1/eth0", Node::Directory);
    snapshot.insert("/proc/cmdline", file(""));
    snapshot.insert("/sys/block/vda/queue/scheduler", file("[none] kyber"));
    snapshot.insert("/sys/class/block/vda", Node::Link("../../block/vda".into()));
    snapshot.save(folder.path()).unwrap();
    let values = fs::read_to_string(folder.path().join("values.txt")).unwrap();
    let expect = "/proc/cmdline = \n/proc/irq/1/eth0/\n\
        /sys/block/vda/queue/scheduler = [none] kyber\n/sys/class/block/vda -> ../../block/vda\n";
    assert_eq!(values, expect);
    let interrupts = fs::read_to_string(folder.path().join("proc/interrupts")).unwrap();
    assert_eq!(interrupts, "  CPU0\n 1: 5\n");
    // A comment, and an editor that trims spaces.
    let edited = format!("# mine\n\n{}", values.replace("cmdline = ", "cmdline ="));
    fs::write(folder.path().join("values.txt"), edited).unwrap();
    assert_eq!(Snapshot::load(folder.path()).unwrap(), snapshot);
}

#[test]
fn refuses_folder_that_is_no_recorded_host() {
    let folder = tempfile::tempdir().unwrap();
    let load = || Snapshot::load(folder.path());
    assert!(load().unwrap_err().to_string().ends_with("it has no host.toml"));
    fs::write(folder.path().join("mine"), "").unwrap();
    let occupied = Snapshot::default().save(folder.path()).unwrap_err();
    assert!(occupied.to_string().ends_with("give an empty folder"), "{occupied}");
    fs::write(folder.path().join("host.toml"), "format = 2\ntare = \"9.0.0\"\nnew = 1\n").unwrap();
    let newer = load().unwrap_err().to_string();
    assert!(newer.contains("has format 2") && newer.ends_with("use a newer one"), "{newer}");
    fs::write(folder.path().join("host.toml"), "format = 1\ntare = \"0.1.0\"\n").unwrap();
    for line in ["no path", "relative = 1", "/a \"b\"", "/a = \"open", "\"/a", "\"/a\" x", "/"] {
        fs::write(folder.path().join("values.txt"), format!("/ok = 1\n{line}\n")).unwrap();
        let error = load().unwrap_err().to_string();
        assert!(error.contains("values.txt:2: "), "{line}: {error}");
    }
}

#[test]
fn formats_dates() {
    for (days, expect) in [
        (0, "1970-01-01"),
        (59, "1970-03-01"),
        (11_016, "2000-02-29"),
        (11_017, "2000-03-01"),
        (20_778, "2026-11-21"),
    ] {
        assert_eq!(date(days), expect);
    }
}
