//! Queues of callers that wait for units under concurrency limits: one for each meter, in order of arrival.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::{MeterId, Refund};

/// The callers that wait. Clones share the queues, as clones of a limiter do.
///
/// The first caller of a meter tries again whenever units of the meter were returned, and from time to time, because other
/// processes return units as well. The others do nothing until they are first.
#[derive(Clone, Default)]
pub(super) struct Waiters(Arc<Mutex<Queues>>);

#[derive(Default)]
struct Queues {
    by_meter: HashMap<Vec<u8>, VecDeque<Waiter>>,
    last_number: u64,
}

struct Waiter {
    number: u64,
    /// Whether it has become the first, or units were returned while it was the first, since its last poll.
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

    /// Joins the queue of the first of these meters for which others wait. `None` if nobody waits for any of them.
    pub(super) fn join_others<'m>(&self, meters: impl Iterator<Item = MeterId<'m>>) -> Option<Ticket<'_>> {
        let mut queues = self.lock();
        if queues.by_meter.is_empty() {
            return None;
        }
        let meter = meters.map(|id| id.to_bytes()).find(|meter| queues.by_meter.contains_key(meter))?;
        Some(self.join_locked(&mut queues, meter))
    }

    /// Joins the queue of a meter.
    pub(super) fn join(&self, meter: Vec<u8>) -> Ticket<'_> {
        self.join_locked(&mut self.lock(), meter)
    }

    fn join_locked(&self, queues: &mut Queues, meter: Vec<u8>) -> Ticket<'_> {
        queues.last_number += 1;
        let number = queues.last_number;
        let queue = queues.by_meter.entry(meter.clone()).or_default();
        queue.push_back(Waiter { number, is_woken: false, waker: None });
        Ticket { waiters: self, meter, number }
    }

    /// Wakes the first waiter of each meter in `returned`, to which units were returned.
    pub(super) fn wake(&self, returned: &[Refund<'_>]) {
        let mut queues = self.lock();
        if queues.by_meter.is_empty() {
            return;
        }
        for refund in returned {
            let first = queues.by_meter.get_mut(&refund.id.to_bytes()).and_then(VecDeque::front_mut);
            first.into_iter().for_each(Waiter::wake);
        }
    }
}

impl fmt::Debug for Waiters {
    /// Keys identify people: shows only how many there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiters of {} meters", self.lock().by_meter.len())
    }
}

/// The place of a caller in the queue of a meter, like a numbered ticket. Dropping it leaves the queue.
pub(super) struct Ticket<'w> {
    waiters: &'w Waiters,
    meter: Vec<u8>,
    number: u64,
}

impl Ticket<'_> {
    /// Whether it is in the queue of this meter.
    pub(super) fn is_of(&self, meter: &[u8]) -> bool {
        self.meter == meter
    }

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
        // The place is in the queue until it is dropped.
        let Some(queue) = queues.by_meter.get_mut(&self.meter) else { return Poll::Ready(()) };
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

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut queues = self.waiters.lock();
        let Some(queue) = queues.by_meter.get_mut(&self.meter) else { return };
        let Some(index) = self.index(queue) else { return };
        queue.remove(index);
        match queue.front_mut() {
            None => drop(queues.by_meter.remove(&self.meter)),
            Some(first) if index == 0 => first.wake(),
            Some(_) => {}
        }
    }
}
