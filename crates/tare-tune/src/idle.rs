//! Idle states, held shallow while a study runs.
//!
//! Method: whoever keeps /dev/cpu_dma_latency open asks the kernel that no CPU enters a state that takes
//! longer to leave than the 32-bit number of microseconds that he wrote (the kernel's
//! Documentation/power/pm_qos_interface.rst). The request ends with the file: nothing has to be undone,
//! also after `kill -9`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// The device that takes the request.
pub const DEVICE: &str = "/dev/cpu_dma_latency";

/// Where the states of a CPU stand.
const CPUIDLE: &str = "/sys/devices/system/cpu/cpu0/cpuidle";

/// Keeps idle states shallow for as long as it lives.
#[derive(Debug)]
pub struct Hold {
    /// Longest time to leave an idle state, µs.
    pub latency_us_max: i32,
    _device: File,
}

/// Why idle states could not be held.
#[derive(Debug, thiserror::Error)]
pub enum IdleError {
    #[error("cannot ask for shallow idle states through {path}; run as root, or without it")]
    Open { path: String, source: std::io::Error },
}

impl Hold {
    /// Holds the CPUs of this host in states no deeper than the first that saves energy (C1), as
    /// tuned's latency-performance does: polling instead would take turbo and the sibling's time.
    /// `None` where no driver of idle states is at work, as in most guests.
    ///
    /// # Errors
    /// When the device cannot be opened or written: not root, or not there.
    pub fn open() -> Result<Option<Self>, IdleError> {
        match first_state_latency_us(Path::new(CPUIDLE)) {
            Some(latency_us) => Self::at(Path::new(DEVICE), latency_us).map(Some),
            None => Ok(None),
        }
    }

    /// Writes the request into a device.
    ///
    /// # Errors
    /// When it cannot be opened or written.
    pub fn at(device: &Path, latency_us_max: i32) -> Result<Self, IdleError> {
        let open = || {
            let mut file = OpenOptions::new().write(true).open(device)?;
            file.write_all(&latency_us_max.to_ne_bytes())?;
            Ok(file)
        };
        let fails = |source| IdleError::Open { path: device.display().to_string(), source };
        open().map_err(fails).map(|device| Self { latency_us_max, _device: device })
    }
}

/// Exit latency of the first state that takes any time to leave (state 0 often polls and takes none).
fn first_state_latency_us(folder: &Path) -> Option<i32> {
    let latency = |index: u32| {
        let text = std::fs::read_to_string(folder.join(format!("state{index}/latency"))).ok()?;
        text.trim().parse::<i32>().ok()
    };
    (0..).map_while(latency).find(|latency| *latency > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_four_bytes_in_the_order_of_the_host() {
        let folder = std::env::temp_dir().join(format!("tare-idle-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("state0")).unwrap();
        std::fs::create_dir_all(folder.join("state1")).unwrap();
        std::fs::create_dir_all(folder.join("state2")).unwrap();
        for (state, latency) in [(0, "0"), (1, "2"), (2, "133")] {
            std::fs::write(folder.join(format!("state{state}/latency")), latency).unwrap();
        }
        assert_eq!(first_state_latency_us(&folder), Some(2));
        assert_eq!(first_state_latency_us(&folder.join("none")), None);
        let device = folder.join("device");
        std::fs::write(&device, "").unwrap();
        let hold = Hold::at(&device, 2).unwrap();
        assert_eq!(std::fs::read(&device).unwrap(), 2_i32.to_ne_bytes());
        drop(hold);
        std::fs::remove_dir_all(&folder).unwrap();
        let error = Hold::at(&device, 2).unwrap_err().to_string();
        assert!(error.contains("shallow idle states"), "{error}");
    }
}
