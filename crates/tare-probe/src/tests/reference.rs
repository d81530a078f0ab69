//! Generates `docs/reference/probes.md` from `ALL`; `SNAPSHOTS=overwrite cargo test -p tare-probe`
//! writes it.

use tare_lab::probe::is_level;

use super::*;

const HEAD: &str = "\
# Probes

*Generated from the program's list. `tare list probes` shows a short form.*

Every slice has counters: the changes between its two edges. Unless a probe is marked **Disturbs**,
it opens its files before the load starts and reads them twice, in well under 1 ms
(`cargo bench --package tare --bench probes` measures the cost of all of them together: 0.5 ms at the
beginning and 0.6 ms at the end of a slice on a busy machine of 2 CPUs, which over 0.3 s is 0.37 % of
one CPU. Throughput varied too much there to show a difference: 0.980 [0.941, 1.021] over 40 pairs).

`tare report FILE.tare --counters` and the page show each counter **per operation**, with its median
over the rounds and a 95 % interval, and the paired difference from the baseline. Counters marked
*level* (names that end in `_at_end`, `_mean`, `_max` or `_share`) are not divided. `throttled_ns`, the
time for which a CPU quota stopped the environment, comes from the environment itself, and so does
`neighbour_cpu_ns`, the CPU time of its neighbours (`neighbour_1_cpu_ns`, ... if there are several). They
are shown with the other counters, and so is the background work of a system by its own account, read when it is thawed
and before it is frozen again (`background_flushes`, `background_compactions`, `background_garbage_collections_ns`, ...;
docs/guides/systems.md).

In names, `{part}` is `system` (the system's processes), `layer` (the processes that the layer adds,
such as a userland proxy) or `client`. The host determines the other parts in braces.

If a probe cannot open its files, or cannot read them in a slice, the record has a doubt
(`probe_failed`), and the study continues without it.

A probe that **disturbs** what it observes runs only on request (`tare weigh --syscalls`, `--pmu`), in its own
slices after the rounds, at the same fixed rate in every environment. Its counters have their own
table, \"traced\". No other figure comes from these slices.
";

fn reference() -> String {
    let mut text = HEAD.to_string();
    for kind in ALL {
        text += &format!("\n## `{}`\n\n{}.\n\nNeeds: {}. ", kind.name, kind.help, kind.needs);
        if kind.optional {
            text += "A host without it is not reported. ";
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
fn probes_reference_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/probes.md");
    tare_testkit::golden(&path, reference());
}
