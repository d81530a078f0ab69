//! Decides when an unknown program is ready: what it has printed, what it answers, and whether a
//! command of the host succeeds. All conditions that a study names must hold.

use std::fmt;
use std::time::Duration;

use tare_host::exec::Command;
use tare_lab::PartError;
use tare_lab::environment::{Endpoint, Launch};
use tare_lab::study::OptionInfo;
use tare_lab::system::{Instances, READY_LIMIT, System};

use super::client_route::ClientRoute;
use super::options::{OptionError, Options};

/// Time limit for one run of the command.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);

pub(crate) const SEND: OptionInfo = OptionInfo {
    name: "ready_send",
    values: &[],
    help: "bytes to send as a readiness check (default: none; a connection is enough)",
};
pub(crate) const EXPECT: OptionInfo = OptionInfo {
    name: "ready_expect",
    values: &[],
    help: "text that the first line of its answer must contain",
};
pub(crate) const SAYS: OptionInfo = OptionInfo {
    name: "ready_says",
    values: &[],
    help: "text that the last lines of its output must contain",
};
pub(crate) const RUN: OptionInfo = OptionInfo {
    name: "ready_command",
    values: &[],
    help: "a command of the host that must succeed, run where the client runs; {address} and {port} are filled in",
};
pub(crate) const LIMIT: OptionInfo = OptionInfo {
    name: "ready_limit",
    values: &[],
    help: "how long it may take until it is ready (default 60s)",
};

/// The conditions that a study names.
#[derive(Clone, Debug)]
pub(crate) struct Readiness {
    send: Option<String>,
    expect: Option<String>,
    says: Option<String>,
    command: Vec<String>,
    limit: Duration,
}

impl Readiness {
    fn of(options: &Options) -> Result<Self, OptionError> {
        let text = |info: &OptionInfo| options.text(info.name).map(String::from);
        Ok(Self {
            send: text(&SEND),
            expect: text(&EXPECT),
            says: text(&SAYS),
            command: options.words(RUN.name),
            limit: options.duration(LIMIT.name, READY_LIMIT)?,
        })
    }

    /// Checks once whether it is ready.
    ///
    /// # Errors
    /// The condition that does not hold yet.
    fn check(&self, client_route: &ClientRoute, at: &Endpoint) -> Result<(), PartError> {
        let mut line = client_route.connect(at.address)?;
        if let Some(question) = &self.send {
            line.send(question, question.as_bytes())?;
        }
        if let Some(expected) = &self.expect {
            let answer = line.line()?;
            if !answer.contains(expected) {
                return Err(line.unexpected_answer(answer).into());
            }
        }
        let (address, port) = (at.address.ip().to_string(), at.address.port().to_string());
        let fill = |word: &String| word.replace("{address}", &address).replace("{port}", &port);
        let words: Vec<String> = self.command.iter().map(fill).collect();
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let mut command = Command::new(program).args(arguments).time_limit(COMMAND_LIMIT);
        if let Some(namespace) = &client_route.namespace {
            command = command.in_namespace(namespace);
        }
        Ok(command.run().map(drop)?)
    }
}

/// How to start a program that a study describes completely.
pub(crate) trait DescribedStart: fmt::Debug {
    const NAME: &'static str;

    fn launch(&self) -> Launch;

    fn instances(&self) -> Instances {
        Instances::ONE
    }
}

/// A system that a study describes completely: how it is started, and when it is ready.
#[derive(Debug)]
pub(crate) struct DescribedSystem<S> {
    start: S,
    readiness: Readiness,
    client_route: ClientRoute,
}

impl<S> DescribedSystem<S> {
    /// # Errors
    /// If an option about readiness is wrong.
    pub(crate) fn new(
        start: S,
        options: &Options,
        client_route: &ClientRoute,
    ) -> Result<Self, OptionError> {
        let readiness = Readiness::of(options)?;
        Ok(Self { start, readiness, client_route: client_route.clone() })
    }
}

impl<S: DescribedStart> System for DescribedSystem<S> {
    fn name(&self) -> &str {
        S::NAME
    }

    fn launch(&self, _cpus: usize) -> Launch {
        self.start.launch()
    }

    fn instances(&self) -> Instances {
        self.start.instances()
    }

    fn ready_limit(&self) -> Duration {
        self.readiness.limit
    }

    fn announces(&self) -> Option<&str> {
        self.readiness.says.as_deref()
    }

    fn ready(&self, at: &Endpoint) -> Result<(), PartError> {
        self.readiness.check(&self.client_route, at)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use tare_lab::study::SystemSpec;

    #[test]
    fn all_ready_conditions_must_hold() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let at = Endpoint { address, data: None, inside: None };
        thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut question = [0; 4];
                if stream.read_exact(&mut question).is_ok() {
                    let _ = stream.write_all(b"loading\r\n");
                }
            }
        });
        let check = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            let spec = SystemSpec { name: "command".into(), options };
            let readiness = Readiness::of(&Options::new(&spec)).unwrap();
            readiness.check(&ClientRoute::default(), &at).map_err(|error| error.to_string())
        };
        let asked = ("ready_send", "PING");
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[asked, ("ready_expect", "load")]), Ok(()));
        let other = check(&[asked, ("ready_expect", "PONG")]).unwrap_err();
        assert!(other.contains("loading"), "{other}");
        assert_eq!(check(&[("ready_command", "test {port} -gt 0")]), Ok(()));
        let failed = check(&[("ready_command", "test {address} = 127.0.0.2")]).unwrap_err();
        assert!(failed.contains("test 127.0.0.1 = 127.0.0.2 failed"), "{failed}");
    }
}
