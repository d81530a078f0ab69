//! `--progress` and `--serve`, the same for all commands that run a study.

use std::net::SocketAddr;

use clap::{Args, ValueEnum};

/// How progress is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// The most detailed view that the terminal supports
    #[default]
    Auto,
    /// Full screen: costs, slices, doubts
    Screen,
    /// A progress bar and the costs so far
    Bar,
    /// Plain lines
    Lines,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct ShowProgress {
    /// How to show progress on standard error
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: Progress,
    #[command(flatten)]
    pub page: ServePage,
}

/// `--serve`, for a command that runs a study or reports a record.
#[derive(Clone, Copy, Debug, Args)]
pub struct ServePage {
    /// Serve the record's page on the loopback interface, and update it as the record grows
    /// [default without an address: a free port of 127.0.0.1, which is printed]
    #[arg(
        long,
        value_name = "ADDRESS:PORT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "127.0.0.1:0",
        value_parser = crate::serve::parse_address
    )]
    pub serve: Option<SocketAddr>,
}
