//! nerdctl, the command of containerd. It reads seccomp profiles only in OCI form (containerd's
//! contrib/seccomp), in which Moby's conditions on capabilities must already be resolved.

use super::container::Kind;
use super::{Consumer, Context, Flags, FlagsError, ProfileForm, shell};

#[derive(Debug)]
pub(super) struct Nerdctl;

impl Consumer for Nerdctl {
    fn name(&self) -> &'static str {
        "nerdctl"
    }

    fn help(&self) -> &'static str {
        "a nerdctl run command"
    }

    fn profile_form(&self) -> ProfileForm {
        ProfileForm::Oci
    }

    fn write(&self, context: &Context<'_>) -> Result<Flags, FlagsError> {
        shell::write(context, self.name(), Kind::Nerdctl)
    }
}
