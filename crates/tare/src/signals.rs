//! SIGINT, SIGTERM and SIGHUP as a flag, which is also set when a reader closes the output. A
//! second signal ends the program at once; the journal then lists what it leaves on the host, and
//! `tare clean` or the next run removes it.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::stream;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Returns a flag that becomes true at the first signal, or when a reader closes the output.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    stream::stop_with(&flag);
    for signal in SIGNALS {
        // The order matters: the shutdown reads the flag before this signal sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    Ok(flag)
}

/// Waits for a signal.
pub(crate) fn wait() -> anyhow::Result<()> {
    let (mut receiver, sender) = UnixStream::pair().context("cannot create a pair of sockets")?;
    for signal in SIGNALS {
        let sender = sender.try_clone().context("cannot copy a socket")?;
        signal_hook::low_level::pipe::register(signal, sender)
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    receiver.read_exact(&mut [0]).context("cannot wait for a signal")
}

/// Returns the same flag for a command that may own the terminal: at the second signal, `restore`
/// runs before the program ends. A signal handler must not do that, so a thread does. It sleeps in
/// a read until a signal comes, and does not run while a study is measured.
pub(crate) fn stop_flag_with(restore: fn()) -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    stream::stop_with(&flag);
    let (mut receiver, sender) = UnixStream::pair().context("cannot create a pair of sockets")?;
    for signal in SIGNALS {
        let sender = sender.try_clone().context("cannot copy a socket")?;
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::low_level::pipe::register(signal, sender))
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    let second = move || {
        // Each signal is one byte.
        if receiver.read_exact(&mut [0; 2]).is_ok() {
            restore();
            signal_hook::low_level::exit(130);
        }
    };
    let thread = std::thread::Builder::new().name("tare-signals".into());
    thread.spawn(second).context("cannot start the thread that waits for a second signal")?;
    Ok(flag)
}
