//! Orders to several agents at once, and their answers.
//!
//! Every order that was sent is waited for, also after another loader has failed: an answer that is
//! left over would be taken for that to the next order.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use tare_load::clock_ns;

use super::{LoaderError, MultiLoader};
use crate::agent::protocol::{Answer, Order};

/// Where and when an answer came, on this host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrival {
    pub(super) loader: usize,
    pub(super) at_ns: u64,
}

/// What came from an agent.
#[derive(Debug)]
pub(super) enum Received {
    Answer(Arrival, Answer),
    /// The order of this loader failed, or the loader is lost.
    Failed(usize, LoaderError),
    Nothing,
}

impl MultiLoader {
    /// Drops a loader's connection and returns why.
    pub(super) fn lose(&mut self, index: usize) -> LoaderError {
        let loader = &mut self.loaders[index];
        let stderr = loader.link.as_ref().map(super::Link::said).unwrap_or_default();
        loader.forget();
        LoaderError::Lost { host: loader.record.host.clone(), stderr }
    }

    /// Waits for the next answer, until a time of this host's clock.
    pub(super) fn receive(&mut self, order: &'static str, until_ns: u64) -> Received {
        loop {
            let left = Duration::from_nanos(until_ns.saturating_sub(clock_ns()));
            let event = match self.events.recv_timeout(left) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return Received::Nothing;
                }
            };
            let index = event.loader;
            let link = self.loaders[index].link.as_ref();
            if link.is_none_or(|link| link.generation != event.generation) {
                continue;
            }
            let host = self.loaders[index].record.host.clone();
            let Some(line) = event.line else {
                return Received::Failed(index, self.lose(index));
            };
            return match serde_json::from_str(&line) {
                Ok(Answer::Failed { error }) => {
                    Received::Failed(index, LoaderError::Failed { host, error })
                }
                Ok(answer) => {
                    Received::Answer(Arrival { loader: index, at_ns: event.at_ns }, answer)
                }
                Err(_) => {
                    self.lose(index);
                    Received::Failed(index, LoaderError::UnexpectedAnswer { host, order, line })
                }
            };
        }
    }

    /// Sends an order to each of these loaders, and passes every answer to `take` until that has
    /// returned `true` for each, or `patience` has passed without any answer.
    ///
    /// # Errors
    /// The first failure, after all others have answered.
    pub(super) fn ask(
        &mut self,
        orders: &[(usize, Order)],
        name: &'static str,
        patience: Duration,
        mut take: impl FnMut(Arrival, Answer) -> Result<bool, Answer>,
    ) -> Result<(), LoaderError> {
        let mut waiting = BTreeMap::new();
        let mut failure = None;
        for (index, order) in orders {
            match &self.loaders[*index].link {
                Some(link) => {
                    link.send(order);
                    waiting.insert(*index, ());
                }
                None => failure = Some(self.lose(*index)),
            }
        }
        while !waiting.is_empty() {
            let began_ns = clock_ns();
            let until_ns = began_ns + ns(patience);
            match self.receive(name, until_ns) {
                Received::Answer(arrival, answer) => match take(arrival, answer) {
                    Ok(false) => {}
                    Ok(true) => {
                        waiting.remove(&arrival.loader);
                    }
                    Err(answer) => {
                        waiting.remove(&arrival.loader);
                        failure.get_or_insert(self.unexpected(arrival.loader, name, &answer));
                    }
                },
                Received::Failed(index, error) => {
                    waiting.remove(&index);
                    failure.get_or_insert(error);
                }
                Received::Nothing => {
                    for index in std::mem::take(&mut waiting).into_keys() {
                        failure.get_or_insert(self.silent(index, name, began_ns));
                    }
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Gives up on a loader that has not answered since `began_ns`. It cannot be trusted to stop
    /// loading the system either, so its connection is dropped.
    pub(super) fn silent(
        &mut self,
        index: usize,
        order: &'static str,
        began_ns: u64,
    ) -> LoaderError {
        self.lose(index);
        let waited_s = clock_ns().saturating_sub(began_ns) as f64 / 1e9;
        LoaderError::Silent { host: self.loaders[index].record.host.clone(), order, waited_s }
    }

    /// Drops a loader that does not keep to the protocol.
    pub(super) fn unexpected(
        &mut self,
        index: usize,
        order: &'static str,
        answer: &Answer,
    ) -> LoaderError {
        self.lose(index);
        let line = serde_json::to_string(answer).unwrap_or_default();
        LoaderError::UnexpectedAnswer { host: self.loaders[index].record.host.clone(), order, line }
    }
}

pub(super) fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
