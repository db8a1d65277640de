//! What this node has told: updates that are to be sent, and the latest that were.

use std::collections::VecDeque;
use std::sync::Arc;

/// Numbered updates, the newest of them kept to be sent again.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Those that are kept, one number after another up to the newest.
    kept: VecDeque<Kept>,
    newest: u64,
    /// All up to this number have been sent.
    sent: u64,
    bytes: usize,
    most: usize,
}

#[derive(Debug)]
struct Kept {
    message: Arc<[u8]>,
    /// The beat at which it was last sent again.
    again: u64,
}

impl Outbox {
    /// Keeps so many bytes of what was sent.
    pub(crate) fn new(most: usize) -> Self {
        Self { kept: VecDeque::new(), newest: 0, sent: 0, bytes: 0, most }
    }

    /// The number of the newest update; zero before the first.
    pub(crate) fn newest(&self) -> u64 {
        self.newest
    }

    /// The number of the oldest update that can be sent again; one that is yet to come, if none can.
    pub(crate) fn oldest(&self) -> u64 {
        self.newest + 1 - self.kept.len() as u64
    }

    /// Adds the update whose number is the next one.
    pub(crate) fn push(&mut self, message: Arc<[u8]>) {
        self.newest += 1;
        self.bytes += message.len();
        self.kept.push_back(Kept { message, again: 0 });
    }

    /// What is to be sent, and the number of the last of it.
    pub(crate) fn unsent(&self) -> (Vec<Arc<[u8]>>, u64) {
        let first = self.place(self.sent + 1);
        (self.kept.range(first..).map(|kept| kept.message.clone()).collect(), self.newest)
    }

    /// All up to this number have been sent.
    pub(crate) fn sent(&mut self, number: u64) {
        self.sent = self.sent.max(number.min(self.newest));
        while self.bytes > self.most && self.oldest() <= self.sent {
            let oldest = self.kept.pop_front();
            self.bytes -= oldest.map_or(0, |kept| kept.message.len());
        }
    }

    /// Updates that somebody has missed, but for those that have been sent again at this beat already.
    pub(crate) fn again(&mut self, first: u64, last: u64, beat: u64) -> Vec<Arc<[u8]>> {
        let (first, end) = (self.place(first), self.place(last.min(self.sent) + 1));
        let range = first..end.max(first);
        let due = self.kept.range_mut(range).filter(|kept| kept.again < beat);
        due.map(|kept| {
            kept.again = beat;
            kept.message.clone()
        })
        .collect()
    }

    /// Where an update is kept, or would be.
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
    fn what_is_not_sent_is_kept_whatever_it_takes() {
        let mut outbox = filled();
        assert_eq!(numbers(&outbox.unsent().0), [1, 2, 3, 4, 5]);
        outbox.sent(1);
        assert_eq!((numbers(&outbox.unsent().0), outbox.oldest()), (vec![2, 3, 4, 5], 2));
        outbox.push(Arc::new([6; 10]));
        let (unsent, last) = outbox.unsent();
        assert_eq!((unsent.len(), last), (5, 6));
        outbox.sent(last);
        assert_eq!((outbox.unsent().0.len(), outbox.oldest(), outbox.newest()), (0, 4, 6));
    }

    #[test]
    fn what_was_missed_is_sent_again_once_a_beat() {
        let mut outbox = filled();
        outbox.sent(5);
        assert_eq!(numbers(&outbox.again(0, 4, 1)), [3, 4]);
        assert_eq!(numbers(&outbox.again(4, u64::MAX - 1, 1)), [5]);
        assert_eq!(numbers(&outbox.again(1, u64::MAX, 2)), [3, 4, 5]);
        assert!(outbox.again(5, 3, 3).is_empty());
        assert!(outbox.again(u64::MAX, u64::MAX, 3).is_empty());
    }

    #[test]
    fn what_is_yet_to_be_sent_is_not_sent_again() {
        let mut outbox = filled();
        outbox.sent(3);
        assert_eq!(numbers(&outbox.again(1, 5, 1)), [3]);
        let mut none = Outbox::new(30);
        assert!(none.again(1, 5, 1).is_empty());
        assert_eq!((none.newest(), none.oldest()), (0, 1));
    }
}
