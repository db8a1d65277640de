//! The queue of one connection: batches to be sent, and batches whose replies are pending.
//!
//! Callers append their bytes to one buffer, which is sent as a whole.
//!
//! [`Batched`](ratelimit_core::layers::Batched) would not do: a claim may take several round trips, and at each of them it
//! shares the connection with whatever other calls send.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, oneshot};

use crate::wire::reply::{Reply, Stamp};
use ratelimit_core::StoreError;

/// While this many bytes or more wait to be sent, callers have to wait.
const MOST: usize = 1 << 20;

/// The reply to each command of a batch.
pub(crate) type Replies = Vec<Result<Reply, StoreError>>;

/// The outcome of a batch.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// One reply for each command.
    Replied(Replies),
    /// It was not sent and will not be, because the connection was closed.
    Unsent(StoreError),
}

/// A batch whose replies are pending.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) stamp: u64,
    pub(crate) count: usize,
    pub(crate) replies: Replies,
    pub(crate) answer: oneshot::Sender<Outcome>,
}

/// The batches of one connection, in their order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// How often something was read from the connection.
    reads: AtomicU64,
    /// There are bytes to send, or the queue was closed.
    work: Notify,
    /// There is room again, or the queue was closed.
    room: Notify,
    /// The queue was closed.
    end: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// Why the queue was closed.
    end: Option<StoreError>,
    /// The bytes to be sent, and their batches.
    bytes: Vec<u8>,
    unsent: VecDeque<Pending>,
    /// Sent, but not yet passed to the reader.
    sent: VecDeque<Pending>,
    /// The number of batches that were sent and not answered.
    unanswered: usize,
}

impl Queue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a batch; returns it if there is no room.
    pub(crate) fn try_push(&self, bytes: &[u8], pending: Pending) -> Result<(), Pending> {
        let mut state = self.state();
        if let Some(failure) = state.end.clone() {
            drop(state);
            pending.give_back(failure);
            return Ok(());
        }
        if state.bytes.len() >= MOST {
            return Err(pending);
        }
        let first = state.bytes.is_empty();
        state.bytes.extend_from_slice(bytes);
        state.unsent.push_back(pending);
        drop(state);
        if first {
            self.work.notify_one();
        }
        Ok(())
    }

    /// Appends a batch as soon as there is room.
    pub(crate) async fn push(&self, bytes: &[u8], mut pending: Pending) {
        loop {
            let room = self.room.notified();
            match self.try_push(bytes, pending) {
                Ok(()) => return,
                Err(back) => pending = back,
            }
            room.await;
        }
    }

    /// How often something was read from the connection so far.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// Records that something was read from the connection.
    pub(crate) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until there are bytes to send or the queue is closed.
    pub(crate) async fn work(&self) {
        self.work.notified().await;
    }

    /// Waits until it is closed.
    pub(crate) async fn end(&self) {
        self.end.notified().await;
    }

    /// Whether no replies are pending.
    pub(crate) fn is_idle(&self) -> bool {
        self.state().unanswered == 0
    }

    /// Takes all bytes to be sent, in exchange for an empty buffer. From now on they count as sent. Returns `false` if the
    /// queue is closed; it has no bytes then.
    #[must_use]
    pub(crate) fn take(&self, buffer: &mut Vec<u8>) -> bool {
        let mut guard = self.state();
        let state = &mut *guard;
        std::mem::swap(&mut state.bytes, buffer);
        state.unanswered += state.unsent.len();
        state.sent.append(&mut state.unsent);
        let open = state.end.is_none();
        drop(guard);
        if buffer.len() >= MOST {
            self.room.notify_waiters();
        }
        open
    }

    /// Records that `number` batches were answered, and passes the batches sent since the last time to the reader.
    pub(crate) fn answered(&self, number: usize, awaited: &mut VecDeque<Pending>) {
        let mut state = self.state();
        state.unanswered = state.unanswered.saturating_sub(number);
        awaited.append(&mut state.sent);
    }

    /// Closes the queue: batches that were not sent fail with the failure that closed it first. Returns whether the batch
    /// with this stamp was among them.
    pub(crate) fn close(&self, stamp: Option<u64>, failure: StoreError) -> bool {
        let mut state = self.state();
        let failure = state.end.get_or_insert(failure.not_applied()).clone();
        state.bytes = Vec::new();
        let unsent = std::mem::take(&mut state.unsent);
        drop(state);
        self.room.notify_waiters();
        self.work.notify_one();
        self.end.notify_one();
        let found = unsent.iter().any(|pending| Some(pending.stamp) == stamp);
        unsent.into_iter().for_each(|pending| pending.give_back(failure.clone()));
        found
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state().end.is_some()
    }
}

