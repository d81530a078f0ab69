//! The shards of a server, as it tells of them at OPTIONS.

use tare_cql::token::Token;

/// Where a connection has come to, and how rows are spread over the shards of its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sharding {
    pub(crate) shard: u16,
    pub(crate) shards: u16,
    /// The highest bits of a token that do not count.
    pub(crate) ignore_msb: u8,
    /// The port at which a client chooses the shard by the port that it comes from.
    pub(crate) aware_port: Option<u16>,
}

impl Sharding {
    /// What SUPPORTED says of it; `None` from a server without shards. Source: Scylla's
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
