//! Kernel-wide limits and switches that are sysctls.
//!
//! What: the table below. Most rules only raise a value, because a higher one was set on purpose.
//! Each row has its reason, source and risk; `kernel.io_uring_disabled` is a security decision and
//! gets advice only. Left out: dirty ratios, cache pressure, overcommit and buffer sizes, on which
//! engines disagree, and busy polling, which helps only with idle CPUs.

use crate::knobs::Context;
use crate::plan::{Action, Group, Item, Key, ValueFormat};

use super::Knob;

#[derive(Debug)]
pub(super) struct Sysctls;

/// One sysctl.
#[derive(Debug)]
struct Sysctl {
    /// `net.core.somaxconn`.
    name: &'static str,
    rule: Rule,
    why: &'static str,
    risk: &'static str,
    source: &'static str,
    /// Whether perftune.py sets it too, to exactly this value, when it tunes a network device.
    in_perftune: bool,
}

#[derive(Clone, Copy, Debug)]
enum Rule {
    AtLeast(u64),
    /// At least the first, and at least the second for each CPU of the plan.
    AtLeastPerCpu(u64, u64),
    Exactly(u64),
}

impl Rule {
    /// Returns the wanted value for the current value.
    fn wanted(self, now: u64, cpus: u64) -> u64 {
        match self {
            Self::AtLeast(least) => now.max(least),
            Self::AtLeastPerCpu(least, per_cpu) => now.max(least).max(per_cpu * cpus),
            Self::Exactly(value) => value,
        }
    }
}

/// In the order of the table in docs/reference.
const TABLE: &[Sysctl] = &[
    Sysctl {
        name: "net.core.somaxconn",
        rule: Rule::AtLeast(4096),
        why: "new connections are dropped and retried after a second when a burst fills the accept \
              queue",
        risk: "some kernel memory for each waiting connection",
        source: "listen(2); Linux Documentation/admin-guide/sysctl/net.rst",
        in_perftune: true,
    },
    Sysctl {
        name: "net.ipv4.tcp_max_syn_backlog",
        rule: Rule::AtLeast(4096),
        why: "the kernel can hold the connection requests of many clients that start at once",
        risk: "about 300 bytes of kernel memory for each request",
        source: "tcp(7); Linux Documentation/networking/ip-sysctl.rst",
        in_perftune: true,
    },
    Sysctl {
        name: "fs.aio-max-nr",
        // Scylla needs 50,000 control blocks of the network, 1,024 of storage and 2 for each shard.
        rule: Rule::AtLeastPerCpu(1 << 20, 51_026),
        why: "an engine on linux-aio that gets no context does not start, or uses a slower method",
        risk: "any process may keep more kernel memory in aio contexts",
        source: "Linux Documentation/admin-guide/sysctl/fs.rst; seastar #2396 (51,026 control blocks \
                 for each shard), scylladb #15010",
        in_perftune: false,
    },
    Sysctl {
        name: "fs.file-max",
        rule: Rule::AtLeast(1 << 20),
        why: "every connection and every table is an open file, and this limits those of the whole host",
        risk: "any process may keep more kernel memory in open files",
        source: "proc_sys_fs(5)",
        in_perftune: false,
    },
    Sysctl {
        name: "fs.nr_open",
        rule: Rule::AtLeast(1 << 20),
        why: "no service can have a higher limit of open files",
        risk: "",
        source: "getrlimit(2); Linux Documentation/admin-guide/sysctl/fs.rst",
        in_perftune: false,
    },
    Sysctl {
        name: "fs.inotify.max_user_instances",
        rule: Rule::AtLeast(1200),
        why: "an engine that watches its certificates uses one per shard; the default of 128 is fewer \
              than the CPUs of a large host",
        risk: "",
        source: "inotify(7)",
        in_perftune: false,
    },
    Sysctl {
        name: "vm.max_map_count",
        rule: Rule::AtLeast(1_048_575),
        why: "engines that map their files (Cassandra, Elasticsearch, MongoDB) fail above this number \
              of mappings",
        risk: "a process that leaks mappings keeps more kernel memory",
        source: "Linux Documentation/admin-guide/sysctl/vm.rst; Cassandra, \"Production recommendations\"",
        in_perftune: false,
    },
    Sysctl {
        name: "vm.zone_reclaim_mode",
        rule: Rule::Exactly(0),
        why: "a full NUMA node drops its page cache although other nodes have free memory",
        risk: "allocations may come from a distant node instead",
        source: "Linux Documentation/admin-guide/sysctl/vm.rst; MongoDB production notes",
        in_perftune: false,
    },
];

