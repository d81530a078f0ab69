//! Keeps idle states shallow while a study runs.
//!
//! Method: while a process has /dev/cpu_dma_latency open, the kernel lets no CPU enter a state that
//! takes longer to leave than the 32-bit number of microseconds that the process wrote (the
//! kernel's Documentation/power/pm_qos_interface.rst). The request ends when the file is closed, so
//! nothing has to be undone, even after `kill -9`.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

/// The device that takes the request.
pub const DEVICE: &str = "/dev/cpu_dma_latency";

/// The directory of the idle states of a CPU.
const CPUIDLE: &str = "/sys/devices/system/cpu/cpu0/cpuidle";

/// Keeps idle states shallow until it is dropped.
#[derive(Debug)]
pub struct IdleLimit {
    /// Longest time to leave an idle state, µs.
    pub latency_us_max: i32,
    _device: File,
}

/// Why idle states could not be limited.
#[derive(Debug, thiserror::Error)]
pub enum IdleError {
    #[error(
        "cannot request shallow idle states through {path}; run as root, or without this option"
    )]
    Open { path: String, source: std::io::Error },
}

impl IdleLimit {
    /// Limits the CPUs of this host to the first state that saves energy (C1), like tuned's
    /// latency-performance. Polling instead would cost turbo frequency and time of the sibling
    /// thread. `None` when no driver of idle states is active, as in most guests.
    ///
    /// # Errors
    /// When the device is absent or cannot be written, which needs root.
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

/// Returns the exit latency of the first state that has one (state 0 often polls and has none), in
/// µs.
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
    fn request_is_four_bytes_in_host_order() {
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
        let limit = IdleLimit::at(&device, 2).unwrap();
        assert_eq!(std::fs::read(&device).unwrap(), 2_i32.to_ne_bytes());
        drop(limit);
        std::fs::remove_dir_all(&folder).unwrap();
        let error = IdleLimit::at(&device, 2).unwrap_err().to_string();
        assert!(error.contains("shallow idle states"), "{error}");
    }
}
