//! Somebody else's program as a system inside an environment, started by `tare weigh`.

use crate::cli::StartSystem;
use crate::exit::Exit;

pub(crate) fn run(options: &StartSystem) -> anyhow::Result<Exit> {
    let StartSystem { data, image, recipe } = options;
    Err(tare_system::start(recipe, data, image.as_deref()).into())
}
