//! Prepared statements as one connection's server knows them.

use tare_cql::request::Settings;
use tare_cql::response;
use tare_cql::wire::Consistency;

/// The statements of a job as the connection's server prepared them, in the job's order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Prepared {
    pub(crate) statements: Vec<Statement>,
}

/// A prepared statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) text: String,
    pub(crate) id: Vec<u8>,
    /// Version 5: the id of the result columns that the server described.
    pub(crate) result_id: Option<Vec<u8>>,
}

impl Statement {
    pub(crate) fn new(text: String, prepared: &response::Prepared<'_>) -> Self {
        let result_id = prepared.result_id.map(<[u8]>::to_vec);
        Self { text, id: prepared.id.to_vec(), result_id }
    }

    /// Returns the settings of its requests: consistency ONE until the caller sets another, without
    /// the description of rows, which the client knows.
    #[inline]
    pub(crate) fn settings(&self) -> Settings<'_> {
        Settings {
            consistency: Consistency::One,
            skip_metadata: true,
            result_id: self.result_id.as_deref(),
            ..Settings::DEFAULT
        }
    }
}
