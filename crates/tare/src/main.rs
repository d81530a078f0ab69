//! Parses the command line, runs one command, prints one error, returns an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let arguments = match tare::cli::Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return tare::cli::usage_error(&error),
    };
    let result = tare::run(&arguments, &mut tare::stream::Output);
    tare::exit::of(result).into()
}
