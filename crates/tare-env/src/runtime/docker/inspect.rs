//! What an engine says about a container of the user, for `tare tune flags --from docker:NAME`.
//! Nothing is changed.

use serde::Serialize;
use serde_json::Value;
use tare_lab::PartError;
use tare_tune::flags::running::Inspection;

use super::engine::{Engine, EngineError, Kind};
use super::environment;
use crate::unavailable::Unavailable;

/// Why a container cannot be inspected.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    #[error(transparent)]
    Engine(#[from] Unavailable),
    #[error("{engine} has no container {name}; {engine} ps --all lists them")]
    Missing { engine: &'static str, name: String },
    #[error(transparent)]
    Call(PartError),
}

impl From<EngineError> for InspectError {
    fn from(error: EngineError) -> Self {
        Self::Call(error.into())
    }
}

/// Describes a container of an engine (`docker`, `podman`), by its name or id.
///
/// # Errors
/// If the engine does not answer, or has no such container.
pub fn inspect(engine: &str, name: &str) -> Result<Inspection, InspectError> {
    let kind = if engine == Kind::Podman.name() { Kind::Podman } else { Kind::Docker };
    let engine = Engine::connect(kind)?;
    let found = engine.inspect(name).map_err(|error| match error.is_not_found() {
        true => InspectError::Missing { engine: kind.name(), name: name.into() },
        false => error.into(),
    })?;
    let image = engine.describe_image(found.image.as_deref().unwrap_or_default())?;
    let pid = found.state.as_ref().and_then(environment::pid_of);
    Ok(Inspection {
        engine: kind.name(),
        name: name.into(),
        limits: pid.and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()),
        container: value(&found)?,
        image: value(&image)?,
        info: value(&engine.describe()?)?,
    })
}

fn value(part: &impl Serialize) -> Result<Value, InspectError> {
    serde_json::to_value(part).map_err(|error| InspectError::Call(error.into()))
}
