-- Schema of a Tare record. One file holds one study run. Times are in ns unless a name says
-- otherwise; unix times are in ms. Names in `slices` are ids, so read the view `slice_figures` first.
CREATE TABLE record (
    tare_version     TEXT NOT NULL,
    started_unix_ms  INTEGER NOT NULL,
    ended_unix_ms    INTEGER,            -- NULL during the study, and after a crash
    seed             TEXT NOT NULL,      -- 64 bits, unsigned, in decimal
    command          TEXT NOT NULL,      -- JSON array of arguments
    ending           TEXT,
    study_name       TEXT NOT NULL,
    baseline         TEXT NOT NULL,
    study_text       TEXT NOT NULL,      -- text of the study file
    study            TEXT NOT NULL,      -- the checked study as JSON, defaults filled in
    cpus_all         TEXT NOT NULL,
    cpus_system      TEXT NOT NULL,
    cpus_client      TEXT NOT NULL,
    cpu_plan         TEXT                -- JSON: the whole plan; NULL until version 8
);
CREATE TABLE host_facts (
    section  TEXT NOT NULL,
    key      TEXT NOT NULL,
    value    TEXT NOT NULL
);
CREATE TABLE rates (                     -- fixed rate of the latency phase
    workload    TEXT PRIMARY KEY,
    rate_per_s  REAL NOT NULL
);
CREATE TABLE environments (
    id            INTEGER PRIMARY KEY,   -- order of the study; the A/A control last
    name          TEXT NOT NULL UNIQUE,
    runtime       TEXT NOT NULL,
    network       TEXT NOT NULL,
    cpu           TEXT NOT NULL,
    security      TEXT NOT NULL,
    cgroup        TEXT NOT NULL,
    memory_bytes  INTEGER,
    optional      INTEGER NOT NULL,
    control       INTEGER NOT NULL,
    left_out      TEXT,
    config        TEXT,
    ready_ns      INTEGER,
    teardown_ns   INTEGER,
    host          TEXT NOT NULL DEFAULT 'as-is', -- the host layer; since version 2
    storage       TEXT,           -- JSON: kind and options; NULL is a directory; since version 4
    vm            TEXT,           -- JSON: options of a virtual machine; since version 4
    inject        TEXT,           -- injected cost; NULL is none; since version 4
    sandbox       TEXT,           -- JSON: options of gVisor; since version 6
    rootfs        TEXT            -- JSON: source of the root file system; since version 7
);
CREATE TABLE layers (
    environment  INTEGER NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    layer        TEXT NOT NULL,
    wanted       TEXT NOT NULL,
    found        TEXT NOT NULL,
    in_force     INTEGER NOT NULL
);
CREATE TABLE settings (
    environment  INTEGER NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    key          TEXT NOT NULL,
    value        TEXT NOT NULL
);
CREATE TABLE blocks (                    -- complete rounds; resume drops the slices of others
    block          INTEGER PRIMARY KEY,
    ended_unix_ms  INTEGER NOT NULL
);
CREATE TABLE slices (
    id                INTEGER PRIMARY KEY AUTOINCREMENT,
    block             INTEGER NOT NULL,
    position          INTEGER NOT NULL,
    environment       INTEGER NOT NULL REFERENCES environments (id),
    workload          TEXT NOT NULL,
    phase             TEXT NOT NULL CHECK (phase IN ('capacity', 'latency', 'traced', 'slo')),
    started_unix_ms   INTEGER NOT NULL,
    window_ns         INTEGER NOT NULL,
    operations        INTEGER NOT NULL,
    unsent            INTEGER NOT NULL,
    rate_per_s        REAL,
    system_cpu_ns     INTEGER NOT NULL,
    busy_ns           INTEGER,           -- busy time measured by the system, or NULL
    idle_poll_ns      INTEGER,
    client_cpu_ns     INTEGER NOT NULL,
    throttled_ns      INTEGER,
    void              TEXT,              -- why the slice is void; NULL if valid
    start             INTEGER NOT NULL DEFAULT 0, -- start of the environment, from 0; since version 9
    account_ns        INTEGER            -- time between the readings of the accounts; since version 9
);
CREATE INDEX slices_by_block ON slices (block);
CREATE TABLE layer_cpu (                 -- CPU time that a layer adds outside the system
    slice  INTEGER NOT NULL REFERENCES slices (id) ON DELETE CASCADE,
    part   TEXT NOT NULL,
    ns     INTEGER NOT NULL
);
CREATE INDEX layer_cpu_by_slice ON layer_cpu (slice);
CREATE TABLE errors (
    slice  INTEGER NOT NULL REFERENCES slices (id) ON DELETE CASCADE,
    kind   TEXT NOT NULL,
    count  INTEGER NOT NULL
);
CREATE INDEX errors_by_slice ON errors (slice);
CREATE TABLE counters (
    slice  INTEGER NOT NULL REFERENCES slices (id) ON DELETE CASCADE,
    name   TEXT NOT NULL,
    value  REAL NOT NULL
);
CREATE INDEX counters_by_slice ON counters (slice);
CREATE TABLE histograms (                -- HdrHistogram V2, compressed; values in ns
    slice  INTEGER NOT NULL REFERENCES slices (id) ON DELETE CASCADE,
    kind   TEXT NOT NULL CHECK (kind IN ('response', 'service')),
    data   BLOB NOT NULL,
    PRIMARY KEY (slice, kind)
);
CREATE TABLE IF NOT EXISTS server_histograms ( -- latency inside the system, by its own account
    slice  INTEGER PRIMARY KEY REFERENCES slices (id) ON DELETE CASCADE,
    data   BLOB NOT NULL                 -- HdrHistogram V2, compressed; values in ns
);
CREATE TABLE doubts (
    id           INTEGER PRIMARY KEY,
    slice        INTEGER REFERENCES slices (id) ON DELETE CASCADE,
    environment  INTEGER REFERENCES environments (id),
    kind         TEXT NOT NULL,
    detail       TEXT NOT NULL,          -- the doubt as JSON
    text         TEXT NOT NULL           -- the doubt as a sentence
);
CREATE INDEX doubts_by_slice ON doubts (slice);

CREATE VIEW slice_figures AS
SELECT s.id, s.block, s.position, e.name AS environment, s.workload, s.phase,
       s.operations * 1e9 / NULLIF(s.window_ns, 0) AS operations_per_s,
       (COALESCE(s.system_cpu_ns - s.idle_poll_ns, s.system_cpu_ns)
           + COALESCE((SELECT SUM(ns) FROM layer_cpu l WHERE l.slice = s.id), 0))
           / 1e3 / NULLIF(s.operations, 0) AS server_cpu_us_per_operation,
       s.client_cpu_ns / 1e3 / NULLIF(s.operations, 0) AS client_cpu_us_per_operation,
       s.rate_per_s, s.void,
       (SELECT COUNT(*) FROM doubts d WHERE d.slice = s.id) AS doubts
FROM slices s JOIN environments e ON e.id = s.environment;

CREATE VIEW layers_not_in_force AS
SELECT e.name AS environment, l.layer, l.wanted, l.found
FROM layers l JOIN environments e ON e.id = l.environment WHERE NOT l.in_force;
