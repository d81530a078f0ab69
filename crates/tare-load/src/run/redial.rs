//! Reconnects broken connections during a load, on a thread of its own, because that waits.
//!
//! The pause between two attempts is 10 ms at first and doubles up to a second. The thread ends at
//! most one attempt after nobody receives its connections any more.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::protocol::cluster::Cluster;
use crate::protocol::connection::Connection;
use crate::protocol::dial::Dialer;

const WAIT_MIN: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Time limit for one attempt. A server that needs longer is not back yet.
const ATTEMPT: Duration = Duration::from_secs(1);

/// Everything that is needed to open a connection.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSpec {
    pub(crate) dialer: Dialer,
    pub(crate) cluster: Cluster,
    pub(crate) statements: Vec<String>,
    /// The number of the first connection of the thread that is served.
    pub(crate) first: usize,
}

/// New connections, with their indices.
type Reconnected = Receiver<(usize, Connection)>;

/// A handle on the reconnecting thread.
#[derive(Debug)]
pub(crate) struct Redialer {
    spec: ConnectionSpec,
    thread: Option<(Sender<usize>, Reconnected)>,
    /// How many connections are being opened.
    pending: usize,
}

impl Redialer {
    /// Returns a handle; the thread starts with the first order.
    pub(crate) fn new(spec: ConnectionSpec) -> Self {
        Self { spec, thread: None, pending: 0 }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.pending > 0
    }

    /// Orders a new connection for this index.
    pub(crate) fn order(&mut self, index: usize) {
        let (orders, _) = self.thread.get_or_insert_with(|| start(self.spec.clone()));
        // The thread outlives this handle, unless it could not be started; then nothing comes back.
        self.pending += usize::from(orders.send(index).is_ok());
    }

    /// Returns a new connection with its index, if there is one.
    pub(crate) fn take(&mut self) -> Option<(usize, Connection)> {
        let (_, made) = self.thread.as_ref()?;
        let taken = made.try_recv().ok()?;
        self.pending -= 1;
        Some(taken)
    }
}

/// A connection to open.
struct RedialOrder {
    index: usize,
    next: Instant,
    wait: Duration,
}

fn start(mut spec: ConnectionSpec) -> (Sender<usize>, Reconnected) {
    let (sender, orders) = mpsc::channel();
    let (made, receiver) = mpsc::channel();
    let work = move || {
        let mut pending: VecDeque<RedialOrder> = VecDeque::new();
        loop {
            let now = Instant::now();
            let next = pending.iter().map(|order| order.next).min();
            let patience = next.map_or(WAIT_MAX, |next| next.saturating_duration_since(now));
            match orders.recv_timeout(patience) {
                Ok(index) => pending.push_back(RedialOrder { index, next: now, wait: WAIT_MIN }),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let now = Instant::now();
            for _ in 0..pending.len() {
                let Some(mut order) = pending.pop_front() else { break };
                if order.next > now {
                    pending.push_back(order);
                    continue;
                }
                let deadline = Instant::now() + ATTEMPT;
                match spec.connect(order.index, deadline) {
                    Some(connection) => {
                        if made.send((order.index, connection)).is_err() {
                            return;
                        }
                    }
                    None => {
                        order.next = Instant::now() + order.wait;
                        order.wait = (order.wait * 2).min(WAIT_MAX);
                        pending.push_back(order);
                        // The end of the load must be noticed between two attempts.
                        break;
                    }
                }
            }
        }
    };
    // Without the thread nobody receives orders, and broken connections stay broken.
    let _ = std::thread::Builder::new().name("load-redial".into()).spawn(work);
    (sender, receiver)
}

impl ConnectionSpec {
    fn connect(&mut self, index: usize, deadline: Instant) -> Option<Connection> {
        let number = self.first + index;
        let mut connection = self.cluster.connect(&self.dialer, number, deadline).ok()?;
        connection.prepare(&self.statements, deadline).ok()?;
        Some(connection)
    }
}
