//! Unsafe code lies in the listed files alone.

use super::source;
use super::tree::Tree;

/// Files that may contain `unsafe`, each with the reason.
const FILES: [(&str, &str); 12] = [
    ("crates/tare/benches/against_others/rings.rs", "io_uring's queues are raw memory"),
    ("crates/tare-db/src/net/reactor/uring.rs", "io_uring's queues are raw memory"),
    ("crates/tare-db/src/node/memory/heap.rs", "mallopt has no safe interface"),
    ("crates/tare-db/src/node/metrics/page.rs", "counters in a shared memory mapping"),
    ("crates/tare-disk/src/sys.rs", "io_uring's buffers and mincore are raw memory"),
    ("crates/tare-host/src/cpu_clock.rs", "clock_getcpuclockid has no safe interface"),
    ("crates/tare-host/src/memory_policy.rs", "set_mempolicy and prctl have no safe interface"),
    ("crates/tare-host/src/user_namespace.rs", "mount_setattr has no safe interface"),
    ("crates/tare-load/tests/memory.rs", "an allocator that counts"),
    ("crates/tare-probe/src/account_refresh/sys.rs", "sched_setscheduler has no safe interface"),
    ("crates/tare-probe/src/bpf/sys.rs", "bpf(2) takes addresses"),
    ("crates/tare-probe/src/card_queues/sys.rs", "ioctl(2) takes addresses"),
];

pub(super) fn check(tree: &Tree) -> Vec<String> {
    let listed: Vec<&str> = FILES.iter().map(|(path, _)| *path).collect();
    against(tree, &listed)
}

fn against(tree: &Tree, listed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in tree.ending("rs").filter(|(path, _)| !listed.contains(path)) {
        // Most files do not have the word at all.
        if text.contains("unsafe") && source::has_word(&source::parse(text).code, "unsafe") {
            found.push(format!("{path}: unsafe code in a file that is not listed"));
        }
    }
    let gone = listed.iter().filter(|path| tree.text(path).is_none());
    found.extend(gone.map(|path| format!("{path}: listed for unsafe code, but gone")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_code_outside_the_list_is_found() {
        let files = [
            ("listed.rs", "unsafe { f() }"),
            ("other.rs", "unsafe impl Send for A {}"),
            ("prose.rs", "#![forbid(unsafe_code)] // unsafe\nconst A: &str = \"unsafe\";"),
        ];
        let found = against(&Tree::of(&files), &["listed.rs", "gone.rs"]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("other.rs") && found[1].starts_with("gone.rs"));
    }
}
