//! `tare doctor`
use crate::cli::Doctor;
use crate::exit::Exit;
use std::io::Write;
use std::path::Path;
pub(crate) fn run(_o: &Doctor, _s: &Path, _out: &mut dyn Write) -> anyhow::Result<Exit> {
    Ok(Exit::Success)
}
