//! The messages between the harness and a load agent: JSON, one message per line.
//!
//! Order (to the agent's standard input) -> answers (from its standard output):
//!
//! | order | answers |
//! |---|---|
//! | `{"open":{"addresses":["127.0.0.1:9042"],"deadline":{"secs":5,"nanos":0}}}` | `{"opened":{"target":0}}` |
//! | `{"populate":{"target":0,"workload":{..},"seed":1}}` | `{"progress":{"done":500,"all":1000}}` ..., `"populated"` |
//! | `{"run":{"target":0,"order":{..}}}` | `"begin"`, `"end"` at the edges, `{"ran":{..}}` |
//! | `"read"`: the accounts have been read at the end of the window | none: the load ends |
//! | `{"close":{"target":0}}` | `"closed"` |
//! | `"quit"` | none: the process ends |
//!
//! A driver of several loaders (`crate::loaders`) also sends these:
//!
//! | order | answers |
//! |---|---|
//! | `"host"` | `{"host":{"cpus":"0-3","kernel":"6.1.0","architecture":"x86_64"}}` |
//! | `"clock"` | `{"clock":{"ns":123}}`: CLOCK_MONOTONIC of the agent's host |
//! | `{"rows":{"target":0,"workload":{..},"seed":1}}`: others wrote them | `"populated"` |
//! | `{"prepare":{"target":0,"order":{..},"part":{"index":0,"count":2},"wait":{..}}}` | `{"progress":{..}}` while it takes long, `{"prepared":{"loading":false}}` |
//! | `"release"`: the slice that was prepared will not come | `"released"` |
//! | `{"run":{..,"shared":{..}}}`: one part of a load, at a time of the agent's clock | `{"accepted":{"ns":123}}` at once, `{"ran":{..}}` |
//! | `"stop"`: the load is void | none: the load ends |
//! | `"alive"`, every few seconds | none |
//!
//! A driver that runs a load tool loads the system once it is prepared (`"loading":true`), and has
//! the lead-in behind it. Its run begins with the window, and it is prepared for each slice.
//!
//! Any order may be answered by `{"failed":{"error":".."}}` instead. Orders are executed
//! one after the other; the end of standard input ends a running load. Histograms are base64 of
//! HdrHistogram's V2 compressed form.

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tare_lab::access::ClientAccess;
use tare_lab::driver::{SliceLoad, SliceOrder, TargetId};
use tare_lab::path::PathSample;
use tare_lab::seconds::LoadSecond;
use tare_lab::study::WorkloadSpec;
use tare_std::cpus::CpuSet;

/// The line with which the harness answers the end of a window, once it has read its accounts.
pub(crate) const ACCOUNTS_READ: &str = r#""read""#;
/// The line with which the harness ends a running load whose result nobody needs.
pub(crate) const STOP: &str = r#""stop""#;
/// The line that shows that the harness is there.
pub(crate) const ALIVE: &str = r#""alive""#;

/// A message from the harness to the agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Several addresses are the nodes of a cluster, all of which are loaded.
    Open {
        addresses: Vec<SocketAddr>,
        deadline: Duration,
        #[serde(default, skip_serializing_if = "ClientAccess::is_plain")]
        access: Box<ClientAccess>,
    },
    Populate {
        target: TargetId,
        workload: WorkloadSpec,
        seed: u64,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<LoaderPart>,
    },
    /// The rows were written by an agent before this one.
    Rows {
        target: TargetId,
        workload: WorkloadSpec,
        seed: u64,
    },
    Prepare {
        target: TargetId,
        order: SliceOrder,
        part: LoaderPart,
        /// The longest time that it may have to wait for other loaders once it is ready.
        wait: Duration,
    },
    Release,
    Run {
        target: TargetId,
        order: SliceOrder,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shared: Option<SharedRun>,
    },
    Host,
    Clock,
    Close {
        target: TargetId,
    },
    Quit,
}

/// Which of several loaders an agent is, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoaderPart {
    pub(crate) index: u32,
    pub(crate) count: u32,
}

impl LoaderPart {
    /// A client that shares its load with no other.
    pub(crate) const ALONE: Self = Self { index: 0, count: 1 };

    /// Returns its part of so many things: the first one, and how many.
    pub(crate) fn range(self, all: u64) -> (u64, u64) {
        let [index, count] = [self.index, self.count].map(u128::from);
        let edge =
            |index: u128| u64::try_from(u128::from(all) * index / count.max(1)).unwrap_or(u64::MAX);
        (edge(index), edge(index + 1) - edge(index))
    }
}

