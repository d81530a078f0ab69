//! What the tests of several drivers share.

use tare_lab::study::WorkloadSpec;
use tare_std::cpus::CpuSet;
pub(crate) use tare_testkit::workload;

use crate::{ALL, Saturation, check_saturation};

/// Returns at most so many CPUs that this process may use.
pub(crate) fn cpus(most: usize) -> CpuSet {
    let affinity = rustix::thread::sched_getaffinity(None).unwrap();
    let numbers = (0u32..1_024).filter(|&cpu| affinity.is_set(cpu as usize));
    numbers.take(most).collect()
}

/// Returns a workload that climbs, with these options.
fn saturating(options: &[(&str, &str)]) -> WorkloadSpec {
    let mut workload = workload();
    workload.load.saturate = Some(tare_lab::study::Saturate::default());
    let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
    workload.options = options.iter().map(owned).collect();
    workload
}

#[test]
fn climb_finds_an_option_that_the_tool_has() {
    for driver in ALL {
        let checked = check_saturation(driver, &saturating(&[]));
        match driver.saturation {
            Saturation::Option(option, default) => {
                assert_eq!(checked, Ok(()));
                let known = driver.options.iter().find(|known| known.name == option).unwrap();
                assert!(known.help.contains(&format!("({default}")), "{}: {}", option, known.help);
                let error = check_saturation(driver, &saturating(&[(option, "8")])).unwrap_err();
                assert!(error.to_string().contains(&format!("leave out {option} or load")));
            }
            Saturation::InFlight => assert_eq!(checked, Ok(())),
            Saturation::Not(_) => {
                let error = checked.unwrap_err().to_string();
                assert!(error.starts_with("workload \"test\": fio cannot do"), "{error}");
                assert!(error.contains("tare disk"), "{error}");
            }
        }
        // A fixed load is not checked.
        assert_eq!(check_saturation(driver, &workload()), Ok(()));
    }
}
