//! Helpers that the tests of systems share.

use std::path::Path;

use tare_lab::environment::Endpoint;
use tare_lab::study::SystemSpec;
use tare_lab::system::System;

use crate::ClientRoute;
use crate::starter::StartPlan;

/// Returns the endpoint of a system that does not answer, with this data directory.
pub(crate) fn at(data: &Path) -> Endpoint {
    Endpoint { address: ([127, 0, 0, 1], 1).into(), data: Some(data.into()), inside: None }
}

/// Makes a system by its name, with options.
pub(crate) fn try_make(
    name: &str,
    options: &[(&str, &str)],
) -> Result<Box<dyn System>, tare_lab::PartError> {
    let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let spec = SystemSpec { name: name.into(), options };
    crate::find(name).unwrap().make(&spec, &ClientRoute::default())
}

pub(crate) fn make(name: &str, options: &[(&str, &str)]) -> Box<dyn System> {
    try_make(name, options).unwrap()
}

/// Returns the start plan for two CPUs.
pub(crate) fn plan_of(system: &dyn System) -> StartPlan {
    let arguments = system.launch(2).arguments;
    serde_json::from_str(arguments.last().unwrap()).unwrap()
}

/// Returns the command that the process becomes, its words joined by spaces.
pub(crate) fn command_of(system: &dyn System) -> String {
    plan_of(system).command.join(" ")
}
