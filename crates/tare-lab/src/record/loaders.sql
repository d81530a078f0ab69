-- Hosts that loaded the system together. Without a row the client on the host itself did.
CREATE TABLE IF NOT EXISTS loaders (
    id            INTEGER PRIMARY KEY,   -- order of the study
    host          TEXT NOT NULL,         -- local, ssh:HOST
    cpus          TEXT NOT NULL,         -- of its load threads
    kernel        TEXT NOT NULL,
    architecture  TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS slice_loaders (
    slice              INTEGER NOT NULL REFERENCES slices (id) ON DELETE CASCADE,
    loader             INTEGER NOT NULL REFERENCES loaders (id),
    window_ns          INTEGER NOT NULL,
    operations         INTEGER NOT NULL,
    cpu_ns             INTEGER NOT NULL,
    busiest_thread_ns  INTEGER NOT NULL,
    waited_ns          INTEGER,          -- its threads for a CPU; NULL if its kernel does not tell
    begin_offset_ns    INTEGER NOT NULL, -- its window opened this much after the harness's
    end_offset_ns      INTEGER NOT NULL, -- and closed
    clock_error_ns     INTEGER NOT NULL, -- bound of the error of these two
    PRIMARY KEY (slice, loader)
);
