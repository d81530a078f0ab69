//! `docs/reference/probes.md` is made of `ALL`. `TARE_GOLDEN=write cargo test -p tare-probe` makes it
//! anew.

use tare_lab::probe::is_level;

use super::*;

const HEAD: &str = "\
# Probes

*Made from the program's own list; `tare list probes` shows it in short.*

Every slice carries counters: what changed between its two edges. None of these probes disturbs:
each opens its files before the load starts and reads them twice, in well under 1 ms
(`cargo bench --package tare --bench probes` measures what all of them cost together: 0.5 ms at the
beginning and 0.6 ms at the end of a slice on a busy machine of 2 CPUs, which over 0.3 s is 0.37 % of
one CPU. Throughput there wandered too much to show a difference: 0.980 [0.941, 1.021] over 40 pairs).

`tare report FILE.tare --counters` and the page show each counter **per operation**, with its median
over the blocks and a 95 % interval, and the paired difference from the baseline. Counters marked
*level* (names that end in `_at_end`, `_mean`, `_max` or `_share`) are not divided. `throttled_ns`, the time
for which a CPU quota held the environment back, comes from the environment itself and is shown with
them.

In names, `{part}` is `system` (the system's processes), `layer` (what the layer adds, such as a
userland proxy) or `client`; the other parts in braces stand for what the host has.

A probe that cannot open its files, or cannot read them in a slice, is a doubt (`probe_failed`), and
the study goes on without it.

A probe that **disturbs** what it looks at is read only when it is asked for (`tare weigh --syscalls`), in
slices of its own after the rounds, at the same fixed rate in every environment. Its counters stand
in a table of their own, \"traced\", and no other figure comes from these slices.
";

fn reference() -> String {
    let mut text = HEAD.to_string();
    for kind in ALL {
        text += &format!("\n## `{}`\n\n{}.\n\nNeeds: {}. ", kind.name, kind.help, kind.needs);
        if kind.optional {
            text += "Left out without a word where it is not there. ";
        }
        if kind.disturbs {
            text += "**Disturbs.** ";
        }
        text += &format!("Limits: {}.\n\n| counter | what |\n|---|---|\n", kind.limits);
        for counter in kind.counters {
            let level = if is_level(counter.name) { " (level)" } else { "" };
            text += &format!("| `{}` | {}{level} |\n", counter.name, counter.help);
        }
    }
    text
}

#[test]
fn the_reference_is_that_of_the_program() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/probes.md");
    let text = reference();
    if std::env::var_os("TARE_GOLDEN").is_some_and(|value| value == "write") {
        fs::write(&path, &text).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "{} is old; run with TARE_GOLDEN=write", path.display());
}
