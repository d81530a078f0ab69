//! The options of a study's system, looked up by name.

use std::time::Duration;

use tare_lab::study::SystemSpec;
use tare_std::units::parse_duration;

/// Why an option is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionError {
    #[error("[system] of {system}: {name} = {value:?} is not {wanted}")]
    Value { system: String, name: &'static str, value: String, wanted: &'static str },
    #[error("[system] of {system} needs {name}: {wanted}")]
    Missing { system: String, name: &'static str, wanted: &'static str },
}

/// A study's options for its system.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    spec: SystemSpec,
}

impl Options {
    pub(crate) fn new(spec: &SystemSpec) -> Self {
        Self { spec: spec.clone() }
    }

    /// Returns the value of an option, if it has one.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.spec.options.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn text_or<'a>(&'a self, name: &str, default: &'a str) -> &'a str {
        self.text(name).unwrap_or(default)
    }

    /// Returns the words of an option, split at spaces.
    pub(crate) fn words(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        text.split_whitespace().map(String::from).collect()
    }

    pub(crate) fn need(
        &self,
        name: &'static str,
        wanted: &'static str,
    ) -> Result<&str, OptionError> {
        let system = || self.spec.name.clone();
        self.text(name).ok_or_else(|| OptionError::Missing { system: system(), name, wanted })
    }

    /// Returns a duration such as `90s`.
    pub(crate) fn duration(
        &self,
        name: &'static str,
        default: Duration,
    ) -> Result<Duration, OptionError> {
        self.text(name).map_or(Ok(default), |text| {
            parse_duration(text).map_err(|_| self.bad(name, text, "a time such as \"90s\""))
        })
    }

    /// Returns a whole number of at least 1.
    pub(crate) fn count(&self, name: &'static str, default: u32) -> Result<u32, OptionError> {
        self.text(name).map_or(Ok(default), |text| {
            let count = text.parse().ok().filter(|count| *count > 0);
            count.ok_or_else(|| self.bad(name, text, "a whole number from 1"))
        })
    }

    pub(crate) fn bad(&self, name: &'static str, value: &str, wanted: &'static str) -> OptionError {
        let (system, value) = (self.spec.name.clone(), value.to_string());
        OptionError::Value { system, name, value, wanted }
    }
}
