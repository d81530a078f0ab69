//! Controls irqbalance, the daemon that moves interrupts between CPUs, through its socket.
//!
//! irqbalance moves an interrupt that Tare placed again within its interval (10 s by default),
//! unless the interrupt is banned. Bans through its socket take effect at once: no file is edited,
//! the daemon is not restarted, and restoring the old list undoes them. (Restarts are limited:
//! after six within 10 s systemd stops restarting the service, cri-o #9405.) A build without a
//! socket needs its options file (`options_file`).
//!
//! Limits: bans through the socket end with the process. A message has at most 500 bytes
//! (`MESSAGE_BYTES_MAX`), room for about 120 interrupts of three digits.

pub mod options_file;
mod socket;

use tare_std::cpus::{CpuSet, ParseCpuSetError};

use crate::setting::SettingErrorClass;
pub use socket::Irqbalance;

/// The longest message that irqbalance reads whole (the buffer of `sock_handle` in its
/// irqbalance.c). The rest is lost, and a truncated number means another interrupt.
pub const MESSAGE_BYTES_MAX: usize = 500;

/// The setup that the running irqbalance reports (`setup` in irqbalance(1), section API).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Seconds between two passes of moving interrupts.
    pub interval_s: u32,
    /// Interrupts banned by its command line or its socket, ascending. Bans by a policy script or
    /// `--banmod` are not included.
    pub banned_irqs: Vec<u32>,
    /// CPUs to which it moves no interrupts.
    pub banned_cpus: CpuSet,
}

/// Why irqbalance could not be queried or changed.
#[derive(Debug, thiserror::Error)]
pub enum IrqbalanceError {
    #[error("irqbalance is not running")]
    NotRunning,
    #[error(
        "irqbalance (process {pid}) has no socket: it was built without one; ban interrupts in \
         its options file"
    )]
    NoSocket { pid: u32 },
    #[error("cannot find irqbalance in {path}")]
    Find { path: String, source: std::io::Error },
    #[error("cannot query irqbalance at {address}")]
    Query { address: String, source: std::io::Error },
    #[error("irqbalance at {address} did not answer: it answers only root")]
    Denied { address: String },
    #[error("cannot parse irqbalance's answer {text:?}")]
    Answer { text: String },
    #[error("cannot parse the CPU mask in irqbalance's answer")]
    Mask { source: ParseCpuSetError },
    #[error(
        "cannot ban {count} interrupts through irqbalance's socket: it reads {MESSAGE_BYTES_MAX} \
         bytes; ban them in its options file"
    )]
    TooMany { count: usize },
    #[error("irqbalance bans interrupts {now:?} although the request was {wanted:?}")]
    NotTaken { wanted: Vec<u32>, now: Vec<u32> },
}

impl IrqbalanceError {
    /// Returns the class of the error for a tuning.
    pub fn class(&self) -> SettingErrorClass {
        use std::io::ErrorKind::PermissionDenied;
        match self {
            Self::NotRunning | Self::NoSocket { .. } => SettingErrorClass::Absent,
            Self::Denied { .. } => SettingErrorClass::Permission,
            Self::Find { source, .. } | Self::Query { source, .. }
                if source.kind() == PermissionDenied =>
            {
                SettingErrorClass::Permission
            }
            Self::NotTaken { .. } => SettingErrorClass::NotTaken,
            _ => SettingErrorClass::Failed,
        }
    }
}

/// Returns the interrupts that are banned in the running irqbalance, ascending.
///
/// # Errors
/// When it does not run, has no socket or does not answer.
pub fn bans() -> Result<Vec<u32>, IrqbalanceError> {
    Ok(running()?.setup()?.banned_irqs)
}

/// Bans exactly these interrupts in the running irqbalance: the list replaces the old one and is
/// read back. It takes effect before irqbalance next moves an interrupt.
///
/// # Errors
/// When it does not run, has no socket, does not answer, or did not take the list.
pub fn set_bans(irqs: &[u32]) -> Result<(), IrqbalanceError> {
    running()?.set_bans(irqs)
}

/// Returns the CPUs to which the running irqbalance moves no interrupts.
///
/// # Errors
/// When it does not run, has no socket or does not answer.
pub fn banned_cpus() -> Result<CpuSet, IrqbalanceError> {
    Ok(running()?.setup()?.banned_cpus)
}

fn running() -> Result<Irqbalance, IrqbalanceError> {
    Irqbalance::find()?.ok_or(IrqbalanceError::NotRunning)
}

