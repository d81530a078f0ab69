//! Docker: `docker run`.

use super::container::Kind;
use super::{Consumer, Context, Flags, FlagsError, shell};

#[derive(Debug)]
pub(super) struct Docker;

impl Consumer for Docker {
    fn name(&self) -> &'static str {
        "docker"
    }

    fn help(&self) -> &'static str {
        "a docker run command"
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        shell::write(context, self.name(), Kind::Docker)
    }
}
