//! The program of an image, started as the image describes: its entry point and command, its
//! variables, directory and user. The environment names the image (`rootfs`), so one study may
//! weigh a program in several images, or several images against each other.
//!
//! Limits: one port. Files that the image keeps outside of `{data}` are in its root file system.

use tare_lab::environment::Launch;
use tare_lab::study::OptionInfo;

use super::options::{OptionError, Options};
use super::readiness::{self, DescribedStart, DescribedSystem};
use super::starter::StartPlan;
use super::{SystemInfo, TlsSupport};

pub(super) const INFO: SystemInfo = SystemInfo {
    name: "image",
    help: "the program of an image, which the environments name (rootfs)",
    speaks: |spec| {
        let options = Options::new(spec);
        options.text_or("speaks", "its own protocol (say speaks = ...)").to_string()
    },
    found: None,
    options: &[
        OptionInfo {
            name: "port",
            values: &[],
            help: "the port that it listens on; not needed if command or variables have {port}",
        },
        OptionInfo {
            name: "command",
            values: &[],
            help: "words in place of the image's command, behind its entry point; {listen}, {port} and {data} are filled in",
        },
        OptionInfo {
            name: "variables",
            values: &[],
            help: "more of its environment, such as \"PGDATA={data}/db LANG=C\"",
        },
        OptionInfo {
            name: "speaks",
            values: &[],
            help: "the protocol that it answers: cql, redis, postgres, mysql, memcached",
        },
        readiness::SEND,
        readiness::EXPECT,
        readiness::SAYS,
        readiness::RUN,
        readiness::LIMIT,
    ],
    takes_device: false,
    in_memory: false,
    tls: TlsSupport::No,
    make: |spec, client_route| {
        let options = Options::new(spec);
        let image = Image::new(&options)?;
        Ok(Box::new(DescribedSystem::new(image, &options, client_route)?))
    },
};

/// The options of a study for the program of an image.
#[derive(Clone, Debug)]
pub(super) struct Image {
    command: Vec<String>,
    variables: Vec<(String, String)>,
    port: Option<u16>,
}

impl Image {
    fn new(options: &Options) -> Result<Self, OptionError> {
        let port = options.text("port").map(|text| {
            let port = text.parse().ok().filter(|port| *port != 0);
            port.ok_or_else(|| options.bad("port", text, "a port from 1 to 65535"))
        });
        let (command, words) = (options.words("command"), options.words("variables"));
        let pair = |text: &String| match text.split_once('=') {
            Some((name, value)) => Ok((name.to_string(), value.to_string())),
            None => Err(options.bad("variables", text, "words NAME=VALUE")),
        };
        let variables = words.iter().map(pair).collect::<Result<_, _>>()?;
        let port = port.transpose()?;
        if port.is_none() && !command.iter().chain(&words).any(|word| word.contains("{port}")) {
            let wanted = "the one that it listens on, or {port} in command or variables";
            options.need("port", wanted)?;
        }
        Ok(Self { command, variables, port })
    }
}

impl DescribedStart for Image {
    const NAME: &'static str = INFO.name;

    fn launch(&self) -> Launch {
        let plan = StartPlan {
            command: self.command.clone(),
            variables: self.variables.clone(),
            from_image: true,
            ..StartPlan::default()
        };
        let (arguments, port) = (plan.arguments(), self.port);
        Launch { arguments, program: None, from_image: true, port }
    }
}

#[cfg(test)]
mod tests {
    use crate::tests::{make, plan_of, try_make};

    #[test]
    fn study_options_change_the_image_start() {
        let system = make("image", &[("port", "6379"), ("ready_says", "Ready")]);
        let launch = system.launch(1);
        assert!(launch.from_image && launch.program.is_none());
        assert_eq!(launch.port, Some(6379));
        assert!(launch.arguments.windows(2).any(|pair| pair == ["--image", "{image}"]));
        assert_eq!(system.announces(), Some("Ready"));
        assert!(plan_of(&*system).command.is_empty());
        let options = [("command", "serve --port {port}"), ("variables", "A={data} B=c=d")];
        let plan = plan_of(&*make("image", &options));
        assert_eq!(plan.command, ["serve", "--port", "{port}"]);
        assert_eq!(plan.variables[1], ("B".to_string(), "c=d".to_string()));
        for (options, expect) in [
            (&[("command", "serve")][..], "needs port"),
            (&[("port", "0")], "is not a port"),
            (&[("port", "1"), ("variables", "x")], "is not words NAME=VALUE"),
        ] {
            let error = try_make("image", options).err().unwrap().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
