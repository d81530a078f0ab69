//! Divides the CPUs between the client and the system. Pure.

use serde::{Deserialize, Serialize};
use tare_std::cpus::CpuSet;

/// The CPUs of system and client. `None` lets Tare divide them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuSpec {
    pub system: Option<CpuSet>,
    pub client: Option<CpuSet>,
}

/// The CPUs of system and client during a study.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPlan {
    /// Every CPU that Tare may use.
    pub all: CpuSet,
    /// CPUs of the system under test where its `cpu` layer is `pinned`.
    pub system: CpuSet,
    /// CPUs of the client. Disjoint from `system` unless the host has a single CPU.
    pub client: CpuSet,
}

/// A study requests CPUs that do not exist or that leave none for the other side.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "[cpus] {key} = \"{wanted}\" names CPU {missing}, which may not be used here; there are {online}"
    )]
    NotOnline { key: &'static str, wanted: CpuSet, missing: CpuSet, online: CpuSet },
    #[error("[cpus] {key} = \"{wanted}\" takes every CPU ({online}); leave one for the {other}")]
    NothingLeft { key: &'static str, wanted: CpuSet, online: CpuSet, other: &'static str },
    #[error("there is no CPU to use")]
    NoCpu,
}

/// Divides the CPUs in `online`, which this process may use, between client and system.
///
/// The study's choice comes first. Otherwise the client gets the lower half, at least one CPU, so
/// that the load generator is not the bottleneck; the system gets the rest, the odd CPU included.
/// A single CPU serves both, which is a doubt on every figure.
pub fn plan(online: &CpuSet, spec: &CpuSpec) -> Result<CpuPlan, PlanError> {
    if online.is_empty() {
        return Err(PlanError::NoCpu);
    }
    for (key, wanted) in [("system", &spec.system), ("client", &spec.client)] {
        let Some(wanted) = wanted else { continue };
        let missing = wanted.difference(online);
        if !missing.is_empty() {
            let (wanted, online) = (wanted.clone(), online.clone());
            return Err(PlanError::NotOnline { key, wanted, missing, online });
        }
    }
    let rest = |key, other, taken: &CpuSet| {
        let rest = online.difference(taken);
        if rest.is_empty() && online.len() > 1 {
            let (wanted, online) = (taken.clone(), online.clone());
            return Err(PlanError::NothingLeft { key, wanted, online, other });
        }
        Ok(if rest.is_empty() { online.clone() } else { rest })
    };
    let (system, client) = match (&spec.system, &spec.client) {
        (Some(system), Some(client)) => (system.clone(), client.clone()),
        (Some(system), None) => (system.clone(), rest("system", "client", system)?),
        (None, Some(client)) => (rest("client", "system", client)?, client.clone()),
        (None, None) => {
            let half = (online.len() / 2).max(1);
            let client: CpuSet = online.iter().take(half).collect();
            (rest("client", "system", &client)?, client)
        }
    };
    Ok(CpuPlan { all: system.union(&client), system, client })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> CpuSet {
        CpuSet::parse_list(text).unwrap()
    }

    fn spec(system: &str, client: &str) -> CpuSpec {
        let some = |text: &str| (!text.is_empty()).then(|| list(text));
        CpuSpec { system: some(system), client: some(client) }
    }

    #[test]
    fn divides_cpus() {
        let check = |online: &str, spec: &CpuSpec, client: &str, system: &str| {
            let plan = plan(&list(online), spec).unwrap();
            assert_eq!((plan.client, plan.system), (list(client), list(system)), "{online}");
        };
        check("0-1", &spec("", ""), "0", "1");
        check("0-7", &spec("", ""), "0-3", "4-7");
        check("0,2,4", &spec("", ""), "0", "2,4");
        check("3", &spec("", ""), "3", "3");
        check("0-3", &spec("3", ""), "0-2", "3");
        check("0-3", &spec("", "1"), "1", "0,2-3");
        check("0-3", &spec("3", "1"), "1", "3");
    }

    #[test]
    fn refuses_impossible_plans() {
        let error =
            |online: &str, spec: &CpuSpec| plan(&list(online), spec).unwrap_err().to_string();
        assert_eq!(
            error("0-1", &spec("1-2", "")),
            "[cpus] system = \"1-2\" names CPU 2, which may not be used here; there are 0-1"
        );
        assert_eq!(
            error("0-1", &spec("", "0-1")),
            "[cpus] client = \"0-1\" takes every CPU (0-1); leave one for the system"
        );
        assert_eq!(error("", &spec("", "")), "there is no CPU to use");
    }
}
