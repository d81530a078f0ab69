//! irqbalance: the daemon that moves interrupts between CPUs, controlled through its socket.
//!
//! irqbalance moves interrupts that Tare placed away again within its interval (10 s unless set
//! otherwise) if the interrupt is not banned. Its socket takes bans at once: no file is edited, the
//! daemon is not started again, and putting the old list back undoes it. (Restarts are limited:
//! six within 10 s and systemd gives the service up, cri-o #9405.) Where a build has no socket, the
//! file with its options is the second way (`options_file`).
//!
//! Limits: bans made through the socket end with the process. A message holds at most 500 bytes
//! (`MESSAGE_BYTES_MAX`), which is room for about 120 interrupts of three digits.

pub mod options_file;
mod socket;

use tare_std::cpus::{CpuSet, ParseCpuSetError};

use crate::setting::SettingErrorClass;
pub use socket::Irqbalance;

/// The longest message that irqbalance reads whole (the buffer of `sock_handle` in its
/// irqbalance.c). What is beyond is lost, and the number that it cuts becomes another interrupt.
pub const MESSAGE_BYTES_MAX: usize = 500;

/// What the living irqbalance says of itself (`setup` in irqbalance(1), section API).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Seconds between two rounds of moving interrupts.
    pub interval_s: u32,
    /// Interrupts that it leaves alone by its command line or its socket, ascending. Those that a
    /// policy script or `--banmod` bans are not among them.
    pub banned_irqs: Vec<u32>,
    /// CPUs that it gives no interrupts.
    pub banned_cpus: CpuSet,
}

/// Why irqbalance could not be queried or changed.
#[derive(Debug, thiserror::Error)]
pub enum IrqbalanceError {
    #[error("irqbalance does not run here")]
    NotRunning,
    #[error(
        "irqbalance (process {pid}) has no socket: it was built without one; ban interrupts in \
         its options file"
    )]
    NoSocket { pid: u32 },
    #[error("cannot look for irqbalance in {path}")]
    Look { path: String, source: std::io::Error },
    #[error("cannot ask irqbalance at {address}")]
    Ask { address: String, source: std::io::Error },
    #[error("irqbalance at {address} gave no answer: it answers root only")]
    Denied { address: String },
    #[error("irqbalance answered {text:?}, which is no setup")]
    Answer { text: String },
    #[error("irqbalance answered a mask of CPUs that makes no sense")]
    Mask { source: ParseCpuSetError },
    #[error(
        "cannot ban {count} interrupts through irqbalance's socket: it reads {MESSAGE_BYTES_MAX} \
         bytes; ban them in its options file"
    )]
    TooMany { count: usize },
    #[error("irqbalance was told to leave {wanted:?} alone but leaves {now:?}")]
    NotTaken { wanted: Vec<u32>, now: Vec<u32> },
}

impl IrqbalanceError {
    /// The kind of trouble that it is for a tuning.
    pub fn class(&self) -> SettingErrorClass {
        use std::io::ErrorKind::PermissionDenied;
        match self {
            Self::NotRunning | Self::NoSocket { .. } => SettingErrorClass::Absent,
            Self::Denied { .. } => SettingErrorClass::Permission,
            Self::Look { source, .. } | Self::Ask { source, .. }
                if source.kind() == PermissionDenied =>
            {
                SettingErrorClass::Permission
            }
            Self::NotTaken { .. } => SettingErrorClass::NotTaken,
            _ => SettingErrorClass::Failed,
        }
    }
}

/// Interrupts that the living irqbalance leaves alone, ascending.
///
/// # Errors
/// When it does not run, has no socket or does not answer.
pub fn bans() -> Result<Vec<u32>, IrqbalanceError> {
    Ok(running()?.setup()?.banned_irqs)
}

/// Makes the living irqbalance leave exactly these interrupts alone: the list replaces the one it
/// had. It is read back. Takes effect before irqbalance moves an interrupt again.
///
/// # Errors
/// When it does not run, has no socket, does not answer, or did not take the list.
pub fn set_bans(irqs: &[u32]) -> Result<(), IrqbalanceError> {
    running()?.set_bans(irqs)
}

/// CPUs that the living irqbalance gives no interrupts.
///
/// # Errors
/// When it does not run, has no socket or does not answer.
pub fn banned_cpus() -> Result<CpuSet, IrqbalanceError> {
    Ok(running()?.setup()?.banned_cpus)
}

fn running() -> Result<Irqbalance, IrqbalanceError> {
    Irqbalance::find()?.ok_or(IrqbalanceError::NotRunning)
}

/// What a snapshot keeps of the living irqbalance: pseudo paths below `/tare/irqbalance` with their
/// text. Empty when it does not run. Where it runs but cannot be asked, `trouble` says why.
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
        irqbalance.ask_setup()
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

/// Numbers as the setting `Key::IrqbalanceBans` has them: ascending, separated by spaces.
pub fn numbers(irqs: &[u32]) -> String {
    let mut irqs = irqs.to_vec();
    irqs.sort_unstable();
    irqs.dedup();
    irqs.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Whether a list of bans fits into one message.
pub fn fits(irqs: &[u32]) -> bool {
    request(irqs).len() <= MESSAGE_BYTES_MAX
}

/// The message that sets the bans. An empty list has a word of its own: without one irqbalance
/// would read the missing number as interrupt 0.
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
    fn answers_are_read() {
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
    fn requests_are_whole_or_refused() {
        assert_eq!(request(&[]), "settings ban irqs NONE");
        assert_eq!(request(&[39, 38, 39]), "settings ban irqs 38 39");
        let irqs: Vec<u32> = (100..220).collect();
        assert!(fits(&irqs));
        assert!(!fits(&(100..240).collect::<Vec<_>>()));
    }
}
