//! Parses the command line, runs one command, prints one error, returns an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = match tare::cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return tare::cli::usage_error(&error),
    };
    // Not locked: the load agent answers from its load threads.
    let mut out = std::io::stdout();
    match tare::run(&arguments, &mut out) {
        Ok(exit) => exit.into(),
        Err(error) => tare::exit::report(&error).into(),
    }
}
