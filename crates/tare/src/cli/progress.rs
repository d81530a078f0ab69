//! `--progress`, the same for all commands that run a study.

use clap::{Args, ValueEnum};

/// How to show what runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Progress {
    /// The best that the terminal can show
    #[default]
    Auto,
    /// The whole terminal: costs, slices, doubts
    Screen,
    /// A bar and the costs so far
    Bar,
    /// Plain lines
    Lines,
}

#[derive(Clone, Copy, Debug, Args)]
pub struct ShowProgress {
    /// What to show on standard error while it runs
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub progress: Progress,
}
