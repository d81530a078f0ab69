//! Runs a bench in a network namespace of its own, which ends with it.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The environment variable that is set inside the namespace.
const INSIDE: &str = "TARE_BENCH_INSIDE";

/// Starts this program again in a network namespace with a loopback device that is up, after the
/// shell commands `setup`. Returns true inside it, and false if that is not possible, after saying
/// why.
pub(crate) fn enter(bench: &str, setup: &str) -> Result<bool, Box<dyn std::error::Error>> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(true);
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: {bench}: needs root, for a network namespace");
        return Ok(false);
    }
    for program in ["unshare", "ip"] {
        if tare_host::exec::find(program).is_none() {
            println!("skipped: {bench}: needs {program} on the PATH");
            return Ok(false);
        }
    }
    let script = format!("ip link set lo up && {setup} exec \"$0\" \"$@\"");
    let mut inside = Command::new("unshare");
    inside.args(["--net", "--", "sh", "-ec", &script]).arg(std::env::current_exe()?);
    Err(inside.args(std::env::args_os().skip(1)).env(INSIDE, "1").exec().into())
}
