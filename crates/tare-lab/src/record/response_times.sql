-- Response times at the fixed rate over all rounds. Written when a study ends, so that those who
-- read many records, or cannot read histograms, need none. Intervals are 95 %; NULL is no bound.
CREATE TABLE IF NOT EXISTS response_times (
    workload     TEXT NOT NULL,
    environment  INTEGER NOT NULL REFERENCES environments (id),
    mean_ns      REAL NOT NULL,
    p50_ns       INTEGER NOT NULL,
    p95_ns       INTEGER NOT NULL,
    p99_ns       INTEGER NOT NULL,
    p999_ns      INTEGER NOT NULL,
    max_ns       INTEGER NOT NULL,
    operations   INTEGER NOT NULL,
    PRIMARY KEY (workload, environment)
);
CREATE TABLE IF NOT EXISTS percentiles (
    workload         TEXT NOT NULL,
    environment      INTEGER NOT NULL REFERENCES environments (id),
    percent          REAL NOT NULL,      -- 50, 95, 99, 99.9
    beyond           INTEGER NOT NULL,   -- operations that took longer
    ns               REAL,               -- NULL if fewer than ten did
    ns_low           REAL,
    ns_high          REAL,
    blocks           INTEGER,
    ratio            REAL,               -- to the baseline's; NULL for the baseline
    ratio_low        REAL,
    ratio_high       REAL,
    difference_ns    REAL,
    difference_low   REAL,
    difference_high  REAL,
    ratio_blocks     INTEGER,            -- rounds that both have
    PRIMARY KEY (workload, environment, percent)
);
