//! The schema as a shard sees it, and the statements that it has planned in it.

use std::sync::Arc;

use crate::query::catalog::Catalog;
use crate::query::plan::Prepared;
use crate::query::prepared::{PreparedText, StatementCache};

/// An epoch that no schema has.
const NO_EPOCH: u64 = u64::MAX;

/// A shard's copy of the schema, which it refreshes when the epoch has changed.
#[derive(Debug)]
pub(crate) struct SchemaView {
    pub(crate) catalog: Arc<Catalog>,
    /// Epoch of the catalog; [`NO_EPOCH`] before there is one.
    pub(crate) epoch: u64,
    pub(crate) prepared: StatementCache<PlannedStatement>,
}

/// A prepared statement with the plan that this shard made of it.
#[derive(Debug)]
pub(crate) struct PlannedStatement {
    pub(crate) text: PreparedText,
    pub(crate) plan: Arc<Prepared>,
}

impl Default for SchemaView {
    fn default() -> Self {
        let (catalog, prepared) = (Arc::default(), StatementCache::default());
        Self { catalog, epoch: NO_EPOCH, prepared }
    }
}