impl Pending {
    fn give_back(self, failure: StoreError) {
        // A dropped receiver is ignored.
        let _ = self.answer.send(Outcome::Unsent(failure));
    }

    /// Takes the reply to its next command; `false` if the reply belongs to another one.
    pub(crate) fn receive(&mut self, reply: Result<Reply, StoreError>, stamp: Stamp) -> bool {
        let expected = self.stamp.wrapping_add(self.replies.len() as u64);
        let is_next = stamp == Stamp::None || stamp == Stamp::Of(expected);
        if is_next {
            self.replies.push(reply);
        }
        is_next
    }

    /// Whether there is a reply to each command.
    pub(crate) fn is_complete(&self) -> bool {
        self.replies.len() == self.count
    }

    /// Completes the batch: missing replies fail with `end`, the reason why the connection was closed.
    pub(crate) fn finish(mut self, end: &StoreError) {
        self.replies.resize_with(self.count, || Err(end.clone()));
        let _ = self.answer.send(Outcome::Replied(self.replies));
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};
    use std::time::Duration;

    use super::*;
    use crate::error;

    fn batch(stamp: u64) -> (Pending, oneshot::Receiver<Outcome>) {
        let (answer, outcome) = oneshot::channel();
        (Pending { stamp, count: 1, replies: Vec::new(), answer }, outcome)
    }

    fn push(queue: &Queue, bytes: &[u8], stamp: u64) -> oneshot::Receiver<Outcome> {
        let (pending, outcome) = batch(stamp);
        assert!(queue.try_push(bytes, pending).is_ok());
        outcome
    }

    /// The batches that the reader has to answer.
    fn sent(queue: &Queue, answered: usize) -> VecDeque<Pending> {
        let mut awaited = VecDeque::new();
        queue.answered(answered, &mut awaited);
        awaited
    }

    fn is_unsent(mut outcome: oneshot::Receiver<Outcome>) -> bool {
        matches!(outcome.try_recv(), Ok(Outcome::Unsent(_)))
    }

    #[test]
    fn queued_commands_are_sent_together_and_answered_in_order() {
        let queue = Queue::default();
        let mut outcomes = [1, 2].map(|stamp| push(&queue, format!("{stamp};").as_bytes(), stamp));
        assert!(queue.is_idle());
        let mut buffer = Vec::new();
        assert!(queue.take(&mut buffer));
        assert_eq!(buffer, b"1;2;");
        assert!(!queue.is_idle());
        let _third = push(&queue, b"3;", 3);
        let awaited = sent(&queue, 0);
        assert_eq!(awaited.iter().map(|pending| pending.stamp).collect::<Vec<_>>(), [1, 2]);
        for (mut pending, outcome) in awaited.into_iter().zip(&mut outcomes) {
            let (foreign, expected) = (pending.stamp + 1, pending.stamp);
            assert!(!pending.receive(Ok(Reply::Done), Stamp::Of(foreign)));
            assert!(!pending.receive(Ok(Reply::Done), Stamp::Lacking));
            assert!(pending.receive(Ok(Reply::Done), Stamp::Of(expected)) && pending.is_complete());
            pending.finish(&error::broken());
            let Ok(Outcome::Replied(replies)) = outcome.try_recv() else { panic!("no replies") };
            assert!(matches!(replies[..], [Ok(Reply::Done)]));
        }
        buffer.clear();
        assert!(queue.take(&mut buffer));
        assert_eq!((&buffer[..], sent(&queue, 2).len()), (&b"3;"[..], 1));
        assert!(!queue.is_idle());
        sent(&queue, 1);
        assert!(queue.is_idle());
    }

