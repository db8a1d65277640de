//! Messages between nodes in one process.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};

use super::{Transport, TransportError};
use crate::names::lock;

/// The most messages that wait for one node; beyond that the oldest is lost.
const MOST: usize = 65_536;

/// Where nodes in one process meet: for tests, and for a fleet that has just one node yet.
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
    /// A hub at which nobody is yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A transport to all that are on this hub. What was sent before it was made does not arrive.
    pub fn transport(&self) -> InProcess {
        let inbox = Arc::default();
        let mut members = lock(&self.0);
        members.retain(|member| member.strong_count() > 0);
        members.push(Arc::downgrade(&inbox));
        InProcess { hub: self.clone(), inbox }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        lock(&self.0).iter().filter(|member| member.strong_count() > 0).count()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl InProcess {
    /// The next message that has come, if any.
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
            let surplus = inbox.messages.len().saturating_sub(MOST);
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
    fn everybody_receives_what_is_sent_while_they_are_there() {
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
    fn who_waits_is_woken() {
        let hub = Hub::new();
        let [one, other] = [hub.transport(), hub.transport()];
        let (received, sent) = block_on(join(one.receive(), other.send(&[message(3)])));
        sent.unwrap();
        assert_eq!(received.unwrap(), message(3));
    }

    #[test]
    fn what_nobody_takes_does_not_pile_up() {
        let hub = Hub::new();
        let one = hub.transport();
        let many: Vec<_> = (0..MOST + 3).map(|number| message(u8::from(number >= MOST))).collect();
        block_on(one.send(&many)).unwrap();
        assert_eq!(lock(&one.inbox).messages.len(), MOST);
        assert_eq!(lock(&one.inbox).messages.back(), Some(&message(1)));
    }
}
