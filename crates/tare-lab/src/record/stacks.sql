-- Since version 3: slices in which stacks were sampled. They are no part of any other figure.
CREATE TABLE IF NOT EXISTS stack_slices (
    id               INTEGER PRIMARY KEY AUTOINCREMENT,
    round            INTEGER NOT NULL,   -- every environment once
    position         INTEGER NOT NULL,
    environment      INTEGER NOT NULL REFERENCES environments (id),
    workload         TEXT NOT NULL,
    started_unix_ms  INTEGER NOT NULL,
    window_ns        INTEGER NOT NULL,
    operations       INTEGER NOT NULL,
    rate_per_s       REAL NOT NULL,
    event            TEXT NOT NULL,      -- what ticked
    void             TEXT,               -- why it does not count
    kind             TEXT NOT NULL DEFAULT 'on-cpu'  -- on-cpu, off-cpu or interrupt-cpus; since version 5
);
CREATE TABLE IF NOT EXISTS stack_cpu (                 -- CPU time by the accounts, which the samples divide
    slice         INTEGER NOT NULL REFERENCES stack_slices (id) ON DELETE CASCADE,
    part          TEXT NOT NULL,         -- system, client, or what a layer adds
    cpu_ns        INTEGER NOT NULL,
    idle_poll_ns  INTEGER NOT NULL       -- of it polling without work, by the system's own account
);
CREATE INDEX IF NOT EXISTS stack_cpu_by_slice ON stack_cpu (slice);
CREATE TABLE IF NOT EXISTS stacks (
    id         INTEGER PRIMARY KEY,
    folded     TEXT NOT NULL,            -- root;...;leaf, the kernel's frames end with _[k]
    part       TEXT NOT NULL,
    subsystem  TEXT NOT NULL,
    UNIQUE (folded, part, subsystem)
);
CREATE TABLE IF NOT EXISTS stack_samples (
    slice    INTEGER NOT NULL REFERENCES stack_slices (id) ON DELETE CASCADE,
    stack    INTEGER NOT NULL REFERENCES stacks (id),
    samples  INTEGER NOT NULL            -- of off-cpu slices: ns waited
);
CREATE INDEX IF NOT EXISTS stack_samples_by_slice ON stack_samples (slice);
