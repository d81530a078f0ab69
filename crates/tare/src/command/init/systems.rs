//! What a first study of each database asks: how it is started, loaded and measured.

/// The parts of a study that depend on the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Proposal {
    /// Its name in a study, and as people write it.
    pub(super) system: &'static str,
    pub(super) name: &'static str,
    pub(super) driver: &'static str,
    /// Its options in `[system]`, with what they mean.
    pub(super) options: &'static str,
    /// `[schedule]`.
    pub(super) schedule: &'static str,
    pub(super) workloads: &'static str,
    pub(super) quick_workload: &'static str,
    pub(super) quick_schedule: &'static str,
}

/// In the order in which they are looked for.
pub(super) const ALL: &[Proposal] = &[
    Proposal {
        system: "redis",
        name: "Redis",
        driver: "tare-load",
        options: REDIS,
        schedule: SLICES,
        workloads: KEY_VALUE,
        quick_workload: "mixed",
        quick_schedule: "budget = \"4m\"",
    },
    Proposal {
        system: "valkey",
        name: "Valkey",
        driver: "tare-load",
        options: REDIS,
        schedule: SLICES,
        workloads: KEY_VALUE,
        quick_workload: "mixed",
        quick_schedule: "budget = \"4m\"",
    },
    Proposal {
        system: "postgres",
        name: "PostgreSQL",
        driver: "pgbench",
        options: POSTGRES,
        schedule: PGBENCH_SCHEDULE,
        workloads: PGBENCH,
        quick_workload: "select",
        quick_schedule: "budget = \"4m\", rounds = 12, rounds_min = 8",
    },
    Proposal {
        system: "mariadb",
        name: "MariaDB",
        driver: "sysbench",
        options: MARIADB,
        schedule: SYSBENCH_SCHEDULE,
        workloads: SYSBENCH,
        quick_workload: "select",
        quick_schedule: "budget = \"6m\", rounds = 12, rounds_min = 8",
    },
    Proposal {
        system: "cassandra",
        name: "Cassandra",
        driver: "tare-load",
        options: CASSANDRA,
        schedule: WARM_SLICES,
        workloads: CQL,
        quick_workload: "mixed",
        quick_schedule: "budget = \"10m\", rounds = 12, rounds_min = 8, warm_up = \"40s\"",
    },
    Proposal {
        system: "scylla",
        name: "Scylla",
        driver: "tare-load",
        options: "",
        schedule: LONG_SLICES,
        workloads: CQL,
        quick_workload: "mixed",
        quick_schedule: "budget = \"5m\"",
    },
    Proposal {
        system: "memcached",
        name: "memcached",
        driver: "tare-load",
        options: MEMCACHED,
        schedule: SLICES,
        workloads: KEY_VALUE,
        quick_workload: "mixed",
        quick_schedule: "budget = \"4m\"",
    },
    Proposal {
        system: "tare-db",
        name: "the reference database",
        driver: "tare-load",
        options: TARE_DB,
        schedule: SLICES,
        workloads: CQL,
        quick_workload: "mixed",
        quick_schedule: "budget = \"4m\"",
    },
];

const REDIS: &str = "\
# How it is started (`tare list systems`). Here it keeps its data in memory only; \"yes\" writes a log of each change.
appendonly = \"no\"
";

const MEMCACHED: &str = "\
# Enough for all rows, so that every read finds its row.
memory_mb = 256
";

const TARE_DB: &str = "\
# How it is started (`tare list systems`). \"sync\" acknowledges a write only after the disk has it.
durability = \"periodic\"
";

const POSTGRES: &str = "\
# How it is started (`tare list systems`): yours has these in postgresql.conf.
shared_buffers = \"256MB\"
synchronous_commit = \"on\"
";

const MARIADB: &str = "\
# How it is started (`tare list systems`): yours has these in my.cnf.
innodb_buffer_pool_size = \"256M\"
innodb_flush_log_at_trx_commit = 1
";

const CASSANDRA: &str = "\
heap = \"1G\"
";

const SLICES: &str = "\
# Short slices in random order, and the time for all of it. It ends earlier once every interval is this narrow, in
# percentage points.
window = \"auto\"
budget = \"20m\"
stop_width_percent = 2
";

const LONG_SLICES: &str = "\
# Slices in random order, and the time for all of it. It ends earlier once every interval is this narrow, in percentage
# points.
window = \"1s\"
lead_in = \"250ms\"
budget = \"30m\"
stop_width_percent = 2
";

const WARM_SLICES: &str = "\
# Collections of garbage and compactions take longer than a short slice, and the JVM compiles the code under load, so
# each instance warms up first.
window = \"2s\"
lead_in = \"500ms\"
warm_up = \"60s\"
rounds = 60
rounds_min = 10
# The time for all of it. It ends earlier once every interval is this narrow, in percentage points.
budget = \"1h\"
stop_width_percent = 3
";

const PGBENCH_SCHEDULE: &str = "\
# pgbench runs for whole seconds, and takes a while to open its sessions.
window = \"900ms\"
lead_in = \"600ms\"
rounds = 40
rounds_min = 10
# The time for all of it. It ends earlier once every interval is this narrow, in percentage points.
budget = \"30m\"
stop_width_percent = 2
";

const SYSBENCH_SCHEDULE: &str = "\
# sysbench runs for whole seconds and prints a line each second.
window = \"1s\"
lead_in = \"600ms\"
rounds = 40
rounds_min = 10
# The time for all of it. It ends earlier once every interval is this narrow, in percentage points.
budget = \"30m\"
stop_width_percent = 2
";

const KEY_VALUE: &str = "\
# The load: reads and writes of a value by its key, over connections with one request each, as fast as they are
# answered; then at half of what the baseline did, where the latency is measured.
[[workload]]
name = \"mixed\"
write_share = 0.2
rows = 100_000
columns = 1
column_bytes = 100
keys = \"uniform\"
connections = 64
in_flight = 64
latency_share = 0.5
";

const CQL: &str = "\
# The load: reads and writes of a row by its key, as fast as they are answered; then at half of what the baseline
# did, where the latency is measured. Your own table and queries: workload = \"mine.toml\" in place of write_share,
# columns, column_bytes and keys (docs/reference/load-spec.md).
[[workload]]
name = \"mixed\"
write_share = 0.5
rows = 100_000
columns = 5
column_bytes = 64
keys = \"gaussian\"
latency_share = 0.5
";

const PGBENCH: &str = "\
# The load: one row by its key, which is nearly all network and parsing, and an update that waits for the disk. Your
# own tables and queries: pgbench = { setup = \"/path/to/tables.sql\", script = \"/path/to/query.sql\" }.
[[workload]]
name = \"select\"
latency_share = 0.5
pgbench = { builtin = \"select-only\", scale = 10 }

[[workload]]
name = \"update\"
latency_share = 0.5
pgbench = { builtin = \"simple-update\", scale = 10 }
";

const SYSBENCH: &str = "\
# The load: one row by its key, which is nearly all network and parsing, and an update that waits for the disk. Other
# tests: `tare list drivers`.
[[workload]]
name = \"select\"
latency_share = 0
sysbench = { test = \"oltp_point_select\" }

[[workload]]
name = \"update\"
latency_share = 0
sysbench = { test = \"oltp_update_index\" }
";
