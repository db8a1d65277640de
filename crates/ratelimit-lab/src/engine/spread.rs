//! Spreads the requests of each second evenly over it, if the log has only whole seconds.

use std::collections::VecDeque;

use ratelimit_core::Timestamp;

use super::reorder::MOST;

const SECOND: u64 = 1_000_000_000;

/// Holds the requests of a second back until the next one begins, if none of them has a fraction of a second.
#[derive(Debug)]
pub(super) struct Spread<T> {
    /// The second, since 1970, of the requests that were added last.
    second: u64,
    /// Whether the requests of this second are decided at their own times.
    is_kept: bool,
    /// Whether this is so for all seconds.
    keeps_all: bool,
    waiting: VecDeque<(Timestamp, T)>,
    /// How many of the waiting requests, the first ones, have the times at which to decide them.
    ready: usize,
    /// Whether any request was moved.
    pub(super) has_moved: bool,
}

impl<T> Spread<T> {
    pub(super) fn new(keeps_all: bool) -> Self {
        Self {
            second: 0,
            is_kept: keeps_all,
            keeps_all,
            waiting: VecDeque::new(),
            ready: 0,
            has_moved: false,
        }
    }

    /// Adds a request, which is not before the one that was added last. Then call [`next`](Self::next) until it returns `None`.
    pub(super) fn push(&mut self, time: Timestamp, request: T) {
        let (second, fraction) = (time.as_nanos() / SECOND, time.as_nanos() % SECOND);
        if second != self.second {
            self.end();
            (self.second, self.is_kept) = (second, self.keeps_all);
        }
        self.is_kept |= fraction > 0 || self.waiting.len() - self.ready >= MOST;
        self.waiting.push_back((time, request));
        if self.is_kept {
            self.ready = self.waiting.len();
        }
    }

    /// The next request, and the time at which to decide it.
    pub(super) fn next(&mut self) -> Option<(Timestamp, T)> {
        self.ready = self.ready.checked_sub(1)?;
        self.waiting.pop_front()
    }

    /// Ends the second of the waiting requests.
    pub(super) fn end(&mut self) {
        let (begin, count) = (self.second * SECOND, (self.waiting.len() - self.ready) as u64);
        self.has_moved |= count > 1;
        for (nth, (time, _)) in (0..).zip(self.waiting.range_mut(self.ready..)) {
            *time = Timestamp::from_nanos(begin + nth * SECOND / count);
        }
        self.ready = self.waiting.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The times at which requests at these times are decided, all in milliseconds.
    fn spread(keeps_all: bool, times: &[u64]) -> Vec<u64> {
        let mut spread = Spread::new(keeps_all);
        let mut decided = Vec::new();
        for (nth, time) in times.iter().enumerate() {
            spread.push(Timestamp::from_millis(*time), nth);
            decided.extend(std::iter::from_fn(|| spread.next()));
        }
        spread.end();
        decided.extend(std::iter::from_fn(|| spread.next()));
        assert!(decided.iter().map(|(_, nth)| *nth).eq(0..times.len()), "in their order: {decided:?}");
        decided.iter().map(|(time, _)| time.as_nanos() / 1_000_000).collect()
    }

    #[test]
    fn the_end_of_a_second_moves_only_requests_that_wait() {
        let mut spread = Spread::new(true);
        spread.push(Timestamp::from_millis(5_900), 'a');
        spread.end();
        assert_eq!(spread.next(), Some((Timestamp::from_millis(5_900), 'a')));
        assert!(!spread.has_moved);
    }

    #[test]
    fn the_requests_of_a_second_are_spread_evenly() {
        let times = [0, 0, 7_000, 8_000, 8_000, 8_000, 8_000, 9_000];
        assert_eq!(spread(false, &times), [0, 500, 7_000, 8_000, 8_250, 8_500, 8_750, 9_000]);
        assert_eq!(spread(true, &times), times);
    }

    #[test]
    fn requests_with_a_fraction_are_decided_at_their_own_times() {
        let times = [1_000, 1_000, 1_250, 1_250, 2_500, 2_500, 3_000, 3_000, 3_000, 3_999];
        assert_eq!(spread(false, &times), times);
    }

    #[test]
    fn no_more_than_the_bound_wait() {
        let mut spread = Spread::new(false);
        for nth in 0..MOST + 10 {
            spread.push(Timestamp::from_secs(5), nth);
            assert!(spread.waiting.len() - spread.ready <= MOST);
        }
        assert_eq!(std::iter::from_fn(|| spread.next()).count(), MOST + 10);
    }
}
