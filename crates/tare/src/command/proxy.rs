//! Runs the userland proxy of `network = "bridge+proxy"` and the relay of `inject = "delay=TIME"`,
//! for `tare weigh`.

use anyhow::Context;

use crate::cli::Proxy;
use crate::exit::Exit;
use crate::signals;

pub(crate) fn run(options: &Proxy) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag()?;
    tare_env::proxy::run(options.listen, options.to, options.delay, &stop)
        .with_context(|| format!("cannot relay {} to {}", options.listen, options.to))?;
    Ok(Exit::Success)
}