const IO_URING_DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

impl Knob for Sysctls {
    fn name(&self) -> &'static str {
        "sysctls"
    }

    fn group(&self) -> Group {
        Group::Limits
    }

    fn help(&self) -> &'static str {
        "kernel-wide limits: backlogs, aio contexts, files, mappings"
    }

    fn why(&self) -> &'static str {
        "the defaults are too low for a database host"
    }

    fn risk(&self) -> &'static str {
        "processes that use up the limits take more kernel memory"
    }

    fn source(&self) -> &'static str {
        "each row has its own: Linux Documentation/admin-guide/sysctl, networking/ip-sysctl.rst"
    }

    fn in_perftune(&self) -> bool {
        true
    }

    /// The kernel reads the length of the accept queue at `listen`, aio contexts at `io_setup`.
    fn takes_effect_at_start(&self) -> bool {
        true
    }

    fn plan(&self, context: &Context<'_>) -> Vec<Item> {
        let perftune = context.options.like_perftune;
        if perftune && context.nics().is_empty() {
            return Vec::new();
        }
        let rows = TABLE.iter().filter(|row| !perftune || row.in_perftune);
        let mut items: Vec<Item> = rows.filter_map(|row| self.row(context, row)).collect();
        if !perftune {
            items.extend(self.io_uring(context));
        }
        items
    }
}

impl Sysctls {
    fn row(&self, context: &Context<'_>, row: &Sysctl) -> Option<Item> {
        let path = path(row.name);
        let now = context.snapshot.read_number::<u64>(&path)?;
        let cpus = u64::try_from(context.cpus.universe.len()).unwrap_or(u64::MAX);
        let wanted = match (row.rule, context.options.like_perftune) {
            (Rule::AtLeast(value), true) => value,
            (rule, _) => rule.wanted(now, cpus),
        };
        let wanted = wanted.to_string();
        let mut item =
            context.item(self, "host", row.name, Key::file(path), ValueFormat::Text, &wanted)?;
        item.why = format!("{} ({})", row.why, row.source);
        item.risk = row.risk.into();
        Some(item)
    }

    /// Returns advice where io_uring is disabled: that is a decision about the host's security.
    fn io_uring(&self, context: &Context<'_>) -> Option<Item> {
        let now = context.snapshot.read(IO_URING_DISABLED)?;
        let who = match now {
            "0" => return None,
            "1" => "only for members of kernel.io_uring_group",
            _ => "for nobody",
        };
        let action = Action::Advise {
            now: format!("{now} ({who})"),
            wanted: "0, or the engine's group in kernel.io_uring_group".into(),
            how: "sysctl kernel.io_uring_disabled=0, if the host's security allows it".into(),
        };
        let mut item = context.line(self, "host", "kernel.io_uring_disabled", action);
        item.why = "engines that use io_uring fall back to linux-aio or a thread pool (Linux \
                    Documentation/admin-guide/sysctl/kernel.rst)"
            .into();
        item.risk = "io_uring is a large part of the kernel's attack surface".into();
        Some(item)
    }
}

/// Returns the path of a sysctl: `net.core.somaxconn` is /proc/sys/net/core/somaxconn
/// (proc_sys(5)).
fn path(name: &str) -> String {
    format!("/proc/sys/{}", name.replace('.', "/"))
}
