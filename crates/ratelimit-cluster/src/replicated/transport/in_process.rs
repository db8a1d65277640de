//! The transport between nodes in one process.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};

use super::{Transport, TransportError};
use crate::table::lock;

/// The maximum number of messages in the inbox of one node. Beyond that, the oldest are dropped.
const MAX_MESSAGES: usize = 65_536;

/// Connects nodes in one process: for tests, and for a fleet of a single node.
///
/// ```
/// use ratelimit_cluster::Hub;
///
/// let hub = Hub::new();
/// let transports = [hub.transport(), hub.transport()];
/// assert_eq!(hub.len(), 2);
/// drop(transports);
/// assert!(hub.is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Hub(Arc<Mutex<Vec<Weak<Mutex<Inbox>>>>>);

/// The transport of one node on a [`Hub`].
pub struct InProcess {
    hub: Hub,
    inbox: Arc<Mutex<Inbox>>,
}

#[derive(Debug, Default)]
struct Inbox {
    messages: VecDeque<Arc<[u8]>>,
    waker: Option<Waker>,
}

impl Hub {
    /// Creates a hub without nodes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a transport for one more node. It does not receive messages that were sent earlier.
    pub fn transport(&self) -> InProcess {
        let inbox = Arc::default();
        let mut members = lock(&self.0);
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(&inbox));
        InProcess { hub: self.clone(), inbox }
    }

    /// The number of transports that exist.
    pub fn len(&self) -> usize {
        lock(&self.0).iter().filter(|member| member.strong_count() > 0).count()
    }

    /// Whether no transport exists.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl InProcess {
    /// Takes the next received message, if there is one.
    pub fn next(&self) -> Option<Arc<[u8]>> {
        lock(&self.inbox).messages.pop_front()
    }
}

impl fmt::Debug for InProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcess").field("waiting", &lock(&self.inbox).messages.len()).finish()
    }
}

impl Transport for InProcess {
    fn largest(&self) -> usize {
        1 << 20
    }

    async fn send(&self, messages: &[Arc<[u8]>]) -> Result<(), TransportError> {
        let members: Vec<_> = lock(&self.hub.0).iter().filter_map(Weak::upgrade).collect();
        for member in members {
            let mut inbox = lock(&member);
            inbox.messages.extend(messages.iter().cloned());
            let surplus = inbox.messages.len().saturating_sub(MAX_MESSAGES);
            inbox.messages.drain(..surplus);
            let waker = inbox.waker.take();
            drop(inbox);
            waker.into_iter().for_each(Waker::wake);
        }
        Ok(())
    }

    async fn receive(&self) -> Result<Arc<[u8]>, TransportError> {
        let next = poll_fn(|context| {
            let mut inbox = lock(&self.inbox);
            match inbox.messages.pop_front() {
                Some(message) => Poll::Ready(message),
                None => {
                    inbox.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        });
        Ok(next.await)
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;
    use futures::future::join;

    use super::*;

    fn message(byte: u8) -> Arc<[u8]> {
        Arc::new([byte])
    }

    #[test]
    fn every_transport_receives_what_is_sent_while_it_exists() {
        let hub = Hub::new();
        let [one, other] = [hub.transport(), hub.transport()];
        block_on(one.send(&[message(1), message(2)])).unwrap();
        let late = hub.transport();
        for transport in [&one, &other] {
            assert_eq!([transport.next(), transport.next()], [Some(message(1)), Some(message(2))]);
        }
        assert_eq!(late.next(), None);
        drop(other);
        assert_eq!(hub.len(), 2);
    }

    #[test]
    fn a_waiting_receiver_is_woken() {
        let hub = Hub::new();
        let [one, other] = [hub.transport(), hub.transport()];
        let (received, sent) = block_on(join(one.receive(), other.send(&[message(3)])));
        sent.unwrap();
        assert_eq!(received.unwrap(), message(3));
    }

    #[test]
    fn the_length_of_an_inbox_is_bounded() {
        let hub = Hub::new();
        let one = hub.transport();
        let many: Vec<_> =
            (0..MAX_MESSAGES + 3).map(|number| message(u8::from(number >= MAX_MESSAGES))).collect();
        block_on(one.send(&many)).unwrap();
        assert_eq!(lock(&one.inbox).messages.len(), MAX_MESSAGES);
        assert_eq!(lock(&one.inbox).messages.back(), Some(&message(1)));
    }
}
