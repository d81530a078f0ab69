//! Derives the study that a proof weighs: the baseline, and one environment as it is, with the
//! flags of `tare tune flags`, with a tuned host in addition, and with each group of knobs alone.
//! Pure.

use anyhow::{anyhow, bail};
use tare_lab::environment::EnvironmentSpec;
use tare_lab::layer::{Cpu, Host, Network, Security};
use tare_lab::study::{Hint, Study, control_name};
use tare_tune::knobs;

use crate::campaign::derived;

/// The names of the environments that a proof adds.
pub(super) const WITH_FLAGS: &str = "with flags";
pub(super) const WITH_EVERYTHING: &str = "with flags + host tuning";

/// Returns the study of a proof. `names_alone`: groups of knobs, or knobs, of the plan whose
/// changes affect a running system. Knobs that are planned only by name are alternatives, so that
/// no environment has all of them.
pub(super) fn derive(
    study: &Study,
    environment: Option<&str>,
    names_alone: &[String],
) -> anyhow::Result<Study> {
    let (baseline, chosen) = choose(study, environment)?;
    let mut names = vec![baseline.name.clone(), control_name(&baseline.name), chosen.name.clone()];
    let mut name = |wanted: String| {
        let mut name = wanted;
        while names.contains(&name) {
            name.push_str(" (proof)");
        }
        names.push(name.clone());
        name
    };
    let unchanged = EnvironmentSpec { optional: false, ..chosen.clone() };
    let with_flags = EnvironmentSpec { name: name(WITH_FLAGS.into()), ..flags(&unchanged) };
    let mut environments = vec![baseline.clone(), unchanged, with_flags.clone()];
    let mut tuned = |wanted: String, host: Host| {
        environments.push(EnvironmentSpec { name: name(wanted), host, ..with_flags.clone() });
    };
    let together = names_alone.iter().any(|name| !knobs::is_on_request(name));
    if together {
        tuned(WITH_EVERYTHING.into(), Host::Tuned);
    }
    if names_alone.len() > 1 || !together {
        for name in names_alone {
            tuned(format!("{WITH_FLAGS} + {name}"), Host::TunedGroups(vec![name.clone()]));
        }
    }
    let against_baseline = |name: &String| *name == study.baseline;
    let published = study.published.iter().filter(|relation| {
        relation.environment == chosen.name
            && relation.against.as_ref().is_none_or(against_baseline)
    });
    Ok(Study {
        name: format!("{}-proof", study.name),
        title: format!("What do flags and host tuning gain for \"{}\" on this host?", chosen.name),
        published: published.cloned().collect(),
        environments,
        ..study.clone()
    })
}

/// Returns the baseline and the environment to tune.
fn choose<'s>(
    study: &'s Study,
    environment: Option<&str>,
) -> anyhow::Result<(&'s EnvironmentSpec, &'s EnvironmentSpec)> {
    let mut others = study.environments.iter().filter(|spec| spec.name != study.baseline);
    let nothing = || {
        let (study, baseline) = (&study.name, &study.baseline);
        anyhow!("the study {study} has no environment besides its baseline {baseline:?} to tune")
    };
    let baseline = study.baseline_environment().ok_or_else(nothing)?;
    let chosen = match environment {
        None => others.next().ok_or_else(nothing)?,
        Some(name) if name == study.baseline => {
            bail!("{name:?} is the baseline; name another environment with --environment");
        }
        Some(name) => others.find(|spec| spec.name == name).ok_or_else(|| {
            let known: Vec<&str> = study.environments.iter().map(|e| e.name.as_str()).collect();
            let hint = Hint::new(name, &known);
            anyhow!("the study {} has no environment {name:?}{hint}", study.name)
        })?,
    };
    Ok((baseline, chosen))
}

/// Returns the environment with the flags of `tare tune flags` as layers: the host's network,
/// pinned CPUs, and io_uring allowed. A plain process has no filter to relax.
fn flags(spec: &EnvironmentSpec) -> EnvironmentSpec {
    let security = match spec.security {
        Security::Default => Security::DefaultWithIoUring,
        other => other,
    };
    EnvironmentSpec {
        network: Network::Host,
        cpu: Cpu::Pinned,
        security,
        host: Host::AsIs,
        ..spec.clone()
    }
}

