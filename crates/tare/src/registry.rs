//! Everything that can be plugged in: the words that a study may use, the checks and cleanups of
//! each crate, and the kinds of journal entries that they own.

use tare_host::housekeeping::Housekeeping;
use tare_host::undo::{KnownKinds, UndoKinds};
use tare_lab::fake;
use tare_lab::study::{KnownOption, KnownPart, KnownWorkload, Vocabulary};
use tare_system::own_rows::OwnRowsKinds;

use crate::campaign::data_cache;
use crate::run_server;

/// What `tare doctor` and `tare clean` run, in the order of the output.
pub(crate) const HOUSEKEEPING: &[Housekeeping] = &[
    tare_host::housekeeping::HOUSEKEEPING,
    tare_tune::HOUSEKEEPING,
    tare_env::doctor::HOUSEKEEPING,
    tare_system::doctor::HOUSEKEEPING,
    tare_driver::doctor::HOUSEKEEPING,
    tare_probe::doctor::HOUSEKEEPING,
    run_server::HOUSEKEEPING,
    data_cache::HOUSEKEEPING,
];

/// The kinds of journal entries in addition to those of `tare-host`.
pub(crate) const KINDS: KnownKinds = &{
    const OF_ENVIRONMENTS: KnownKinds = tare_env::undo::KINDS;
    let mut all: [&dyn UndoKinds; OF_ENVIRONMENTS.len() + 1] =
        [&OwnRowsKinds; OF_ENVIRONMENTS.len() + 1];
    let mut number = 0;
    while number < OF_ENVIRONMENTS.len() {
        all[number] = OF_ENVIRONMENTS[number];
        number += 1;
    }
    all
};

/// Returns the words of a study, from the `ALL` lists of the crates.
pub(crate) fn vocabulary() -> Vocabulary {
    let options = |options: &[(&str, &str)]| -> Vec<KnownOption> {
        let free = |(name, _): &(&str, &str)| KnownOption { name: (*name).into(), values: vec![] };
        options.iter().map(free).collect()
    };
    let options_of = |options: &[tare_lab::study::OptionInfo]| -> Vec<KnownOption> {
        options.iter().map(KnownOption::from).collect()
    };
    let system = |system: &tare_system::SystemInfo| KnownPart {
        name: system.name.into(),
        options: options_of(system.options),
        in_memory: system.in_memory,
    };
    let runtimes = tare_env::runtime::words().into_iter();
    let fake = KnownPart { name: fake::NAME.into(), ..KnownPart::default() };
    let driver = |driver: &tare_driver::DriverInfo| KnownPart {
        name: driver.name.into(),
        options: options_of(driver.options),
        ..KnownPart::default()
    };
    // A workload that cannot be read is unknown; the tests of tare-load read them all.
    let workload = |shipped: &tare_load::workload::shipped::Shipped| {
        let rows = shipped.read().ok()?.rows;
        Some(KnownWorkload { name: shipped.name.into(), text: None, rows })
    };
    Vocabulary {
        runtimes: runtimes.chain(fake::RUNTIMES.iter().map(|name| (*name).into())).collect(),
        host_groups: tare_tune::knobs::names().into_iter().map(String::from).collect(),
        storages: tare_env::storage::ALL
            .iter()
            .map(|kind| KnownPart {
                name: kind.name.into(),
                options: options(kind.options),
                ..KnownPart::default()
            })
            .collect(),
        vm: options(tare_env::runtime::vm::OPTIONS),
        sandbox: tare_env::runtime::gvisor::OPTIONS
            .iter()
            .map(|(name, _, values)| KnownOption {
                name: (*name).into(),
                values: values.iter().map(|value| (*value).to_string()).collect(),
            })
            .collect(),
        systems: tare_system::ALL.iter().map(system).chain([fake.clone()]).collect(),
        drivers: tare_driver::ALL.iter().map(driver).chain([fake]).collect(),
        workloads: tare_load::workload::shipped::ALL.iter().filter_map(workload).collect(),
    }
}
