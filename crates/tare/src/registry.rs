//! Everything that can be plugged in, in one place: the words that a study may use.

use tare_lab::study::{OptionWords, SystemWords, Vocabulary};

/// The words of a study, from the `ALL` lists of the crates.
pub(crate) fn vocabulary() -> Vocabulary {
    let values = |name: &str| {
        let layer = tare_env::layer::ALL.iter().find(|layer| layer.name == name);
        let values = layer.map(|layer| layer.values).unwrap_or_default();
        values.iter().map(|(value, _)| (*value).to_string()).collect()
    };
    let option = |option: &tare_system::OptionInfo| OptionWords {
        name: option.name.into(),
        values: option.values.iter().map(|value| (*value).to_string()).collect(),
    };
    let system = |system: &tare_system::SystemInfo| SystemWords {
        name: system.name.into(),
        options: system.options.iter().map(option).collect(),
    };
    Vocabulary {
        runtimes: tare_env::runtime::words(),
        networks: values("network"),
        cpus: values("cpu"),
        securities: values("security"),
        cgroups: values("cgroup"),
        systems: tare_system::ALL.iter().map(system).collect(),
        drivers: tare_load::drivers::ALL.iter().map(|driver| driver.name.into()).collect(),
    }
}
