//! Things that wait for blocks of tables, and go on in the order in which their blocks have come:
//! none is overtaken for long, however many wait.

use std::collections::VecDeque;

use slab::Slab;

/// Things by number.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    things: Slab<Waiter<T>>,
    /// Those that can go on, the first to become so first.
    ready: VecDeque<usize>,
}

#[derive(Debug)]
struct Waiter<T> {
    thing: T,
    is_ready: bool,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { things: Slab::new(), ready: VecDeque::new() }
    }
}

impl<T> Waiting<T> {
    /// Number of things that wait, or can go on and did not yet.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.things.len()
    }

    /// Whether any can go on.
    #[inline]
    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Keeps a thing until [`Self::wake`] finds it ready. Returns it with its number.
    pub(super) fn insert(&mut self, thing: T) -> (usize, &T) {
        let number = self.things.insert(Waiter { thing, is_ready: false });
        (number, &self.things[number].thing)
    }

    /// Notes that something has come for the thing with this number. Does nothing if none has it
    /// any more.
    #[inline]
    pub(super) fn wake(&mut self, number: usize, is_ready: impl FnOnce(&T) -> bool) {
        let Some(waiter) = self.things.get_mut(number) else { return };
        if !waiter.is_ready && is_ready(&waiter.thing) {
            waiter.is_ready = true;
            self.ready.push_back(number);
        }
    }

    /// Takes the thing that could go on first.
    #[inline]
    pub(super) fn pop_ready(&mut self) -> Option<T> {
        self.ready.pop_front().map(|number| self.things.remove(number).thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_ready_first_goes_on_first() {
        let mut waiting = Waiting::default();
        let numbers: Vec<_> = (0..40).map(|thing| waiting.insert(thing).0).collect();
        let order = [7, 39, 0, 20, 7];
        order.iter().for_each(|&thing: &usize| waiting.wake(numbers[thing], |_| true));
        waiting.wake(numbers[3], |_| false);
        assert_eq!(waiting.len(), 40);
        // New things take free places and overtake nobody.
        let (number, _) = waiting.insert(99);
        waiting.wake(number, |_| true);
        let went_on: Vec<_> = std::iter::from_fn(|| waiting.pop_ready()).collect();
        assert_eq!(went_on, [7, 39, 0, 20, 99]);
        assert_eq!((waiting.len(), waiting.has_ready()), (36, false));
        waiting.wake(numbers[3], |&thing| thing == 3);
        assert_eq!(waiting.pop_ready(), Some(3));
    }
}
