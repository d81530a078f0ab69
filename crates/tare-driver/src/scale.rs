//! What a load tool asks for at once where a study does not say: threads by the CPUs of the client,
//! clients by those of the system. The study of the record holds the result like any other option.

use tare_lab::study::{LoadCpus, WorkloadSpec};

/// The most threads of a tool that has one for each operation in flight: each has a stack.
const THREADS_MAX: u32 = 1_000;

/// The `scale` of a driver whose load has nothing to do with these CPUs.
pub(super) const fn unscaled(_: &mut WorkloadSpec, _: LoadCpus) {}

/// Returns an option's number, and `default` where it is missing. A study with a number that is
/// none has been refused before.
pub(super) fn number(workload: &WorkloadSpec, option: &str, default: u32) -> u32 {
    let found = workload.options.iter().find(|(name, _)| name == option);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(default)
}

/// Sets an option to a number.
pub(super) fn set(workload: &mut WorkloadSpec, option: &str, value: u32) {
    match workload.options.iter_mut().find(|(name, _)| name == option) {
        Some((_, known)) => *known = value.to_string(),
        None => workload.options.push((option.into(), value.to_string())),
    }
}

/// Sets an option that the workload does not name.
fn set_missing(workload: &mut WorkloadSpec, option: &str, value: u32) {
    if workload.options.iter().all(|(name, _)| name != option) {
        workload.options.push((option.into(), value.to_string()));
    }
}

/// Sets `option` to `each` for every CPU of the system.
pub(super) fn per_system_cpu(workload: &mut WorkloadSpec, cpus: LoadCpus, option: &str, each: u32) {
    set_missing(workload, option, each.saturating_mul(cpus.system));
}

/// Sets the operations in flight of a tool with a thread for each to `each` for every CPU of the
/// system.
pub(super) fn threads_in_flight(workload: &mut WorkloadSpec, cpus: LoadCpus, each: u32) {
    set_missing(workload, "threads", each.saturating_mul(cpus.system).min(THREADS_MAX));
}

/// Sets the threads of a tool that divides its `clients` among them: one for each CPU of the
/// client, and no more than it has clients.
pub(super) fn threads_of_clients(
    workload: &mut WorkloadSpec,
    cpus: LoadCpus,
    option: &str,
    default_clients: u32,
) {
    const MOST: u32 = 256;
    let clients = number(workload, "clients", default_clients);
    set_missing(workload, option, cpus.client.min(clients).clamp(1, MOST));
}

/// Sets the threads of a tool to one for each CPU of the client.
pub(super) fn threads(workload: &mut WorkloadSpec, cpus: LoadCpus) {
    set_missing(workload, "threads", cpus.client.min(256));
}

/// Sets the sessions of a tool: `each` for every CPU of the system, from `least` to `most`.
pub(super) fn sessions(
    workload: &mut WorkloadSpec,
    cpus: LoadCpus,
    option: &str,
    each: u32,
    (least, most): (u32, u32),
) {
    set_missing(workload, option, each.saturating_mul(cpus.system).clamp(least, most));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ALL, DriverInfo};

    const SMALL: LoadCpus = LoadCpus { system: 1, client: 1 };
    const BIG: LoadCpus = LoadCpus { system: 32, client: 24 };

    /// Returns the options of a workload of a driver after its `scale`.
    fn scaled(driver: &DriverInfo, options: &[(&str, &str)], cpus: LoadCpus) -> Vec<String> {
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let mut workload = crate::tests::workload();
        workload.options = options.iter().map(owned).collect();
        (driver.scale)(&mut workload, cpus);
        workload.options.iter().map(|(name, value)| format!("{name}={value}")).collect()
    }

    fn driver(name: &str) -> &'static DriverInfo {
        crate::find(name).unwrap()
    }

    fn check(name: &str, options: &[(&str, &str)], small: &[&str], big: &[&str]) {
        assert_eq!(scaled(driver(name), options, SMALL), small, "{name} on one CPU each");
        assert_eq!(scaled(driver(name), options, BIG), big, "{name} on many CPUs");
    }

    #[test]
    fn tools_use_the_cpus_they_have() {
        check("redis-benchmark", &[], &["threads=1"], &["threads=24"]);
        check(
            "redis-benchmark",
            &[("clients", "8")],
            &["clients=8", "threads=1"],
            &["clients=8", "threads=8"],
        );
        check("redis-benchmark", &[("threads", "3")], &["threads=3"], &["threads=3"]);
        check("pgbench", &[], &["clients=16", "jobs=1"], &["clients=128", "jobs=24"]);
        check(
            "pgbench",
            &[("clients", "4"), ("jobs", "2")],
            &["clients=4", "jobs=2"],
            &["clients=4", "jobs=2"],
        );
        check("h2load", &[], &["clients=16", "threads=1"], &["clients=256", "threads=24"]);
        check("sysbench", &[], &["threads=16"], &["threads=128"]);
        check("cassandra-stress", &[], &["threads=50"], &["threads=1000"]);
        check("ycsb", &[], &["threads=32"], &["threads=1000"]);
        check("latte", &[], &["threads=1"], &["threads=24"]);
        check(
            "scylla-bench",
            &[],
            &["concurrency=64", "connections=4"],
            &["concurrency=2048", "connections=128"],
        );
        check("fio", &[], &[], &[]);
    }

    #[test]
    fn numbers_of_one_cpu_are_the_defaults_of_the_options() {
        // `tare list drivers` shows the default of an option in parentheses at the end.
        for driver in ALL {
            for one in scaled(driver, &[], SMALL) {
                let (name, value) = one.split_once('=').unwrap();
                let option = driver.options.iter().find(|option| option.name == name).unwrap();
                let shown = format!("({value}");
                assert!(option.help.contains(&shown), "{} {name}: {}", driver.name, option.help);
            }
        }
    }
}
