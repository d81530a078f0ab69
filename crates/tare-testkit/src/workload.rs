//! A workload for tests.

use tare_lab::study::{ClientConnection, KeyDistribution, LoadSize, Replicas, WorkloadSpec};

/// Returns a small workload: a thousand short rows, half writes, 4 connections with 32 requests in
/// flight, at capacity only. A test sets what matters to it.
pub fn workload() -> WorkloadSpec {
    WorkloadSpec {
        name: "test".into(),
        workload: None,
        workload_text: None,
        write_share: 0.5,
        rows: 1_000,
        columns: 3,
        column_bytes: 20,
        keys: KeyDistribution::Uniform,
        connections: 4,
        in_flight: 32,
        load: LoadSize::default(),
        latency_share: 0.0,
        rate_only: false,
        slo: None,
        reads_from_disk: None,
        replicas: Replicas::default(),
        connection: ClientConnection::default(),
        attached_rows: None,
        rate_per_s: None,
        options: Vec::new(),
    }
}
