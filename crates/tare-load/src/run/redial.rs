//! Makes connections again that broke during a load, on a thread of its own, because it waits.
//!
//! Between two attempts at a connection it waits for 10 ms, then twice as long each time, up to a
//! second. The thread ends when nobody takes its connections any more, at most one attempt later.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use crate::protocol::cluster::Cluster;
use crate::protocol::connection::Connection;
use crate::protocol::dial::Dialer;

const WAIT_MIN: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// A server that takes longer to answer is not back yet.
const ATTEMPT: Duration = Duration::from_secs(1);

/// What a connection is made with.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSpec {
    pub(crate) dialer: Dialer,
    pub(crate) cluster: Cluster,
    pub(crate) statements: Vec<String>,
    /// Number of the first connection of the thread that is served.
    pub(crate) first: usize,
}

/// Connections that have been made, with their indices.
type Reconnected = Receiver<(usize, Connection)>;

/// The thread that makes connections, seen from the one that uses them.
#[derive(Debug)]
pub(crate) struct Redialer {
    recipe: ConnectionSpec,
    thread: Option<(Sender<usize>, Reconnected)>,
    /// How many are being made.
    pending: usize,
}

impl Redialer {
    /// Starts nothing yet.
    pub(crate) fn new(recipe: ConnectionSpec) -> Self {
        Self { recipe, thread: None, pending: 0 }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.pending > 0
    }

    /// Has the connection with this index made again.
    pub(crate) fn order(&mut self, index: usize) {
        let (orders, _) = self.thread.get_or_insert_with(|| start(self.recipe.clone()));
        // It ends after this one only, unless it could not be started; then nothing comes back.
        self.pending += usize::from(orders.send(index).is_ok());
    }

    /// A connection that has been made, with its index.
    pub(crate) fn take(&mut self) -> Option<(usize, Connection)> {
        let (_, made) = self.thread.as_ref()?;
        let taken = made.try_recv().ok()?;
        self.pending -= 1;
        Some(taken)
    }
}

/// A connection to be made.
struct RedialOrder {
    index: usize,
    next: Instant,
    wait: Duration,
}

fn start(mut recipe: ConnectionSpec) -> (Sender<usize>, Reconnected) {
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
                match recipe.connect(order.index, deadline) {
                    Some(connection) => {
                        if made.send((order.index, connection)).is_err() {
                            return;
                        }
                    }
                    None => {
                        order.next = Instant::now() + order.wait;
                        order.wait = (order.wait * 2).min(WAIT_MAX);
                        pending.push_back(order);
                        // So that the end of the load is noticed between two attempts.
                        break;
                    }
                }
            }
        }
    };
    // Without the thread nobody receives orders, and connections stay lost.
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
