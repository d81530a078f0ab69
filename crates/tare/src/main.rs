//! Parses the command line, runs one command, prints one error, returns an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = match tare::cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return tare::cli::usage_error(&error),
    };
    let mut out = std::io::stdout().lock();
    match tare::run(&arguments, &mut out) {
        Ok(exit) => exit.into(),
        Err(error) => tare::exit::report(&error).into(),
    }
}