/// Returns the pseudo files of a snapshot below `/tare/irqbalance`: path and text. Empty when
/// irqbalance does not run. If it runs but cannot be queried, the file `trouble` has the error.
pub fn describe() -> Vec<(String, String)> {
    let file = |name: &str, text: String| (format!("/tare/irqbalance/{name}"), text);
    let mut files = Vec::new();
    let found = match socket::process() {
        Ok(None) | Err(_) => return files,
        Ok(Some(pid)) => {
            files.push(file("pid", pid.to_string()));
            Irqbalance::of(pid)
        }
    };
    let answer = found.and_then(|irqbalance| {
        files.push(file("socket", irqbalance.address()));
        irqbalance.query_setup()
    });
    match answer.and_then(|text| Ok((Setup::parse(&text)?, text))) {
        Ok((setup, text)) => {
            files.push(file("setup", text));
            files.push(file("banned-irqs", numbers(&setup.banned_irqs)));
            files.push(file("banned-cpus", setup.banned_cpus.to_string()));
        }
        Err(error) => files.push(file("trouble", tare_host::error_line(&error))),
    }
    files
}

/// Formats numbers as a value of `Key::IrqbalanceBans`: ascending, separated by spaces.
pub fn numbers(irqs: &[u32]) -> String {
    let mut irqs = irqs.to_vec();
    irqs.sort_unstable();
    irqs.dedup();
    irqs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Whether a list of bans fits into one message.
pub fn fits_in_message(irqs: &[u32]) -> bool {
    request(irqs).len() <= MESSAGE_BYTES_MAX
}

/// Returns the message that sets the bans. An empty list is `NONE`: irqbalance would read a missing
/// number as interrupt 0.
fn request(irqs: &[u32]) -> String {
    match irqs.is_empty() {
        true => "settings ban irqs NONE".into(),
        false => format!("settings ban irqs {}", numbers(irqs)),
    }
}

impl Setup {
    /// Reads an answer such as `SLEEP 10 IRQ 38 LOAD 0 DIFF 0 CLASS 0 BANNED 00000000,00000003`.
    ///
    /// # Errors
    /// When it is another text.
    pub fn parse(text: &str) -> Result<Self, IrqbalanceError> {
        let wrong = || IrqbalanceError::Answer { text: text.chars().take(200).collect() };
        let mut setup =
            Self { interval_s: 0, banned_irqs: Vec::new(), banned_cpus: CpuSet::default() };
        let mut words = text.trim_matches('\0').split_whitespace();
        let (mut interval, mut mask) = (false, false);
        while let Some(word) = words.next() {
            let value = words.next().ok_or_else(wrong)?;
            match word {
                "SLEEP" => {
                    setup.interval_s = value.parse().map_err(|_| wrong())?;
                    interval = true;
                }
                "IRQ" => setup.banned_irqs.push(value.parse().map_err(|_| wrong())?),
                "LOAD" | "DIFF" | "CLASS" => {}
                "BANNED" => {
                    setup.banned_cpus = CpuSet::parse_mask(value)
                        .map_err(|source| IrqbalanceError::Mask { source })?;
                    mask = true;
                }
                _ => return Err(wrong()),
            }
        }
        setup.banned_irqs.sort_unstable();
        setup.banned_irqs.dedup();
        if interval && mask { Ok(setup) } else { Err(wrong()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_answers() {
        let check = |text: &str, irqs: &[u32], cpus: &str| {
            let setup = Setup::parse(text).unwrap();
            assert_eq!(setup.banned_irqs, irqs, "{text}");
            assert_eq!(setup.banned_cpus.to_string(), cpus, "{text}");
        };
        check("SLEEP 10 BANNED 00000000", &[], "");
        check(
            "SLEEP 600 IRQ 39 LOAD 0 DIFF 0 CLASS 0 IRQ 38 LOAD 7 DIFF 1 CLASS 5 BANNED 00000003",
            &[38, 39],
            "0-1",
        );
        check("SLEEP 10 BANNED 00000001,00000000", &[], "32");
        for text in ["", "SLEEP", "SLEEP 10", "SLEEP x BANNED 0", "HELLO 1 BANNED 0"] {
            assert!(Setup::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn formats_requests_and_checks_their_length() {
        assert_eq!(request(&[]), "settings ban irqs NONE");
        assert_eq!(request(&[39, 38, 39]), "settings ban irqs 38 39");
        let irqs: Vec<u32> = (100..220).collect();
        assert!(fits_in_message(&irqs));
        assert!(!fits_in_message(&(100..240).collect::<Vec<_>>()));
    }
}
