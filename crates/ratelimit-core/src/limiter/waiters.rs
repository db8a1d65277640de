//! Callers that wait for units under concurrency limits, by key, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::Refund;

/// The callers that wait. Clones share them, as clones of a limiter do.
///
/// The first caller of a key tries again whenever units of the key were returned, and from time to time, because other
/// processes return units as well. The others do nothing until they are first.
#[derive(Clone, Default)]
pub(super) struct Waiters(Arc<Mutex<Queues>>);

#[derive(Default)]
struct Queues {
    by_key: HashMap<Box<[u8]>, VecDeque<Waiter>>,
    last_number: u64,
}

struct Waiter {
    number: u64,
    /// Whether it became the first, or units were returned, since it was last polled.
    is_woken: bool,
    waker: Option<Waker>,
}

impl Waiter {
    fn wake(&mut self) {
        self.is_woken = true;
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Joins the queue of a key if others wait in it.
    pub(super) fn join_others<'k>(&self, key: &'k [u8]) -> Option<Place<'_, 'k>> {
        let mut queues = self.lock();
        queues.by_key.contains_key(key).then(|| self.join_locked(&mut queues, key))
    }

    /// Joins the queue of a key.
    pub(super) fn join<'k>(&self, key: &'k [u8]) -> Place<'_, 'k> {
        self.join_locked(&mut self.lock(), key)
    }

    fn join_locked<'k>(&self, queues: &mut Queues, key: &'k [u8]) -> Place<'_, 'k> {
        queues.last_number += 1;
        let number = queues.last_number;
        let queue = queues.by_key.entry(key.into()).or_default();
        queue.push_back(Waiter { number, is_woken: false, waker: None });
        Place { waiters: self, key, number }
    }

    /// Wakes the first waiter of each key to which units were returned.
    pub(super) fn wake(&self, returned: &[Refund<'_>]) {
        let mut queues = self.lock();
        if queues.by_key.is_empty() {
            return;
        }
        for refund in returned {
            let first = queues.by_key.get_mut(refund.id.key).and_then(VecDeque::front_mut);
            first.into_iter().for_each(Waiter::wake);
        }
    }
}

impl fmt::Debug for Waiters {
    /// Keys identify people: shows only how many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiters of {} keys", self.lock().by_key.len())
    }
}

/// The place of a caller in the queue of a key. Dropping it leaves the queue.
pub(super) struct Place<'w, 'k> {
    waiters: &'w Waiters,
    key: &'k [u8],
    number: u64,
}

impl Place<'_, '_> {
    /// Completes when this caller is the first.
    pub(super) async fn first(&self) {
        poll_fn(|context| self.poll(context, |_, is_first| is_first)).await;
    }

    /// Completes when there is a reason to try again.
    pub(super) async fn woken(&self) {
        poll_fn(|context| self.poll(context, |is_woken, _| is_woken)).await;
    }

    fn poll(&self, context: &Context<'_>, is_ready: impl Fn(bool, bool) -> bool) -> Poll<()> {
        let mut queues = self.waiters.lock();
        // It is there until it is dropped.
        let Some(queue) = queues.by_key.get_mut(self.key) else { return Poll::Ready(()) };
        let Some(index) = self.index(queue) else { return Poll::Ready(()) };
        let waiter = &mut queue[index];
        if is_ready(std::mem::take(&mut waiter.is_woken), index == 0) {
            return Poll::Ready(());
        }
        waiter.waker = Some(context.waker().clone());
        Poll::Pending
    }

    fn index(&self, queue: &VecDeque<Waiter>) -> Option<usize> {
        queue.binary_search_by_key(&self.number, |waiter| waiter.number).ok()
    }
}

impl Drop for Place<'_, '_> {
    fn drop(&mut self) {
        let mut queues = self.waiters.lock();
        let Some(queue) = queues.by_key.get_mut(self.key) else { return };
        let Some(index) = self.index(queue) else { return };
        queue.remove(index);
        match queue.front_mut() {
            None => drop(queues.by_key.remove(self.key)),
            Some(first) if index == 0 => first.wake(),
            Some(_) => {}
        }
    }
}
