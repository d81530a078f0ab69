//! Runs the system `fio` inside an environment, for `tare weigh`.

use crate::cli::FioServer;
use crate::exit::Exit;

pub(crate) fn run(options: &FioServer) -> anyhow::Result<Exit> {
    let FioServer { program, listen, data, report } = options;
    tare_driver::fio::serve(program, *listen, data, report)?;
    Ok(Exit::Success)
}