/// Returns the text of the derived study, for the record.
pub(super) fn text(study: &Study, source: &str, original: &str) -> String {
    derived::text("tare tune prove", study, source, original)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{registry, studies};

    fn quick() -> Study {
        let text = studies::find("quick").unwrap();
        tare_lab::study::parse(text, "quick", &registry::vocabulary()).unwrap()
    }

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn names(study: &Study) -> Vec<&str> {
        study.environments.iter().map(|spec| spec.name.as_str()).collect()
    }

    fn layers(spec: &EnvironmentSpec) -> [String; 6] {
        let EnvironmentSpec { runtime, network, cpu, security, cgroup, host, .. } = spec;
        let words = [network.to_string(), cpu.to_string(), security.to_string()];
        let [network, cpu, security] = words;
        [runtime.to_string(), network, cpu, security, cgroup.to_string(), host.to_string()]
    }

    #[test]
    fn proof_has_flags_tuning_and_each_group() {
        let study = quick();
        let proof = derive(&study, None, &list(&["network", "disk"])).unwrap();
        assert_eq!(
            names(&proof),
            [
                "native",
                "container default",
                "with flags",
                "with flags + host tuning",
                "with flags + network",
                "with flags + disk"
            ]
        );
        let [native, default, flags, all, network, disk] = &proof.environments[..] else {
            panic!()
        };
        assert_eq!(native, &study.environments[0]);
        assert_eq!(default, &study.environments[1]);
        let rest = ["oci:runc", "host", "pinned", "default+io_uring", "own"];
        let with = |host| [rest[0], rest[1], rest[2], rest[3], rest[4], host];
        assert_eq!(layers(flags), with("as-is"));
        assert_eq!(layers(all), with("tuned"));
        assert_eq!(layers(network), with("tuned=network"));
        assert_eq!(layers(disk), with("tuned=disk"));
        assert_eq!(proof.workloads, study.workloads);
        assert_eq!((proof.baseline, proof.system), (study.baseline, study.system));
    }

    #[test]
    fn single_group_is_not_weighed_twice() {
        let one = derive(&quick(), None, &list(&["disk"])).unwrap();
        assert_eq!(names(&one).len(), 4);
        let alternative = derive(&quick(), None, &list(&["coalescing_off"])).unwrap();
        assert_eq!(names(&alternative)[3..], ["with flags + coalescing_off"]);
        let both = list(&["rps", "coalescing_off"]);
        let both = derive(&quick(), None, &both).unwrap();
        let expect = [WITH_EVERYTHING, "with flags + rps", "with flags + coalescing_off"];
        assert_eq!(names(&both)[3..], expect);
        let none = derive(&quick(), Some("docker default"), &[]).unwrap();
        assert_eq!(names(&none), ["native", "docker default", "with flags"]);
        // A proof needs all of its environments.
        assert!(none.environments.iter().all(|spec| !spec.optional));
        assert_eq!(none.environments[2].runtime, "docker");
    }

    #[test]
    fn baseline_and_unknown_environments_are_refused() {
        let error = |name| derive(&quick(), Some(name), &[]).unwrap_err().to_string();
        assert!(error("native").contains("is the baseline"));
        assert!(error("container defualt").contains("container default"), "a hint is given");
        let mut bare = quick();
        bare.environments.truncate(1);
        assert!(
            derive(&bare, None, &[])
                .unwrap_err()
                .to_string()
                .contains("no environment besides its baseline")
        );
    }

    #[test]
    fn taken_names_get_a_suffix() {
        let mut study = quick();
        study.environments[1].name = WITH_FLAGS.into();
        let proof = derive(&study, None, &list(&["disk"])).unwrap();
        assert_eq!(names(&proof)[2], "with flags (proof)");
        let text = text(&proof, "quick", "name = \"quick\"\n\nx = 1\n");
        assert!(text.contains("\n[[environment]]\nname = \"with flags (proof)\"\n"), "{text}");
        assert!(text.ends_with("# name = \"quick\"\n#\n# x = 1\n"), "{text}");
    }
}
