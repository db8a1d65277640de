//! The updates of this node: those that have to be sent, and the latest that were sent.

use std::collections::VecDeque;
use std::sync::Arc;

/// Numbered updates. The newest sent ones are kept so that they can be sent again.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// The kept updates, with consecutive numbers up to the newest.
    kept: VecDeque<Kept>,
    newest: u64,
    /// All updates up to this number have been sent.
    sent: u64,
    bytes: usize,
    max_bytes: usize,
}

#[derive(Debug)]
struct Kept {
    message: Arc<[u8]>,
    /// The interval in which it was last sent again.
    resent_at: u64,
}

impl Outbox {
    /// Keeps up to `max_bytes` of sent updates.
    pub(crate) fn new(max_bytes: usize) -> Self {
        Self { kept: VecDeque::new(), newest: 0, sent: 0, bytes: 0, max_bytes }
    }

    /// The number of the newest update; zero before the first.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The number of the oldest update that can be sent again; if there is none, the number of the next update.
    pub(crate) fn oldest(&self) -> u64 {
        self.newest + 1 - self.kept.len() as u64
    }

    /// Adds the update with the next number.
    pub(crate) fn push(&mut self, message: Arc<[u8]>) {
        self.newest += 1;
        self.bytes += message.len();
        self.kept.push_back(Kept { message, resent_at: 0 });
    }

    /// The updates that have to be sent, and the number of the last one.
    pub(crate) fn unsent(&self) -> (Vec<Arc<[u8]>>, u64) {
        let first = self.place(self.sent + 1);
        (self.kept.range(first..).map(|kept| kept.message.clone()).collect(), self.newest)
    }

    /// Records that all updates up to this number have been sent.
    pub(crate) fn mark_sent(&mut self, number: u64) {
        self.sent = self.sent.max(number.min(self.newest));
        while self.bytes > self.max_bytes && self.oldest() <= self.sent {
            let oldest = self.kept.pop_front();
            self.bytes -= oldest.map_or(0, |kept| kept.message.len());
        }
    }

    /// Updates that a node has missed, except those that were already sent again in this interval.
    pub(crate) fn resend(&mut self, first: u64, last: u64, interval: u64) -> Vec<Arc<[u8]>> {
        let (first, end) = (self.place(first), self.place(last.min(self.sent) + 1));
        let range = first..end.max(first);
        let due = self.kept.range_mut(range).filter(|kept| kept.resent_at < interval);
        due.map(|kept| {
            kept.resent_at = interval;
            kept.message.clone()
        })
        .collect()
    }

    /// The index of an update, or where it would be.
    fn place(&self, number: u64) -> usize {
        let place = number.saturating_sub(self.oldest());
        usize::try_from(place).unwrap_or(usize::MAX).min(self.kept.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Outbox {
        let mut outbox = Outbox::new(30);
        (1..=5).for_each(|number| outbox.push(Arc::new([number; 10])));
        outbox
    }

    fn numbers(messages: &[Arc<[u8]>]) -> Vec<u8> {
        messages.iter().map(|message| message[0]).collect()
    }

    #[test]
    fn unsent_updates_are_kept_whatever_their_size() {
        let mut outbox = filled();
        assert_eq!(numbers(&outbox.unsent().0), [1, 2, 3, 4, 5]);
        outbox.mark_sent(1);
        assert_eq!((numbers(&outbox.unsent().0), outbox.oldest()), (vec![2, 3, 4, 5], 2));
        outbox.push(Arc::new([6; 10]));
        let (unsent, last) = outbox.unsent();
        assert_eq!((unsent.len(), last), (5, 6));
        outbox.mark_sent(last);
        assert_eq!((outbox.unsent().0.len(), outbox.oldest(), outbox.newest()), (0, 4, 6));
    }

    #[test]
    fn missed_updates_are_sent_again_once_an_interval() {
        let mut outbox = filled();
        outbox.mark_sent(5);
        assert_eq!(numbers(&outbox.resend(0, 4, 1)), [3, 4]);
        assert_eq!(numbers(&outbox.resend(4, u64::MAX - 1, 1)), [5]);
        assert_eq!(numbers(&outbox.resend(1, u64::MAX, 2)), [3, 4, 5]);
        assert!(outbox.resend(5, 3, 3).is_empty());
        assert!(outbox.resend(u64::MAX, u64::MAX, 3).is_empty());
    }

    #[test]
    fn unsent_updates_are_not_sent_again() {
        let mut outbox = filled();
        outbox.mark_sent(3);
        assert_eq!(numbers(&outbox.resend(1, 5, 1)), [3]);
        let mut none = Outbox::new(30);
        assert!(none.resend(1, 5, 1).is_empty());
        assert_eq!((none.newest(), none.oldest()), (0, 1));
    }
}
