//! Reads and checks the options that a workload gives a driver.

use tare_lab::study::{OptionInfo, WorkloadSpec};
use tare_std::units::{UnitError, parse_bytes};

/// Returns an option as `tare list` shows it.
pub(super) const fn option(
    name: &'static str,
    values: &'static [&'static str],
    help: &'static str,
) -> OptionInfo {
    OptionInfo { name, values, help }
}

/// Why an option of a workload is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("workload {workload:?}: {tool}'s {option} is {value:?}; it must be {expected}")]
    Value {
        workload: String,
        tool: &'static str,
        option: &'static str,
        value: String,
        expected: &'static str,
    },
    #[error("workload {workload:?}: {tool}'s {option} = {value:?}")]
    Bytes {
        workload: String,
        tool: &'static str,
        option: &'static str,
        value: String,
        source: UnitError,
    },
    #[error("workload {workload:?}: {tool} needs {option}: {why}")]
    Missing { workload: String, tool: &'static str, option: &'static str, why: &'static str },
    #[error(
        "workload {workload:?}: size {size} of a job is not a whole number of its operations of {bs} bytes"
    )]
    Size { workload: String, size: u64, bs: u64 },
}

/// The options of one workload for one tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct OptionReader<'w> {
    pub(super) tool: &'static str,
    pub(super) workload: &'w WorkloadSpec,
}

impl<'w> OptionReader<'w> {
    pub(super) fn get(&self, option: &str) -> Option<&'w str> {
        let found = self.workload.options.iter().find(|(name, _)| name == option);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns a value that the study's parser has already checked.
    pub(super) fn text(&self, option: &str, default: &str) -> String {
        self.get(option).unwrap_or(default).to_string()
    }

    pub(super) fn bad(&self, option: &'static str, expected: &'static str) -> OptionError {
        let value = self.get(option).unwrap_or_default().to_string();
        let (tool, workload) = (self.tool, self.workload.name.clone());
        OptionError::Value { workload, tool, option, value, expected }
    }

    pub(super) fn missing(&self, option: &'static str, why: &'static str) -> OptionError {
        let (tool, workload) = (self.tool, self.workload.name.clone());
        OptionError::Missing { workload, tool, option, why }
    }

    pub(super) fn whole(
        &self,
        option: &'static str,
        default: u64,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64, OptionError> {
        let Some(value) = self.get(option) else { return Ok(default) };
        let number = value.parse().ok().filter(|number| range.contains(number));
        number.ok_or_else(|| self.bad(option, "a whole number in its range"))
    }

    /// Reads a size such as `4k`: a multiple of 512, at least `least`.
    pub(super) fn bytes(
        &self,
        option: &'static str,
        default: u64,
        least: u64,
    ) -> Result<u64, OptionError> {
        let Some(value) = self.get(option) else { return Ok(default) };
        let bytes = parse_bytes(value).map_err(|source| OptionError::Bytes {
            workload: self.workload.name.clone(),
            tool: self.tool,
            option,
            value: value.into(),
            source,
        })?;
        match bytes >= least && bytes.is_multiple_of(512) {
            true => Ok(bytes),
            false => Err(self.bad(option, "a multiple of 512, at least 512 (bs) or 4096 (size)")),
        }
    }
}
