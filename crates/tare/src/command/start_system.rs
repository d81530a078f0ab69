//! Starts a third-party program as the system inside an environment, for `tare weigh`.

use crate::cli::StartSystem;
use crate::exit::Exit;

pub(crate) fn run(options: &StartSystem) -> anyhow::Result<Exit> {
    let StartSystem { data, image, recipe } = options;
    Err(tare_system::start(recipe, data, image.as_deref()).into())
}
