//! The shards of a server, as the answer to OPTIONS describes them.

use tare_cql::token::Token;

/// The shard that a connection has reached, and how the server spreads rows over its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharding {
    pub(crate) shard: u16,
    pub(crate) shards: u16,
    /// How many of a token's highest bits do not count.
    pub(crate) ignore_msb: u8,
    /// The port at which the client's source port selects the shard.
    pub(crate) aware_port: Option<u16>,
}

impl Sharding {
    /// Reads the answer to OPTIONS; `None` for a server without shards. Source: Scylla's
    /// `docs/dev/protocol-extensions.md`.
    pub(crate) fn find<'a>(
        tls: bool,
        mut value: impl FnMut(&str) -> Option<&'a str>,
    ) -> Option<Self> {
        let algorithm = value("SCYLLA_SHARDING_ALGORITHM")?;
        if algorithm != "biased-token-round-robin" {
            return None;
        }
        let shard = value("SCYLLA_SHARD")?.parse().ok()?;
        let shards = value("SCYLLA_NR_SHARDS")?.parse().ok()?;
        let ignore_msb = value("SCYLLA_SHARDING_IGNORE_MSB")?.parse().ok()?;
        let port = if tls { "SCYLLA_SHARD_AWARE_PORT_SSL" } else { "SCYLLA_SHARD_AWARE_PORT" };
        let aware_port = value(port).and_then(|port| port.parse().ok());
        (shard < shards).then_some(Self { shard, shards, ignore_msb, aware_port })
    }

    pub(crate) fn owner(self, token: Token) -> u16 {
        token.shard(self.shards, self.ignore_msb)
    }
}
