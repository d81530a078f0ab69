//! `--inside`, the same for all commands that measure.

use clap::Args;
use tare_env::inside::Options;

#[derive(Clone, Debug, Default, Args)]
pub struct RunInside {
    /// Run the command inside a guest with this host's files and a kernel of its own: vm:qemu, with
    /// ,vcpus= ,nodes= (NUMA nodes) ,threads= (of a core) ,memory= ,disk= (state), ,raw= ,nvme=
    /// (disks to overwrite), ,tap= ,queues= ,card= ,address= (network card), ,accelerator=
    /// ,kernel=; vm:uml, with ,memory= ,disk= ,raw= ,kernel=
    #[arg(long, value_name = "vm:qemu|vm:uml[,NAME=VALUE]")]
    pub inside: Option<Options>,
}
