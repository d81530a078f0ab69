//! Podman: `podman run`. Its defaults differ from Docker's: a limit of 2048 processes, and its own
//! seccomp profile, which refuses io_uring with ENOSYS.

use super::container::Kind;
use super::{Consumer, Context, Flags, FlagsError, shell};

#[derive(Debug)]
pub(super) struct Podman;

impl Consumer for Podman {
    fn name(&self) -> &'static str {
        "podman"
    }

    fn help(&self) -> &'static str {
        "a podman run command"
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        shell::write(context, self.name(), Kind::Podman)
    }
}
