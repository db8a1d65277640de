//! Counts over time, in at most about two thousand equal buckets.

use ratelimit_core::Timestamp;
use serde::{Deserialize, Serialize};

/// The numbers of admitted and refused requests over time, in buckets of equal width. Buckets are a second wide at first.
/// Whenever there would be more than 2,048 of them, each two become one, so the size of a series does not depend on the
/// length of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// The time at which the first bucket begins, in seconds since 1970: a whole multiple of the width.
    pub begin: u64,
    /// The width of a bucket, in seconds: a power of two.
    pub width: u64,
    /// The buckets, from the first request to the last one.
    pub buckets: Vec<Bucket>,
}

/// The requests in one bucket of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
}

impl Bucket {
    /// Both together.
    pub fn requests(&self) -> u64 {
        self.admitted + self.refused
    }
}

/// The maximum number of buckets.
const MOST: usize = 2_048;

impl Default for Series {
    fn default() -> Self {
        Self { begin: 0, width: 1, buckets: Vec::new() }
    }
}

impl Series {
    /// Counts a request. Its time must not be before that of the previous one.
    pub(crate) fn add(&mut self, time: Timestamp, is_admitted: bool) {
        let second = time.as_nanos() / 1_000_000_000;
        if self.buckets.is_empty() {
            self.begin = second;
        }
        let mut at = self.index(second);
        while at >= MOST {
            self.merge();
            at = self.index(second);
        }
        if at >= self.buckets.len() {
            self.buckets.resize(at + 1, Bucket::default());
        }
        if let Some(bucket) = self.buckets.get_mut(at) {
            match is_admitted {
                true => bucket.admitted += 1,
                false => bucket.refused += 1,
            }
        }
    }

    /// The same counts in wider buckets, of which there are at most this many, or two if this is less.
    pub(crate) fn coarser(&self, most: usize) -> Self {
        let mut series = self.clone();
        while series.buckets.len() > most.max(2) {
            series.merge();
        }
        series
    }

    fn index(&self, second: u64) -> usize {
        usize::try_from(second.saturating_sub(self.begin) / self.width).unwrap_or(usize::MAX)
    }

    /// Merges the buckets into buckets of twice the width, which begin at whole multiples of it.
    fn merge(&mut self) {
        let width = self.width * 2;
        let begin = self.begin / width * width;
        let mut merged: Vec<Bucket> = Vec::with_capacity(self.buckets.len() / 2 + 1);
        for (old, bucket) in self.buckets.iter().enumerate() {
            let at = usize::try_from((self.begin - begin) / self.width).unwrap_or(0) + old;
            if merged.len() <= at / 2 {
                merged.push(Bucket::default());
            }
            if let Some(sum) = merged.last_mut() {
                sum.admitted += bucket.admitted;
                sum.refused += bucket.refused;
            }
        }
        *self = Self { begin, width, buckets: merged };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_merged_and_lose_nothing() {
        for begin in [0, 7, 1_700_000_001] {
            let mut series = Series::default();
            let seconds = (0..100_000_u64).step_by(7).chain([1_000_000, 4_000_000_000]);
            for second in seconds.clone() {
                let time = Timestamp::from_secs(begin + second);
                series.add(time, second % 3 > 0);
                assert!(series.buckets.len() <= MOST);
            }
            let count = |of: fn(&Bucket) -> u64| series.buckets.iter().map(of).sum::<u64>();
            let refused = seconds.clone().filter(|second| second % 3 == 0).count() as u64;
            assert_eq!(
                (count(Bucket::requests), count(|bucket| bucket.refused)),
                (seconds.count() as u64, refused)
            );
            assert!(
                series.width.is_power_of_two() && series.begin % series.width == 0 && series.begin <= begin
            );
            assert_eq!(series.buckets.last().unwrap().requests(), 1);
        }
    }

    #[test]
    fn a_request_is_in_the_bucket_of_its_time() {
        let mut series = Series::default();
        for second in [10, 10, 12, 10 + 2_048, 10 + 4_095] {
            series.add(Timestamp::from_secs(second), true);
        }
        assert_eq!((series.begin, series.width), (10, 2));
        let filled: Vec<(usize, u64)> = series
            .buckets
            .iter()
            .enumerate()
            .filter(|(_, one)| one.admitted > 0)
            .map(|(at, one)| (at, one.admitted))
            .collect();
        assert_eq!(filled, [(0, 2), (1, 1), (1_024, 1), (2_047, 1)]);
    }
}
