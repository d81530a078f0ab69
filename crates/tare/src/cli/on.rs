//! `--on`, the same for all commands that look at a host, and the commands of runs on other hosts.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tare_kube::{PullPolicy, TareImage};
use tare_std::host_address::{HostAddress, HostAddressError, RemoteAddress};

/// Runs a command on other hosts.
#[derive(Clone, Debug, Default, Args)]
pub struct RunOn {
    /// Run the command on this host: HOST, USER@HOST, HOST:PORT or a name of ~/.ssh/config through
    /// ssh, or kubernetes:NODE through the API of its cluster. With several hosts, all run at once
    #[arg(long, value_name = "HOST", value_delimiter = ',', value_parser = remote_address)]
    pub on: Vec<RemoteAddress>,
    /// Start the command there and return; `tare attach` shows it and brings its files
    #[arg(long, requires = "on")]
    pub detach: bool,
    /// Print what would be created in the cluster of kubernetes:NODE, and the rights that it takes,
    /// and do nothing
    #[arg(long, requires = "on")]
    pub print_manifests: bool,
    #[command(flatten)]
    pub image: UseTareImage,
}

/// The image of the pods through which nodes of a cluster are reached, and that load a system.
#[derive(Clone, Debug, Default, Args)]
pub struct UseTareImage {
    /// Make the pods on nodes of a cluster of this image, which `tare image` makes: the way to
    /// kubernetes:NODE, loaders, and those of `tare tune manifest`. Without it they have the
    /// node's own programs, so the node needs a shell
    #[arg(long, value_name = "NAME")]
    pub tare_image: Option<String>,
    /// When the nodes pull that image
    #[arg(long, value_name = "WHEN", requires = "tare_image", default_value = "never")]
    pub tare_image_pull: PullImage,
}

/// When a node pulls an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PullImage {
    /// It was loaded on the node
    #[default]
    Never,
    /// If the node does not have it
    IfNotPresent,
    /// For each pod
    Always,
}

impl UseTareImage {
    /// Returns the image, if there is one.
    pub fn get(&self) -> Option<TareImage> {
        let pull = match self.tare_image_pull {
            PullImage::Never => PullPolicy::Never,
            PullImage::IfNotPresent => PullPolicy::IfNotPresent,
            PullImage::Always => PullPolicy::Always,
        };
        self.tare_image.clone().map(|name| TareImage { name, pull })
    }
}

#[derive(Debug, Args)]
pub struct PodProgram {
    #[command(subcommand)]
    pub task: PodTask,
}

#[derive(Debug, Subcommand)]
pub enum PodTask {
    /// Wait until the pod is deleted
    Wait,
    /// Apply the plan of this file on the node, and wait until the pod is deleted; without a file
    /// revert it
    Tune { plan: Option<PathBuf> },
    /// Copy the program to the node, if it is not to stay in the pod, and print where it is
    Place {
        #[arg(long)]
        on_node: bool,
    },
    /// Become a program on the node
    Enter {
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
pub struct Attach {
    /// The host
    #[arg(value_name = "HOST", value_parser = remote_address)]
    pub host: RemoteAddress,
    /// The run, if there are several
    #[arg(value_name = "ID")]
    pub id: Option<String>,
    #[command(flatten)]
    pub image: UseTareImage,
}

#[derive(Debug, Args)]
pub struct RunServer {
    #[command(subcommand)]
    pub task: RunServerTask,
}

#[derive(Debug, Subcommand)]
pub enum RunServerTask {
    /// Start a run from the files on standard input, and print its directory
    Start,
    /// Watch over a run
    Supervise { directory: PathBuf },
    /// Become the command of a run
    Run {
        directory: PathBuf,
        #[arg(long)]
        parent: u32,
    },
    /// Relay between standard input and output and a run
    Attach {
        directory: PathBuf,
        #[arg(long, default_value_t = 0)]
        after: u64,
        #[arg(long)]
        again: bool,
    },
    /// Run `tare clean` with the access to a cluster that is standard input
    Clean {
        #[arg(long)]
        json: bool,
    },
    /// Print the runs
    List,
    /// Print the files of a run
    Fetch { directory: PathBuf },
    /// Remove a run that has ended
    Remove { directory: PathBuf },
    /// Print the copies of the program
    Programs {
        #[arg(long)]
        remove: bool,
    },
}

/// Reads the address of another host, with or without `ssh:`.
fn remote_address(text: &str) -> Result<RemoteAddress, String> {
    let has_kind = ["ssh:", "kubernetes:", "pod:"].iter().any(|kind| text.starts_with(kind));
    let whole = if has_kind { text.to_string() } else { format!("ssh:{text}") };
    match whole.parse().map_err(|error: HostAddressError| error.to_string())? {
        HostAddress::Remote(RemoteAddress::Pod(node)) => {
            Err(format!("a pod only loads a system; write kubernetes:{node} for its node"))
        }
        HostAddress::Remote(address) => Ok(address),
        HostAddress::Local => unreachable!("the text has a kind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_run_on_hosts_alone() {
        for (text, expect) in [
            ("db1", Ok("ssh:db1")),
            ("ssh:db1:22", Ok("ssh:db1:22")),
            ("kubernetes:prod/n1", Ok("kubernetes:prod/n1")),
            ("pod:prod/n1", Err("write kubernetes:prod/n1 for its node")),
            ("pod:", Err("a name is missing")),
        ] {
            let read = remote_address(text).map(|address| address.to_string());
            match expect {
                Ok(address) => assert_eq!(read.as_deref(), Ok(address)),
                Err(why) => assert!(read.as_ref().is_err_and(|e| e.contains(why)), "{read:?}"),
            }
        }
    }
}
