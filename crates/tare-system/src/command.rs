//! Any program of the host that listens on a port: the study says how it is started and what it
//! answers once it is ready.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_lab::PartError;
use tare_lab::environment::{Endpoint, HostProgram, Launch};
use tare_lab::study::OptionInfo;
use tare_lab::system::{Instances, OwnAccount, System};

use super::SystemInfo;
use super::client_route::ClientRoute;
use super::instances;
use super::options::Options;
use super::readiness::{self, Readiness};
use super::starter::StartPlan;

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "command",
    help: "any program of the host that listens where it is told to",
    speaks: |spec| {
        let options = Options::new(spec);
        options.text_or("speaks", "its own protocol (say speaks = ...)").to_string()
    },
    found: None,
    options: &[
        OptionInfo {
            name: "command",
            values: &[],
            help: "the program and its arguments, divided at spaces; {listen}, {port} and {data} are filled in",
        },
        OptionInfo {
            name: "speaks",
            values: &[],
            help: "the protocol that it answers: cql, redis, postgres, memcached",
        },
        OptionInfo {
            name: "folders",
            values: &[],
            help: "directories of the host that it reads, divided at spaces",
        },
        readiness::SEND,
        readiness::EXPECT,
        readiness::SAYS,
        readiness::RUN,
        readiness::LIMIT,
        OptionInfo {
            name: "user",
            values: &["root", "nobody"],
            help: "whom it runs as (default root)",
        },
        instances::INSTANCES,
    ],
    takes_device: false,
    make: |spec, client_route| {
        let options = Options::new(spec);
        options.need("command", "the program and its arguments")?;
        let (readiness, instances) = (Readiness::of(&options)?, instances::read(&options)?);
        Ok(Box::new(Command { options, instances, readiness, client_route: client_route.clone() }))
    },
};

/// A program as a study describes it.
#[derive(Clone, Debug)]
pub struct Command {
    options: Options,
    instances: Instances,
    readiness: Readiness,
    client_route: ClientRoute,
}

impl System for Command {
    fn name(&self) -> &str {
        INFO.name
    }

    fn launch(&self, _cpus: usize) -> Launch {
        let mut command = self.options.words("command");
        let name = command.first().cloned().unwrap_or_default();
        if let Some(program) = command.first_mut() {
            *program = "{program}".into();
        }
        let unprivileged = self.options.text("user") == Some("nobody");
        let arguments = StartPlan { command, unprivileged, ..StartPlan::default() }.arguments();
        let folders = self.options.words("folders").into_iter().map(PathBuf::from).collect();
        Launch {
            arguments,
            program: Some(HostProgram { name, named: folders, ..HostProgram::default() }),
            ..Launch::default()
        }
    }

    fn ready_limit(&self) -> Duration {
        self.readiness.limit
    }

    fn announces(&self) -> Option<&str> {
        self.readiness.says.as_deref()
    }

    fn instances(&self) -> Instances {
        self.instances
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        self.readiness.look(&self.client_route, at)
    }

    /// Nobody knows how to ask it.
    fn settings(&self, _at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        Ok(Vec::new())
    }

    fn own_account(&self, _data: &Path) -> Result<Option<OwnAccount>, PartError> {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{command_of, make, try_make};
    use tare_lab::study::SystemSpec;

    #[test]
    fn the_study_says_how_it_is_started() {
        let options =
            [("command", "redis-server --port {port} --bind {listen}"), ("speaks", "redis")];
        let system = make("command", &options);
        assert_eq!(command_of(&*system), "{program} --port {port} --bind {listen}");
        assert_eq!(system.launch(1).program.unwrap().name, "redis-server");
        let options = options.map(|(k, v)| (k.to_string(), v.to_string())).into();
        let spec = SystemSpec { name: "command".into(), options };
        assert_eq!(INFO.speaks(&spec), "redis");
        let error = try_make("command", &[]).err().unwrap().to_string();
        assert_eq!(error, "[system] of command needs command: the program and its arguments");
        let error =
            try_make("command", &[("command", "x"), ("ready_limit", "soon")]).err().unwrap();
        assert!(error.to_string().contains("is not a time"), "{error}");
    }
}
