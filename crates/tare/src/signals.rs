//! SIGINT and SIGTERM as a flag. A second one ends the program at once: what it leaves on the host
//! is in the journal, and `tare clean` or the next start removes it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Registers the flag; it becomes true at the first signal.
pub(crate) fn stop_flag() -> anyhow::Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The order matters: the shutdown looks at the flag before this signal sets it.
        signal_hook::flag::register_conditional_shutdown(signal, 130, Arc::clone(&flag))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
            .with_context(|| format!("cannot catch signal {signal}"))?;
    }
    Ok(flag)
}
