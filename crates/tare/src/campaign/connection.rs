//! How clients connect to the systems of a study: whether the systems can, and what both need.

use std::sync::Arc;

use anyhow::anyhow;
use tare_lab::access::ClientAccess;
use tare_lab::study::{Study, WorkloadSpec};
use tare_system::{SERVER_NAME, ServerCertificate, SystemInfo, TlsSupport};

use crate::exit::{Exit, ExitWith};

/// Refuses TLS for a system that Tare cannot start with it.
///
/// # Errors
/// If a workload has TLS and the system does not, or not beside clients without it.
pub(super) fn check(study: &Study, info: &SystemInfo) -> anyhow::Result<()> {
    let Some(workload) = starts_with_tls(study) else { return Ok(()) };
    let without = study.workloads.iter().find(|workload| !workload.connection.tls);
    let refused = match (info.tls, without) {
        (TlsSupport::No, _) => anyhow!(
            "workload {:?}: tls = true: Tare starts {} without TLS; it starts {} with it, and attaches to \
             any other that has it",
            workload.name,
            info.name,
            with_tls().join(", ")
        ),
        (TlsSupport::Alone, Some(without)) => anyhow!(
            "workload {:?} has tls = true, and {:?} has not: {} listens for clients with TLS or for those \
             without; weigh them in two studies",
            workload.name,
            without.name,
            info.name
        ),
        _ if !study.hosts.is_empty() => anyhow!(
            "workload {:?}: tls = true: a system on other hosts is started without TLS; leave out tls, or \
             hosts of [system]",
            workload.name
        ),
        _ => return Ok(()),
    };
    Err(refused).exit_with(Exit::Input)
}

/// Returns the systems that Tare starts with TLS.
fn with_tls() -> Vec<&'static str> {
    let all = tare_system::ALL.iter();
    all.filter(|system| system.tls != TlsSupport::No).map(|system| system.name).collect()
}

/// Returns the first workload with TLS of a study whose systems Tare starts.
fn starts_with_tls(study: &Study) -> Option<&WorkloadSpec> {
    let attached = study.attached().next().is_some();
    study.workloads.iter().find(|workload| !attached && workload.connection.tls)
}

/// Returns what clients need to connect, and the certificate of the systems that the run starts.
/// Passwords and the certificates of others are read here.
///
/// # Errors
/// If they cannot be read, or no certificate can be made.
pub(super) fn access(
    study: &Study,
) -> anyhow::Result<(ClientAccess, Option<Arc<ServerCertificate>>)> {
    let connection = study.workloads.first().map(|first| first.connection).unwrap_or_default();
    if let Some(spec) = &study.access {
        let access = tare_system::access::resolve(spec, connection).exit_with(Exit::Input)?;
        return Ok((access, None));
    }
    let access = ClientAccess { connection, ..ClientAccess::default() };
    if starts_with_tls(study).is_none() {
        return Ok((access, None));
    }
    let certificate = ServerCertificate::make()?;
    let authorities = Some(certificate.certificate().to_string());
    let server_name = Some(SERVER_NAME.to_string());
    Ok((ClientAccess { authorities, server_name, ..access }, Some(Arc::new(certificate))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn study(system: &str, workloads: &[&str]) -> Study {
        let workloads = workloads.iter().enumerate();
        let workloads =
            workloads.map(|(i, keys)| format!("[[workload]]\nname = \"w{i}\"\n{keys}\n"));
        let text = format!(
            "name = \"s\"\nbaseline = \"a\"\n[system]\nname = {system:?}\n[[environment]]\n\
             name = \"a\"\nruntime = \"process\"\n{}",
            workloads.collect::<String>()
        );
        tare_lab::study::parse(&text, "s.toml", &crate::registry::vocabulary()).unwrap()
    }

    #[test]
    fn tls_needs_a_system_that_has_it() {
        let check = |system: &str, workloads: &[&str], expect: Option<&str>| {
            let found = check(&study(system, workloads), tare_system::find(system).unwrap());
            let found = found.err().map(|error| format!("{error:#}"));
            match expect {
                None => assert_eq!(found, None),
                Some(text) => {
                    assert!(found.as_ref().is_some_and(|e| e.contains(text)), "{found:?}")
                }
            }
        };
        check("tare-db", &["tls = true", "tls = false"], None);
        check("redis", &["tls = true", "tls = true"], None);
        check("redis", &["tls = true", ""], Some("\"w0\" has tls = true, and \"w1\" has not"));
        check(
            "memcached",
            &["tls = true"],
            Some("starts memcached without TLS; it starts tare-db"),
        );
        check("memcached", &[""], None);
    }

    #[test]
    fn a_certificate_is_made_only_for_tls() {
        let (access, certificate) = access(&study("tare-db", &["", "tls = true"])).unwrap();
        assert!(certificate.is_some() && !access.connection.tls);
        assert_eq!(access.server_name.as_deref(), Some("tare"));
        let (access, certificate) = super::access(&study("tare-db", &[""])).unwrap();
        assert!(certificate.is_none() && access.is_plain());
    }
}
