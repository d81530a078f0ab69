//! `cargo bench -p tare --bench limits_against_fio [-- ROUNDS]`
//!
//! Sets each limit of bandwidth and operations in an environment, and measures through it what
//! passes: fio for the limits of the disk, the database's reads for that of the network, whose
//! bytes the kernel counts at the system's device. Prints limit, measured and ratio. Needs root,
//! fio, nftables, tc, and a disk below the temporary directory that TMPDIR names.
#![allow(clippy::print_stdout, reason = "a bench prints its figures")]

use std::error::Error;
use std::path::Path;

use tare_host::block::Disk;
use tare_host::exec;

#[path = "tiny/study.rs"]
mod study;
mod tiny;

use study::{counter_per_s, per_s, weigh};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A limit of the disk: key, value as a study writes it, value in its unit, fio's load, and bytes
/// of an operation (1 for a limit of operations).
const DISK: [(&str, &str, f64, &str, f64); 8] = [
    ("read_bandwidth", "\"8M\"", MIB * 8.0, "read\", bs = \"64k", 65536.0),
    ("read_bandwidth", "\"32M\"", MIB * 32.0, "read\", bs = \"64k", 65536.0),
    ("write_bandwidth", "\"8M\"", MIB * 8.0, "write\", bs = \"64k", 65536.0),
    ("write_bandwidth", "\"32M\"", MIB * 32.0, "write\", bs = \"64k", 65536.0),
    ("read_iops", "500", 500.0, "randread\", bs = \"4k", 1.0),
    ("read_iops", "2000", 2000.0, "randread\", bs = \"4k", 1.0),
    ("write_iops", "500", 500.0, "randwrite\", bs = \"4k", 1.0),
    ("write_iops", "1000", 1000.0, "randwrite\", bs = \"4k", 1.0),
];

const NETWORK: [(&str, f64); 2] = [("\"4M\"", MIB * 4.0), ("\"16M\"", MIB * 16.0)];

const MIB: f64 = 1_048_576.0;

fn schedule(rounds: u32, tiny: bool) -> String {
    let (window, lead_in) = if tiny { ("100ms", "20ms") } else { ("3s", "500ms") };
    format!(
        "[schedule]\nwindow = \"{window}\"\nlead_in = \"{lead_in}\"\nrounds = {rounds}\n\
         rounds_min = {rounds}\nbudget = \"20m\"\n"
    )
}

/// The study of one load: the baseline without a limit, and an environment for each limit.
fn disk_study(load: &str, limits: &[(&str, &str)], schedule: &str) -> String {
    let mut text = format!(
        "name = \"limits\"\nbaseline = \"free\"\ndriver = \"fio\"\n[system]\nname = \"fio\"\n{schedule}\
         [[environment]]\nname = \"free\"\nruntime = \"process\"\ncgroup = \"own\"\n\
         [[workload]]\nname = \"w\"\nlatency_share = 0\n\
         fio = {{ rw = \"{load}\", iodepth = 4, numjobs = 1, size = \"64M\", ioengine = \"libaio\", \
         direct = true }}\n"
    );
    for (key, value) in limits {
        text += &format!(
            "[[environment]]\nname = \"{key} {}\"\nextends = \"free\"\nlimits = {{ {key} = {value} }}\n",
            value.trim_matches('"')
        );
    }
    text
}

fn network_study(schedule: &str) -> String {
    let mut text = format!(
        "name = \"network\"\nbaseline = \"free\"\n[system]\nname = \"tare-db\"\nmemory = \"256M\"\n{schedule}\
         [[environment]]\nname = \"free\"\nruntime = \"process\"\nnetwork = \"bridge\"\ncgroup = \"own\"\n\
         [[workload]]\nname = \"w\"\nwrite_share = 0\nrows = 500\ncolumns = 1\ncolumn_bytes = 4096\n\
         latency_share = 0\n"
    );
    for (value, _) in NETWORK {
        text += &format!(
            "[[environment]]\nname = \"network {}\"\nextends = \"free\"\n\
             limits = {{ network_bandwidth = {value} }}\n",
            value.trim_matches('"')
        );
    }
    text
}

fn row(name: &str, limit: f64, measured: f64, free: f64) {
    let ratio = measured / limit;
    println!("{name:<24}{limit:>14.0}{measured:>14.0}{ratio:>9.4}{free:>16.0}");
}

fn main() -> Result<()> {
    let (words, tiny) = tiny::words();
    let named = words.iter().find_map(|word| word.parse().ok());
    let rounds: u32 = named.unwrap_or(if tiny { 2 } else { 6 });
    let missing = ["fio", "nft", "tc"].into_iter().find(|name| exec::find(name).is_none());
    let here = tempfile::tempdir()?;
    let why = match missing {
        _ if !rustix::process::geteuid().is_root() => Some("needs root".to_string()),
        Some(program) => Some(format!("needs {program} on the PATH")),
        None if Disk::below(here.path())?.is_none() => Some("TMPDIR is on no disk".into()),
        None => None,
    };
    if let Some(why) = why {
        println!("skipped: limits_against_fio: {why}");
        return Ok(());
    }
    println!(
        "{:<24}{:>14}{:>14}{:>9}{:>16}",
        "limit", "per s", "measured", "ratio", "without limit"
    );
    let schedule = schedule(rounds, tiny);
    for (number, limits) in DISK.chunks(2).enumerate() {
        disk(here.path(), number, limits, &schedule)?;
    }
    let report = weigh(here.path(), "network", &network_study(&schedule))?;
    let free = counter_per_s(&report, "free", "system_net_out_bytes")?;
    for (value, limit) in NETWORK {
        let name = format!("network {}", value.trim_matches('"'));
        let measured = counter_per_s(&report, &name, "system_net_out_bytes")?;
        row(&format!("network_bandwidth {}", value.trim_matches('"')), limit, measured, free);
    }
    Ok(())
}

/// Runs the study of limits that have the same load, and prints them.
fn disk(
    here: &Path,
    number: usize,
    limits: &[(&str, &str, f64, &str, f64)],
    schedule: &str,
) -> Result<()> {
    let Some((.., load, _)) = limits.first() else { return Ok(()) };
    let named: Vec<(&str, &str)> = limits.iter().map(|(key, value, ..)| (*key, *value)).collect();
    let report = weigh(here, &format!("disk-{number}"), &disk_study(load, &named, schedule))?;
    for (key, value, limit, _, bytes) in limits {
        let name = format!("{key} {}", value.trim_matches('"'));
        row(&name, *limit, per_s(&report, &name)? * bytes, per_s(&report, "free")? * bytes);
    }
    Ok(())
}