/// One loader's part of a slice. The order of such a run has this loader's connections, requests in
/// flight and rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedRun {
    pub(crate) part: LoaderPart,
    /// When the lead-in begins, on the agent's own CLOCK_MONOTONIC; the window, if it was prepared
    /// and is loading.
    pub(crate) at_ns: u64,
    /// Open loop: the first operation is due this much later.
    pub(crate) phase_ns: u64,
}

/// A message from the agent to the harness.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    Opened { target: TargetId },
    Progress { done: u64, all: u64 },
    Populated,
    Prepared { loading: bool },
    Released,
    Host { cpus: CpuSet, kernel: String, architecture: String },
    Clock { ns: u64 },
    Accepted { ns: u64 },
    Begin,
    End,
    Ran(Box<SliceResult>),
    Closed,
    Failed { error: String },
}

/// A `SliceLoad` with its histograms as text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SliceResult {
    window_ns: u64,
    operations: u64,
    errors: Vec<(String, u64)>,
    unsent: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sent_late: Option<u64>,
    client_cpu_ns: u64,
    response: String,
    service: String,
    /// Set in a run with others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) shared: Option<SharedResult>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<PathSample>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    seconds: Vec<LoadSecond>,
}

/// What a driver of several loaders needs in addition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedResult {
    /// When the window really opened and closed, on the agent's own CLOCK_MONOTONIC.
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    /// CPU time of the busiest load thread.
    pub(crate) busiest_thread_ns: u64,
    /// How long the load threads waited for a CPU; `None` if the kernel does not tell.
    pub(crate) waited_ns: Option<u64>,
}

impl SliceResult {
    pub(crate) fn new(load: &SliceLoad, shared: Option<SharedResult>) -> Self {
        Self {
            window_ns: load.window_ns,
            operations: load.operations,
            errors: load.errors.clone(),
            unsent: load.unsent,
            sent_late: load.sent_late,
            client_cpu_ns: load.client_cpu_ns,
            response: STANDARD.encode(&load.response),
            service: STANDARD.encode(&load.service),
            shared,
            path: load.paths.first().cloned(),
            seconds: load.seconds.clone(),
        }
    }
}

impl TryFrom<SliceResult> for SliceLoad {
    type Error = base64::DecodeError;

    fn try_from(ran: SliceResult) -> Result<Self, Self::Error> {
        Ok(Self {
            window_ns: ran.window_ns,
            operations: ran.operations,
            errors: ran.errors,
            unsent: ran.unsent,
            sent_late: ran.sent_late,
            client_cpu_ns: ran.client_cpu_ns,
            // The agent lives as long as the study, so a probe counts its threads.
            busiest_thread_ns: 0,
            response: STANDARD.decode(ran.response)?,
            service: STANDARD.decode(ran.service)?,
            loaders: Vec::new(),
            instances: Vec::new(),
            paths: ran.path.into_iter().collect(),
            seconds: ran.seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_match_the_documented_table() {
        let check = |order: Order, text: &str| {
            assert_eq!(serde_json::to_string(&order).unwrap(), text);
            assert_eq!(serde_json::from_str::<Order>(text).unwrap(), order);
        };
        check(
            Order::Open {
                addresses: vec!["127.0.0.1:9042".parse().unwrap()],
                deadline: Duration::from_secs(5),
                access: Box::default(),
            },
            r#"{"open":{"addresses":["127.0.0.1:9042"],"deadline":{"secs":5,"nanos":0}}}"#,
        );
        check(Order::Close { target: TargetId(0) }, r#"{"close":{"target":0}}"#);
        check(Order::Quit, r#""quit""#);
        let check = |answer: Answer, text: &str| {
            assert_eq!(serde_json::to_string(&answer).unwrap(), text);
            assert_eq!(serde_json::from_str::<Answer>(text).unwrap(), answer);
        };
        check(Answer::Opened { target: TargetId(0) }, r#"{"opened":{"target":0}}"#);
        check(Answer::Begin, r#""begin""#);
        check(Answer::Progress { done: 5, all: 10 }, r#"{"progress":{"done":5,"all":10}}"#);
    }

    #[test]
    fn slice_result_round_trips() {
        let load = SliceLoad {
            window_ns: 200_000_123,
            operations: 12_345,
            errors: vec![("no answer".into(), 3)],
            unsent: 7,
            sent_late: Some(2),
            client_cpu_ns: 99,
            busiest_thread_ns: 0,
            response: Vec::new(),
            service: vec![0, 1, 2, 255],
            loaders: Vec::new(),
            instances: Vec::new(),
            paths: Vec::new(),
            seconds: vec![LoadSecond { operations: 5, mean_ns: 7, max_ns: 11 }],
        };
        assert_eq!(SliceLoad::try_from(SliceResult::new(&load, None)).unwrap(), load);
    }
}
