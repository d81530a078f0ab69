//! SIGINT and SIGTERM as a flag, which a reader of the output that goes away sets too. A second
//! signal ends the program at once: what it leaves on the host
//! is in the journal, and `tare clean` or the next start removes it.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::stream;

const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

/// Registers the flag; it becomes true at the first signal, and when a reader of the output goes
/// away.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    stream::stop_with(&flag);
    for signal in SIGNALS {
        // The order matters: the shutdown looks at the flag before this signal sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    Ok(flag)
}

/// The same for a command that may own the terminal: at the second signal `restore` is called
/// before the program ends. That is no work for a signal handler, so a thread does it, which sleeps
/// in a read until a signal comes: while a study is measured, it does not run.
pub(crate) fn stop_flag_with(restore: fn()) -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    stream::stop_with(&flag);
    let (mut told, teller) = UnixStream::pair().context("cannot make a pair of sockets")?;
    for signal in SIGNALS {
        let teller = teller.try_clone().context("cannot copy a socket")?;
        signal_hook::flag::register(signal, Arc::clone(&flag))
            .and_then(|_| signal_hook::low_level::pipe::register(signal, teller))
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    let second = move || {
        // A byte for each signal.
        if told.read_exact(&mut [0; 2]).is_ok() {
            restore();
            signal_hook::low_level::exit(130);
        }
    };
    let thread = std::thread::Builder::new().name("tare-signals".into());
    thread.spawn(second).context("cannot start the thread that waits for a second signal")?;
    Ok(flag)
}
