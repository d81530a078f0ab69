//! The latency of commands inside Redis and Valkey: how long each was executed.
//!
//! Method: `INFO commandstats` has the calls of each command and their time, in whole µs in total
//! (<https://redis.io/docs/latest/commands/info/>), and since version 7 `LATENCY HISTOGRAM` their
//! distribution (<https://redis.io/docs/latest/commands/latency-histogram/>).
//!
//! Limits: the buckets of the distribution are doublings from 1.024 µs on, and most commands are in
//! the first one. Commands of Tare, and those by which load tools look at the server, do not count.

use tare_lab::system::OwnLatency;

use super::client_route::{ClientRouteError, SystemConnection};
use super::redis_answers::{count, element, pairs};

/// The first words of commands that are no load.
const NO_LOAD: [&str; 8] =
    ["auth", "client", "command", "config", "hello", "info", "latency", "select"];
/// The upper bound of the first bucket, in ns: 2^10, as Redis counts.
const FIRST_NS: u64 = 1 << 10;
/// More buckets than a command can be slow: the last one is at two days.
const BUCKETS: usize = 38;

/// Asks a server.
pub(super) fn read(line: &mut SystemConnection) -> Result<OwnLatency, ClientRouteError> {
    line.send("INFO commandstats", b"INFO commandstats\r\n")?;
    let (requests, sum_ns) = totals(&element(line)?);
    line.send("LATENCY HISTOGRAM", b"LATENCY HISTOGRAM\r\n")?;
    let head = line.line()?;
    // A version before 7, or a user who may not ask.
    let Some(fields) = head.strip_prefix('*').and_then(|text| text.parse::<u64>().ok()) else {
        return Ok(OwnLatency { requests, sum_ns, buckets: Vec::new() });
    };
    let mut buckets: Vec<(u64, u64)> = (0..BUCKETS).map(|bucket| (middle_ns(bucket), 0)).collect();
    for _ in 0..fields / 2 {
        let command = element(line)?;
        for (bound_us, counted) in distribution(line)? {
            if is_load(&command) {
                buckets[bucket_of(bound_us)].1 += counted;
            }
        }
    }
    Ok(OwnLatency { requests, sum_ns, buckets })
}

/// Reads the distribution of a command: the number of calls, and the buckets with their upper
/// bounds in µs. Redis sums the counts up from bucket to bucket.
fn distribution(line: &mut SystemConnection) -> Result<Vec<(u64, u64)>, ClientRouteError> {
    let mut found = Vec::new();
    for _ in 0..count(line, '*')? / 2 {
        if element(line)? != "histogram_usec" {
            count(line, ':')?;
            continue;
        }
        let mut below = 0;
        for _ in 0..count(line, '*')? / 2 {
            let bound_us = count(line, ':')?;
            let up_to = count(line, ':')?;
            found.push((bound_us, up_to.saturating_sub(below)));
            below = up_to;
        }
    }
    Ok(found)
}

fn is_load(command: &str) -> bool {
    !NO_LOAD.contains(&command.split('|').next().unwrap_or_default())
}

/// Sums the calls of commands, and their time in ns.
fn totals(stats: &str) -> (u64, u64) {
    let (mut calls, mut sum_ns) = (0, 0);
    for (name, fields) in pairs(stats) {
        if !name.strip_prefix("cmdstat_").is_some_and(is_load) {
            continue;
        }
        for field in fields.split(',') {
            let number = |name: &str| field.strip_prefix(name)?.parse::<u64>().ok();
            calls += number("calls=").unwrap_or(0);
            sum_ns += number("usec=").unwrap_or(0).saturating_mul(1_000);
        }
    }
    (calls, sum_ns)
}

/// Returns the bucket with an upper bound in whole µs, which is rounded down.
fn bucket_of(bound_us: u64) -> usize {
    (bound_us.max(1).ilog2() as usize).min(BUCKETS - 1)
}

/// Returns the latency in the middle of a bucket, in ns.
fn middle_ns(bucket: usize) -> u64 {
    match bucket {
        0 => FIRST_NS / 2,
        bucket => (FIRST_NS << bucket) / 4 * 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_of_the_load_are_summed() {
        // Of Redis 7.0.15.
        let stats = "# Commandstats\r\n\
            cmdstat_get:calls=20000,usec=4238,usec_per_call=0.21,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_config|get:calls=2,usec=12,usec_per_call=6.00,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_info:calls=9,usec=900,usec_per_call=100.00,rejected_calls=0,failed_calls=0\r\n\
            cmdstat_set:calls=10000,usec=4142,usec_per_call=0.21,rejected_calls=0,failed_calls=0\r\n";
        assert_eq!(totals(stats), (30_000, 8_380_000));
        assert_eq!(totals(""), (0, 0));
    }

    #[test]
    fn bounds_of_redis_are_doublings() {
        for (bucket, bound_us) in
            [1, 2, 4, 8, 16, 33, 66, 132, 264, 528, 1056].into_iter().enumerate()
        {
            assert_eq!(bucket_of(bound_us), bucket, "{bound_us}");
            assert!(middle_ns(bucket) < (bound_us + 1) * 1_000);
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }
}
