-- Long windows by the second, from 0. Short windows have no rows, nor do drivers that do not count
-- by the second.
CREATE TABLE IF NOT EXISTS load_seconds (
    slice       INTEGER NOT NULL REFERENCES slices (id) ON DELETE CASCADE,
    second      INTEGER NOT NULL,
    operations  INTEGER NOT NULL,
    mean_ns     INTEGER NOT NULL,   -- of response times; in a closed loop, of service times
    max_ns      INTEGER NOT NULL,
    PRIMARY KEY (slice, second)
);
-- The disks below the data directories, all together.
CREATE TABLE IF NOT EXISTS disk_seconds (
    slice          INTEGER NOT NULL REFERENCES slices (id) ON DELETE CASCADE,
    second         INTEGER NOT NULL,
    reads          INTEGER NOT NULL,
    read_mean_ns   INTEGER NOT NULL,
    read_max_ns    INTEGER NOT NULL,
    writes         INTEGER NOT NULL,
    write_mean_ns  INTEGER NOT NULL,
    write_max_ns   INTEGER NOT NULL,
    PRIMARY KEY (slice, second)
);
