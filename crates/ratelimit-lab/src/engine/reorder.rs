//! Puts requests into the order of their times, within a bound.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ratelimit_core::Timestamp;

/// The maximum number of requests that wait for earlier ones.
pub(crate) const MOST: usize = 1 << 20;

/// Holds requests back until no earlier one can come, if none is more out of order than the bound.
#[derive(Debug)]
pub(crate) struct Reorder<T> {
    /// In nanoseconds.
    bound: u64,
    /// Waiting requests, each of which came in order: not before the one in front of it. In most logs these are nearly all.
    sorted: VecDeque<(Timestamp, T)>,
    /// The other waiting requests, by time and by the order in which they came.
    late: BTreeMap<(Timestamp, u64), T>,
    newest: Timestamp,
    /// The time of the last decision. No later request is decided at an earlier time.
    decided: Timestamp,
    count: u64,
    /// Requests that came after a later one had been decided.
    pub(crate) too_late: u64,
    /// Those of them within the bound: a later one was decided only because no more could wait.
    pub(crate) crowded_out: u64,
    /// How long before the newest request until then the latest one was, in nanoseconds.
    pub(crate) late_by: u64,
}

impl<T> Reorder<T> {
    pub(crate) fn new(bound: Duration) -> Self {
        Self {
            bound: u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX),
            sorted: VecDeque::new(),
            late: BTreeMap::new(),
            newest: Timestamp::EPOCH,
            decided: Timestamp::EPOCH,
            count: 0,
            too_late: 0,
            crowded_out: 0,
            late_by: 0,
        }
    }

    /// Adds a request. Then call [`next`](Self::next) until it returns `None`.
    pub(crate) fn push(&mut self, time: Timestamp, request: T) {
        if time < self.decided {
            self.too_late += 1;
            self.crowded_out += u64::from(self.is_within(time));
        }
        self.late_by = self.late_by.max(self.newest.as_nanos().saturating_sub(time.as_nanos()));
        self.newest = self.newest.max(time);
        self.count += 1;
        if self.sorted.back().is_none_or(|(last, _)| *last <= time) {
            self.sorted.push_back((time, request));
        } else {
            self.late.insert((time, self.count), request);
        }
    }

    /// The next request to decide, and the time at which to decide it. `None` while an earlier one can still come.
    pub(crate) fn next(&mut self) -> Option<(Timestamp, T)> {
        let (first, is_late) = self.first()?;
        let is_full = self.sorted.len() + self.late.len() > MOST;
        if !is_full && self.is_within(first) && self.bound > 0 {
            return None;
        }
        self.take_first(is_late)
    }

    /// Whether a request of this time is before the newest one by at most the bound.
    fn is_within(&self, time: Timestamp) -> bool {
        time.as_nanos().saturating_add(self.bound) >= self.newest.as_nanos()
    }

    /// The earliest request that is left, and the time at which to decide it, although earlier ones can still come.
    /// `None` if none is left.
    pub(crate) fn take(&mut self) -> Option<(Timestamp, T)> {
        let (_, is_late) = self.first()?;
        self.take_first(is_late)
    }

    #[inline]
    fn take_first(&mut self, is_late: bool) -> Option<(Timestamp, T)> {
        let (time, request) = match is_late {
            true => self.late.pop_first().map(|((time, _), request)| (time, request))?,
            false => self.sorted.pop_front()?,
        };
        self.decided = self.decided.max(time);
        Some((self.decided, request))
    }

    /// The time of the earliest request that is left, and whether it is among the late ones.
    fn first(&self) -> Option<(Timestamp, bool)> {
        let late = self.late.first_key_value().map(|((time, _), _)| *time);
        let sorted = self.sorted.front().map(|(time, _)| *time);
        match (late, sorted) {
            (Some(late), Some(sorted)) if late >= sorted => Some((sorted, false)),
            (Some(late), _) => Some((late, true)),
            (None, sorted) => Some((sorted?, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds and names in the order in which the requests are decided, and the number of those that came too late.
    fn order(bound: u64, requests: &[(u64, char)]) -> (Vec<(u64, char)>, u64) {
        let mut reorder = Reorder::new(Duration::from_secs(bound));
        let mut decided = Vec::new();
        for (second, name) in requests {
            reorder.push(Timestamp::from_secs(*second), *name);
            while let Some(request) = reorder.next() {
                decided.push(request);
            }
        }
        decided.extend(std::iter::from_fn(|| reorder.take()));
        let seconds = |(time, name): (Timestamp, char)| (time.as_nanos() / 1_000_000_000, name);
        (decided.into_iter().map(seconds).collect(), reorder.too_late)
    }

    #[test]
    fn requests_within_the_bound_are_put_in_order() {
        let requests =
            [(100, 'a'), (110, 'b'), (101, 'c'), (110, 'd'), (100, 'e'), (120, 'f'), (111, 'g'), (130, 'h')];
        let sorted =
            [(100, 'a'), (100, 'e'), (101, 'c'), (110, 'b'), (110, 'd'), (111, 'g'), (120, 'f'), (130, 'h')];
        assert_eq!(order(10, &requests), (sorted.to_vec(), 0));
    }

    #[test]
    fn later_ones_are_decided_at_the_latest_time_and_counted() {
        let requests = [(100, 'a'), (111, 'b'), (122, 'c'), (110, 'd'), (50, 'e'), (123, 'f')];
        let decided = [(100, 'a'), (111, 'b'), (111, 'd'), (111, 'e'), (122, 'c'), (123, 'f')];
        let (order, too_late) = order(10, &requests);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!((sorted, too_late), (decided.to_vec(), 2));
        assert!(order.is_sorted_by_key(|(second, _)| *second), "{order:?}");
    }

    #[test]
    fn a_bound_as_long_as_the_latest_was_late_suffices() {
        let requests = [(100, 'a'), (111, 'b'), (122, 'c'), (75, 'd'), (50, 'e'), (123, 'f')];
        let late_by = |bound: u64| {
            let mut reorder = Reorder::new(Duration::from_secs(bound));
            for (second, name) in requests {
                reorder.push(Timestamp::from_secs(second), name);
                while reorder.next().is_some() {}
            }
            reorder.late_by / 1_000_000_000
        };
        assert_eq!([0, 10, 72].map(late_by), [72; 3]);
        assert_eq!([10, 72].map(|bound| order(bound, &requests).1), [2, 0]);
    }

    #[test]
    fn without_a_bound_nothing_waits() {
        let mut reorder = Reorder::new(Duration::ZERO);
        for (second, decided) in [(5, 5), (7, 7), (6, 7), (8, 8)] {
            reorder.push(Timestamp::from_secs(second), second);
            assert_eq!(reorder.next(), Some((Timestamp::from_secs(decided), second)));
            assert_eq!(reorder.next(), None);
        }
        assert_eq!(reorder.too_late, 1);
    }

    #[test]
    fn no_more_than_the_bound_wait() {
        let mut reorder = Reorder::new(Duration::from_secs(1_000));
        let mut decided = 0;
        for number in 0..MOST + 10 {
            reorder.push(Timestamp::from_secs(5), number);
            decided += usize::from(reorder.next().is_some());
        }
        assert_eq!(decided, 10);
        // Whether a request was late by itself, or only because no more could wait.
        for (second, expected) in [(5, (0, 0)), (4, (1, 1))] {
            reorder.push(Timestamp::from_secs(second), 0);
            assert_eq!((reorder.too_late, reorder.crowded_out), expected);
        }
        reorder.push(Timestamp::from_secs(2_000), 0);
        reorder.push(Timestamp::from_secs(4), 0);
        assert_eq!((reorder.too_late, reorder.crowded_out), (2, 1));
    }
}
