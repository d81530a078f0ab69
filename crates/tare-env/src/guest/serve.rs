//! Carrying out the host's orders.

use std::fs::File;
use std::io;
use std::process::{Child, Command, Stdio};

use tare_host::account::Account as CpuAccount;
use tare_host::process;

use super::commands::Commands;
use super::protocol::{Answer, BUNDLE, CONTAINER, GuestUsage, LOG_PORT, Order};
use super::{AnswerSender, GuestError, facts, modules, mounts, network, port, root};

/// The state of the guest: its system and its commands.
#[derive(Debug)]
pub(super) struct Guest {
    system: Option<Child>,
    account: CpuAccount,
    commands: Commands,
}

impl Guest {
    pub(super) fn new(answers: AnswerSender) -> Self {
        Self { system: None, account: CpuAccount::default(), commands: Commands::new(answers) }
    }

    /// Carries out an order and returns its answer, or `None` if the order sends its own answers.
    pub(super) fn carry_out(&mut self, order: Order) -> Result<Option<Answer>, GuestError> {
        if let Order::Run(command) = order {
            return self.commands.run(&command).map(|()| None);
        }
        self.answer(order).map(Some)
    }

    fn answer(&mut self, order: Order) -> Result<Answer, GuestError> {
        match order {
            Order::Load { modules } => {
                for module in modules {
                    match modules::load(&module.name) {
                        Err(error) if module.needed => return Err(error),
                        _ => {}
                    }
                }
                Ok(Answer::Done)
            }
            Order::Network { address, prefix, gateway } => {
                network::set_up(address, prefix, gateway)?;
                Ok(Answer::Done)
            }
            Order::Mount { source, filesystem, options } => {
                mounts::data(&source, &filesystem, &options)?;
                Ok(Answer::Done)
            }
            Order::TakeRoot(order) => {
                root::take(&order)?;
                Ok(Answer::Done)
            }
            Order::Signal { signal } => {
                self.commands.signal(signal)?;
                Ok(Answer::Done)
            }
            Order::Start { arguments, container } => self.start(&arguments, container.as_deref()),
            Order::Facts => Ok(Answer::Facts(Box::new(self.facts()))),
            Order::Account => Ok(Answer::Account(self.account())),
            // `serve_orders` handles the former, `carry_out` the latter.
            Order::PowerOff | Order::Run(_) => Ok(Answer::Done),
        }
    }

    fn start(
        &mut self,
        arguments: &[String],
        container: Option<&str>,
    ) -> Result<Answer, GuestError> {
        if self.system.is_some() {
            return Err(GuestError::Started);
        }
        let path = port(LOG_PORT)?;
        let fail = |source| GuestError::Start { source };
        let log = File::options().write(true).open(&path);
        let log = log.map_err(|source| GuestError::File { path, source })?;
        let spawn = || -> io::Result<Child> {
            let mut command = match container {
                None => Command::new("/proc/self/exe"),
                // pivot_root(2) does not work on the root of an initramfs.
                Some(runtime) => {
                    let mut command = Command::new(runtime);
                    command.args(["--root", "/run/oci", "run", "--no-pivot", "--bundle"]);
                    command.args([BUNDLE, CONTAINER]);
                    command
                }
            };
            let own = container.is_none();
            command
                .args(arguments.iter().filter(|_| own))
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log.try_clone()?)
                .spawn()
        };
        let child = self.system.insert(spawn().map_err(fail)?);
        Ok(Answer::Started { pid: child.id() })
    }

    fn facts(&mut self) -> super::protocol::Facts {
        let mut facts = facts::read_all();
        facts.system = match &mut self.system {
            None => "not started".into(),
            Some(child) => match child.try_wait() {
                Ok(None) => "running".into(),
                Ok(Some(status)) => status.to_string(),
                Err(error) => error.to_string(),
            },
        };
        let pid = self.system.as_ref().map(Child::id);
        facts.system_cpus =
            pid.and_then(|pid| process::status_field(pid, "Cpus_allowed_list")).unwrap_or_default();
        facts.container = pid.and_then(facts::container).unwrap_or_default();
        facts
    }

    fn account(&mut self) -> GuestUsage {
        let pids = self.system.as_ref().map(|child| process::tree(child.id())).unwrap_or_default();
        let (guest_cpu_ns, steal_ns) = facts::guest_cpu_ns();
        let system_cpu_ns = self.account.read(&pids);
        GuestUsage { system_cpu_ns, guest_cpu_ns, steal_ns, files: facts::shown_files() }
    }
}
