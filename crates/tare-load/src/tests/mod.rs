//! Tests of the engine against a server in this process that speaks just enough CQL.

use std::sync::Arc;

use tare_std::cpus::CpuSet;

use crate::workload::Workload;
use crate::workload::keys::Keys;
use crate::workload::rows::{KeyType, Shape, ShapeError};
use crate::{LoadSpec, Part};

/// What a test asks: rows of blobs, by key.
#[derive(Clone, Debug)]
pub(crate) struct PlainLoad {
    pub(crate) write_share: f64,
    pub(crate) rows: u64,
    pub(crate) columns: u32,
    pub(crate) column_bytes: u32,
    pub(crate) connections: u32,
    pub(crate) in_flight: u32,
}

/// Returns a small workload.
pub(crate) fn workload() -> PlainLoad {
    PlainLoad {
        write_share: 0.5,
        rows: 1_000,
        columns: 3,
        column_bytes: 20,
        connections: 4,
        in_flight: 32,
    }
}

impl PlainLoad {
    pub(crate) fn spec(&self) -> Result<LoadSpec, ShapeError> {
        let Self { write_share, rows, columns, column_bytes, connections, in_flight } = *self;
        let shape = Shape { key_type: KeyType::Bigint, columns, column_bytes };
        let workload = Arc::new(Workload::plain(shape, rows, write_share, Keys::Uniform)?);
        Ok(LoadSpec { workload, part: Part::ALL, connections, in_flight })
    }
}

mod load;
mod recovery;

/// A CPU that this process may use.
pub(crate) fn cpus(most: usize) -> CpuSet {
    let affinity = rustix::thread::sched_getaffinity(None).unwrap();
    let numbers = (0u32..1_024).filter(|&cpu| affinity.is_set(cpu as usize));
    numbers.take(most).collect()
}