    #[test]
    fn unanswered_commands_may_have_been_applied() {
        let queue = Queue::default();
        let mut outcome = push(&queue, b"1;", 1);
        assert!(queue.take(&mut Vec::new()));
        let end = error::broken().maybe_applied();
        sent(&queue, 0).into_iter().for_each(|pending| pending.finish(&end));
        let Ok(Outcome::Replied(replies)) = outcome.try_recv() else { panic!("no replies") };
        assert!(matches!(&replies[..], [Err(failure)] if error::is_maybe_applied(failure)));
    }

    #[test]
    fn a_closed_queue_sends_nothing_and_returns_unsent_commands() {
        let queue = Queue::default();
        let (mut first, second) = (push(&queue, b"1;", 1), push(&queue, b"2;", 2));
        assert!(queue.take(&mut Vec::new()));
        let third = push(&queue, b"3;", 3);
        assert!(!queue.close(Some(2), error::unanswered()), "it has been sent");
        assert!(is_unsent(third) && queue.is_closed());
        queue.close(None, error::broken());
        let Ok(Outcome::Unsent(failure)) = push(&queue, b"4;", 4).try_recv() else { panic!("it is sent") };
        assert!(!error::is_maybe_applied(&failure));
        let reported = failure.to_string();
        assert!(reported.contains("without an answer"), "{reported}: not why it was closed first");
        assert!(first.try_recv().is_err() && !is_unsent(second), "their replies may still come");
        let mut buffer = Vec::new();
        assert!(!queue.take(&mut buffer), "it is closed");
        assert_eq!((buffer.len(), sent(&queue, 0).len()), (0, 2));

        let queue = Queue::default();
        let (first, second) = (push(&queue, b"1;", 1), push(&queue, b"2;", 2));
        assert!(queue.close(Some(2), error::broken()));
        assert!(is_unsent(first) && is_unsent(second));
    }

    #[tokio::test]
    async fn callers_of_a_full_queue_wait_until_it_is_sent_or_closed() {
        let full = vec![b' '; MOST];
        for closes in [false, true] {
            let queue = Arc::new(Queue::default());
            let first = push(&queue, &full, 1);
            let (pending, second) = batch(2);
            let pending = queue.try_push(b"2;", pending).expect_err("it is full");
            let mut waiting = pin!(queue.push(b"2;", pending));
            let mut context = Context::from_waker(Waker::noop());
            assert_eq!(waiting.as_mut().poll(&mut context), Poll::Pending);
            let mut buffer = Vec::new();
            if closes {
                queue.close(None, error::broken());
            } else {
                assert!(queue.take(&mut buffer));
            }
            tokio::time::timeout(Duration::from_secs(5), waiting).await.expect("it goes on");
            assert_eq!((buffer.len(), is_unsent(first)), (if closes { 0 } else { MOST }, closes));
            buffer.clear();
            assert_eq!(queue.take(&mut buffer), !closes);
            assert_eq!((&buffer[..], is_unsent(second)), (if closes { &b""[..] } else { b"2;" }, closes));
        }
    }

    #[tokio::test]
    async fn the_writer_is_woken_by_the_first_command_and_by_closing() {
        let queue = Queue::default();
        let works = |queue: &Queue| {
            let mut work = pin!(queue.work());
            work.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
        };
        assert!(!works(&queue));
        let _outcomes = [1, 2].map(|stamp| push(&queue, b";", stamp));
        assert!(works(&queue) && !works(&queue));
        assert!(queue.take(&mut Vec::new()));
        let _outcome = push(&queue, b";", 3);
        assert!(works(&queue));
        queue.close(None, error::broken());
        assert!(works(&queue));
        queue.end().await;
    }
}
