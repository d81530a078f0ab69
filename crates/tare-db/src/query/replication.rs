//! How many replicas a keyspace asks for, and whether one node can do what a request demands.
//!
//! This server is the only node of its data centre. A keyspace may ask for more replicas than
//! there are, as on a Cassandra of which only one node is up: requests that one replica can answer
//! are answered, those at a level that needs more are refused as unavailable, with the numbers
//! that Cassandra would give (its `ConsistencyLevel.blockFor`).

use tare_cql::statement::Literal;
use tare_cql::wire::Consistency;

use crate::query::failure::Failure;

/// The data centre of this node.
pub(crate) const DATA_CENTER: &str = "datacenter1";
const PACKAGE: &str = "org.apache.cassandra.locator.";
const REPLICAS_MAX: i32 = 1000;

/// The replicas of a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replicas {
    /// In this data centre.
    local: i32,
    /// In all of them.
    total: i32,
    /// Replicas that a quorum of each data centre makes.
    each_quorum: i32,
}

impl Default for Replicas {
    fn default() -> Self {
        Self { local: 1, total: 1, each_quorum: 1 }
    }
}

impl Replicas {
    /// Of a keyspace's replication, which was checked when it was made.
    pub(crate) fn of(replication: &[(String, String)]) -> Self {
        let class = replication.iter().find(|(key, _)| key == "class");
        let by_center = class.is_some_and(|(_, class)| class.ends_with("NetworkTopologyStrategy"));
        let mut replicas = Self { local: 0, total: 0, each_quorum: 0 };
        for (key, value) in replication {
            let Some(count) = count(value) else { continue };
            replicas.total += count;
            replicas.each_quorum += quorum(count);
            if !by_center || key == DATA_CENTER {
                replicas.local += count;
            }
        }
        if class.is_none() { Self::default() } else { replicas }
    }

    /// How many this data centre is asked for.
    pub(crate) fn here(&self) -> i32 {
        self.local
    }

    /// Refuses what needs more replicas than are alive.
    #[inline]
    pub(crate) fn check(&self, consistency: Consistency) -> Result<(), Failure> {
        let required = match consistency {
            Consistency::Any | Consistency::One | Consistency::LocalOne => 1,
            Consistency::Two => 2,
            Consistency::Three => 3,
            Consistency::Quorum | Consistency::Serial => quorum(self.total),
            Consistency::All => self.total.max(1),
            Consistency::LocalQuorum | Consistency::LocalSerial => quorum(self.local),
            Consistency::EachQuorum => self.each_quorum.max(1),
        };
        let alive = self.local.min(1);
        if required <= alive {
            return Ok(());
        }
        Err(Failure::Unavailable { consistency, required, alive })
    }
}

fn quorum(replicas: i32) -> i32 {
    replicas / 2 + 1
}

/// The number in a replication factor; `3/1` is three with one transient.
fn count(text: &str) -> Option<i32> {
    let count = text.split('/').next()?.parse().ok();
    count.filter(|count| (0..=REPLICAS_MAX).contains(count))
}

/// Reads the `replication` of CREATE and ALTER KEYSPACE.
pub(crate) fn replication(literal: &Literal) -> Result<Vec<(String, String)>, Failure> {
    let config = |message: String| Failure::Config(message);
    let Literal::Map(entries) = literal else {
        return Err(Failure::Syntax("Invalid value for property 'replication'".into()));
    };
    let word = |literal: &Literal| match literal {
        Literal::Text(text) => Ok(text.clone()),
        Literal::Integer(number) => Ok(number.to_string()),
        _ => Err(config("replication is a map of texts and numbers".into())),
    };
    let mut given = Vec::new();
    for (key, value) in entries {
        given.push((word(key)?, word(value)?));
    }
    let missing = "Missing mandatory replication strategy class";
    let class = given.iter_mut().find(|(key, _)| key == "class");
    let (_, class) = class.ok_or_else(|| config(missing.into()))?;
    // Drivers know strategies by their Java class.
    let short = class.rsplit('.').next().unwrap_or(class).to_string();
    let by_center = match short.as_str() {
        "SimpleStrategy" => false,
        "NetworkTopologyStrategy" => true,
        _ => return Err(config(format!("Unable to find replication strategy class '{class}'"))),
    };
    *class = format!("{PACKAGE}{short}");
    let mut found = vec![("class".to_string(), class.clone())];
    for (key, value) in &given {
        let name = match key.as_str() {
            "class" => continue,
            // All data centres, of which there is one.
            "replication_factor" if by_center => DATA_CENTER,
            "replication_factor" => "replication_factor",
            center if by_center => center,
            option => {
                return Err(config(format!(
                    "Unrecognized strategy option {{{option}}} passed to SimpleStrategy for keyspace"
                )));
            }
        };
        if count(value).is_none() {
            return Err(config(format!("Replication factor must be numeric; found {value}")));
        }
        if found.iter().all(|(known, _)| known != name) {
            found.push((name.into(), value.clone()));
        }
    }
    if found.len() == 1 && !by_center {
        return Err(config("SimpleStrategy requires a replication_factor strategy option.".into()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(pairs: &[(&str, &str)]) -> Result<Vec<(String, String)>, Failure> {
        let text = |text: &str| Literal::Text(text.into());
        replication(&Literal::Map(pairs.iter().map(|(k, v)| (text(k), text(v))).collect()))
    }

    #[test]
    fn one_node_answers_what_one_replica_can() {
        let check = |pairs: &[(&str, &str)], consistency, expect: Option<(i32, i32)>| {
            let replicas = Replicas::of(&made(pairs).unwrap());
            let got = match replicas.check(consistency) {
                Ok(()) => None,
                Err(Failure::Unavailable { required, alive, .. }) => Some((required, alive)),
                Err(other) => panic!("{other:?}"),
            };
            assert_eq!(got, expect, "{pairs:?} {consistency:?}");
        };
        let simple = |count| [("class", "SimpleStrategy"), ("replication_factor", count)];
        let one = Consistency::One;
        for consistency in [one, Consistency::Quorum, Consistency::All, Consistency::EachQuorum] {
            check(&simple("1"), consistency, None);
        }
        check(&simple("1"), Consistency::Two, Some((2, 1)));
        check(&simple("3"), Consistency::LocalOne, None);
        check(&simple("3"), Consistency::Quorum, Some((2, 1)));
        check(&simple("3"), Consistency::All, Some((3, 1)));
        let centers = [("class", "NetworkTopologyStrategy"), (DATA_CENTER, "1"), ("other", "3")];
        check(&centers, Consistency::LocalQuorum, None);
        check(&centers, Consistency::Quorum, Some((3, 1)));
        check(&centers, Consistency::EachQuorum, Some((3, 1)));
        let elsewhere = [("class", "NetworkTopologyStrategy"), ("other", "3")];
        check(&elsewhere, one, Some((1, 0)));
    }

    #[test]
    fn strategies_are_checked() {
        let network = made(&[("class", "NetworkTopologyStrategy"), ("replication_factor", "2")]);
        assert_eq!(network.unwrap()[1], (DATA_CENTER.into(), "2".into()));
        for pairs in [
            &[("replication_factor", "1")][..],
            &[("class", "SimpleStrategy")],
            &[("class", "SimpleStrategy"), ("replication_factor", "some")],
            &[("class", "SimpleStrategy"), ("replication_factor", "1"), ("dc", "1")],
            &[("class", "OldStrategy"), ("replication_factor", "1")],
        ] {
            assert!(matches!(made(pairs), Err(Failure::Config(_))), "{pairs:?}");
        }
    }
}
