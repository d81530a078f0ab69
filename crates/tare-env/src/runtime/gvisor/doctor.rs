//! The checks of `tare doctor` for gVisor: the program, its version, and its platforms.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use tare_host::doctor::{Check, Verdict};
use tare_host::error_line;
use tare_host::journal::{Entry, Journal};

use super::{Outcome, Platform, PlatformTrial, REMEDY, find, version};
use crate::outcome_cache;

/// Checks this host. `state` is the state directory, which holds the journal of trials. A platform
/// without a cached outcome is tried now, which takes less than a second if it works and ten
/// seconds if it hangs.
pub fn checks(state: &Path) -> Vec<Check> {
    let Some(program) = find("runsc") else {
        return vec![check("oci:runsc", Verdict::Missing, "not on PATH", REMEDY)];
    };
    let detail = format!("{} ({})", version(&program), program.display());
    let mut checks = vec![check("oci:runsc", Verdict::Ok, detail, "")];
    checks.push(match platforms(state, &program) {
        Ok(outcomes) => judge(&outcomes),
        Err(why) => check(
            "gVisor: platforms",
            Verdict::Limited,
            format!("cannot be tried: {why}"),
            "run as root",
        ),
    });
    checks
}

fn check(what: &str, verdict: Verdict, detail: impl Into<String>, remedy: &str) -> Check {
    Check { what: what.into(), verdict, detail: detail.into(), remedy: remedy.into() }
}

fn platforms(state: &Path, program: &Path) -> Result<Vec<Outcome>, String> {
    if !rustix::process::geteuid().is_root() {
        return Err("sandboxes need root".into());
    }
    let journal = Journal::create(state, &[]).map_err(|error| error_line(&error))?;
    let tried = (|| -> Result<Vec<Outcome>, String> {
        let folder = state.join(journal.prefix());
        let entries = vec![Entry::processes(), Entry::directory(folder.clone())];
        journal.write(entries).map_err(|error| error_line(&error))?;
        fs::create_dir(&folder).map_err(|error| error.to_string())?;
        let cache = Path::new(outcome_cache::FOLDER);
        let here = PlatformTrial { cache, folder: &folder, run: journal.run() };
        let one = |platform| match obstacle(platform) {
            Some(detail) => Ok(Outcome { platform, usable: false, detail }),
            None => here.outcome(program, platform),
        };
        let all: io::Result<_> = Platform::ALL.into_iter().map(one).collect();
        all.map_err(|error| error.to_string())
    })();
    let left = journal.close();
    match left.first() {
        Some(error) => Err(error_line(error)),
        None => tried,
    }
}

/// Returns why a platform cannot even be tried, or `None` if it can.
fn obstacle(platform: Platform) -> Option<String> {
    if platform != Platform::Kvm {
        return None;
    }
    let opened = File::options().read(true).write(true).open("/dev/kvm");
    opened.err().map(|error| format!("/dev/kvm cannot be opened: {error}"))
}

fn judge(outcomes: &[Outcome]) -> Check {
    let line = |outcome: &Outcome| {
        let verdict = if outcome.usable { "works" } else { "does not work" };
        format!("{} {verdict} ({})", outcome.platform.word(), outcome.detail)
    };
    let detail = outcomes.iter().map(line).collect::<Vec<_>>().join("; ");
    let default = outcomes.iter().any(|one| one.platform == Platform::Systrap && one.usable);
    match default {
        true => check("gVisor: platforms", Verdict::Ok, detail, ""),
        false => check(
            "gVisor: platforms",
            Verdict::Limited,
            detail,
            "systrap is the default; name one that works: sandbox = { platform = \"...\" }",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_platform_decides() {
        let outcome = |platform, usable| Outcome { platform, usable, detail: "why".into() };
        let good = judge(&[outcome(Platform::Systrap, true), outcome(Platform::Kvm, false)]);
        assert_eq!(good.verdict, Verdict::Ok);
        assert!(good.detail.contains("kvm does not work (why)"), "{good:?}");
        let bad = judge(&[outcome(Platform::Systrap, false), outcome(Platform::Ptrace, true)]);
        assert!(bad.verdict == Verdict::Limited && !bad.remedy.is_empty(), "{bad:?}");
    }
}
