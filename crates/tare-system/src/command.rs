//! Any program of the host that listens on a port. The study names its command and what it answers
//! once it is ready.

use std::path::{Path, PathBuf};

use tare_lab::environment::{HostProgram, Launch};
use tare_lab::study::OptionInfo;
use tare_lab::system::Instances;

use super::instances;
use super::options::Options;
use super::readiness::{self, DescribedStart, DescribedSystem};
use super::starter::StartPlan;
use super::{SystemInfo, TlsSupport};

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "command",
    help: "any program of the host that listens on a given address",
    speaks: |spec| {
        let options = Options::new(spec);
        options.text_or("speaks", "its own protocol (say speaks = ...)").to_string()
    },
    found: None,
    options: &[
        OptionInfo {
            name: "command",
            values: &[],
            help: "the program and its arguments, split at spaces; {listen}, {port} and {data} are filled in",
        },
        OptionInfo {
            name: "speaks",
            values: &[],
            help: "the protocol that it answers: cql, redis, postgres, mysql, memcached, http",
        },
        OptionInfo {
            name: "folders",
            values: &[],
            help: "directories of the host that it reads, split at spaces",
        },
        OptionInfo {
            name: "files",
            values: &[],
            help: "texts such as its configuration, split at spaces: each is put into {data} by its name, with {listen}, {port} and {data} filled in",
        },
        readiness::SEND,
        readiness::EXPECT,
        readiness::SAYS,
        readiness::RUN,
        readiness::LIMIT,
        OptionInfo {
            name: "user",
            values: &["root", "nobody"],
            help: "the user that it runs as (default root)",
        },
        instances::INSTANCES,
    ],
    takes_device: false,
    in_memory: false,
    tls: TlsSupport::No,
    make: |spec, client_route| {
        let options = Options::new(spec);
        options.need("command", "the program and its arguments")?;
        let instances = instances::read(&options)?;
        let files = options.words("files");
        let files = files.iter().map(|path| read(path)).collect::<Result<_, _>>()?;
        let command = Command { options: options.clone(), instances, files };
        Ok(Box::new(DescribedSystem::new(command, &options, client_route)?))
    },
};

/// A program that a study describes.
#[derive(Clone, Debug)]
pub(super) struct Command {
    options: Options,
    instances: Instances,
    /// Names and texts.
    files: Vec<(String, String)>,
}

/// The largest text of a system: it is passed on with the command.
const FILE_BYTES_MAX: usize = 64 << 10;

/// Why a text for a system cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandFileError {
    #[error("[system] of command: cannot read {path} of files")]
    Read { path: String, source: std::io::Error },
    #[error("[system] of command: {path} of files has more than {} KiB", FILE_BYTES_MAX >> 10)]
    Large { path: String },
}

/// Reads a text, and returns it with its name.
fn read(path: &str) -> Result<(String, String), CommandFileError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| CommandFileError::Read { path: path.into(), source })?;
    if text.len() > FILE_BYTES_MAX {
        return Err(CommandFileError::Large { path: path.into() });
    }
    let name = Path::new(path).file_name().unwrap_or_default();
    Ok((name.to_string_lossy().into_owned(), text))
}

impl DescribedStart for Command {
    const NAME: &'static str = INFO.name;

    fn launch(&self) -> Launch {
        let mut command = self.options.words("command");
        let name = command.first().cloned().unwrap_or_default();
        if let Some(program) = command.first_mut() {
            *program = "{program}".into();
        }
        let unprivileged = self.options.text("user") == Some("nobody");
        let files = self.files.clone();
        let plan = StartPlan { files, command, unprivileged, ..StartPlan::default() };
        let arguments = plan.arguments();
        let folders = self.options.words("folders").into_iter().map(PathBuf::from).collect();
        Launch {
            arguments,
            program: Some(HostProgram { name, named: folders, ..HostProgram::default() }),
            ..Launch::default()
        }
    }

    fn instances(&self) -> Instances {
        self.instances
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{command_of, make, plan_of, try_make};
    use tare_lab::study::SystemSpec;

    #[test]
    fn study_sets_the_command() {
        let options =
            [("command", "redis-server --port {port} --bind {listen}"), ("speaks", "redis")];
        let system = make("command", &options);
        assert_eq!(command_of(&*system), "{program} --port {port} --bind {listen}");
        assert_eq!(system.launch(1).program.unwrap().name, "redis-server");
        let options = options.map(|(k, v)| (k.to_string(), v.to_string())).into();
        let spec = SystemSpec { name: "command".into(), options };
        assert_eq!(INFO.speaks(&spec), "redis");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.conf");
        std::fs::write(&path, "listen {listen}:{port};\n").unwrap();
        let words = [("command", "x"), ("files", path.to_str().unwrap())];
        let plan = plan_of(&*make("command", &words));
        assert_eq!(plan.files, [("a.conf".to_string(), "listen {listen}:{port};\n".to_string())]);
        let missing = try_make("command", &[("command", "x"), ("files", "/no/such")]);
        let expect = "[system] of command: cannot read /no/such of files";
        assert_eq!(missing.err().unwrap().to_string(), expect);
        let error = try_make("command", &[]).err().unwrap().to_string();
        assert_eq!(error, "[system] of command needs command: the program and its arguments");
        let error =
            try_make("command", &[("command", "x"), ("ready_limit", "soon")]).err().unwrap();
        assert!(error.to_string().contains("is not a time"), "{error}");
    }
}
