//! Compares the algorithms with an exact sliding log on the same requests.

mod algorithms;
mod counted;
mod judge;
mod measure;
mod memory;
mod source;

use ratelimit_core::Limit;
use serde::Serialize;

use crate::engine::{Trace, share};
use judge::{Judge, Totals};

pub use algorithms::Trips;
pub use counted::Counted;
pub use measure::{Measured, measure};
pub use source::{Sources, Traffics};

/// Checks that a comparison with the quota and the period of this limit is possible.
///
/// # Errors
/// If an algorithm cannot have this quota and period.
pub(crate) fn can_be_compared(limit: &Limit) -> anyhow::Result<()> {
    algorithms::algorithms(limit).map(drop)
}

/// The decisions of all algorithms on the same requests.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The number of requests.
    pub requests: u64,
    /// The number of keys.
    pub keys: u64,
    /// The decisions of each algorithm.
    pub algorithms: Vec<Compared>,
}

/// The decisions of one algorithm, and what they cost.
///
/// A decision is judged by the units that the same algorithm has admitted in the period that ends with the request. An
/// admission is wrong if these and the units of the request are more than the quota, unless it costs nothing; a refusal is
/// wrong if they are not.
/// So an earlier wrong decision does not make later ones wrong by itself.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// The limit.
    pub limit: String,
    /// Requests that it admitted.
    pub admitted: u64,
    /// Requests that it refused.
    pub refused: u64,
    /// Requests that it admitted although an exact log of what it had admitted would have refused them.
    pub wrongly_admitted: u64,
    /// Requests that it refused although an exact log of what it had admitted would have admitted them.
    pub wrongly_refused: u64,
    /// The most units of one key that it admitted in any span of one period, as a multiple of the quota.
    pub overshoot: f64,
    /// Keys of which it admitted more units than the quota in such a span.
    pub keys_above: u64,
    /// Keys with at least one wrong refusal.
    pub keys_refused_wrongly: u64,
    /// The mean over its admissions of |estimate - truth| / truth. The estimate is the quota less what remains after the
    /// admission, in whole units; the truth is the number of units that it has admitted in the period. `None` for buckets
    /// and queues, whose remaining units are not an estimate of these.
    pub mean_difference: Option<f64>,
    /// Jain's index of the requests that it admitted as a multiple of those that the log admitted, over the keys of which
    /// the log admitted some requests and refused others. It is 1 if this multiple is the same for all keys, and 1 / n if
    /// it is zero for all but one of n keys. `None` if there are no such keys.
    pub fairness: Option<f64>,
    /// The median of the waits until refused requests would have been admitted, in seconds; at most 12.5 % too long.
    pub median_wait: Option<f64>,
    /// The longest such wait, in seconds.
    pub longest_wait: Option<f64>,
    /// The mean time of a decision in memory, in nanoseconds. Keys are decided one after another, so their states are in
    /// the processor's cache.
    pub nanos: f64,
    /// Bytes that the store in memory takes for a key that has used its quota. `None` if they were not measured.
    pub bytes_per_key: Option<f64>,
    /// The number of round trips of a decision on each store.
    pub trips: Trips,
}

impl Compared {
    fn new(judge: &Judge, totals: &Totals, fairness: Option<f64>, bytes_per_key: Option<f64>) -> Self {
        let limit = judge.limit();
        let estimates = algorithms::estimates(limit.algorithm());
        Self {
            limit: limit.to_string(),
            admitted: totals.admitted,
            refused: totals.requests - totals.admitted,
            wrongly_admitted: totals.wrongly_admitted,
            wrongly_refused: totals.wrongly_refused,
            overshoot: share(totals.most, limit.quota()),
            keys_above: totals.keys_above,
            keys_refused_wrongly: totals.keys_refused_wrongly,
            mean_difference: estimates.then(|| mean(totals.differences, totals.admitted)),
            fairness,
            median_wait: totals.waits.median_seconds(),
            longest_wait: totals.waits.longest_seconds(),
            nanos: share(totals.nanos, totals.requests),
            bytes_per_key,
            trips: algorithms::trips(limit.algorithm()),
        }
    }
}

#[allow(clippy::cast_precision_loss)] // for people
fn mean(sum: f64, count: u64) -> f64 {
    if count == 0 { 0.0 } else { sum / count as f64 }
}

/// Jain's index of fairness: (Σx)² / (n Σx²).
#[derive(Clone, Copy, Debug, Default)]
struct Jain {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Jain {
    fn add(&mut self, value: f64) {
        self.count += 1;
        self.sum += value;
        self.squares += value * value;
    }

    fn merge(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    #[allow(clippy::cast_precision_loss)] // for people
    fn index(&self) -> Option<f64> {
        (self.count > 0 && self.squares > 0.0)
            .then(|| self.sum * self.sum / (self.count as f64 * self.squares))
    }
}

/// A judge for each algorithm. All of them get the same requests.
pub(crate) struct Judges {
    judges: Vec<Judge>,
    fairness: Vec<Jain>,
    /// The index of the judge of the log.
    log: usize,
    requests: u64,
    keys: u64,
}

impl Judges {
    fn new(limit: &Limit) -> anyhow::Result<Self> {
        let limits = algorithms::algorithms(limit)?;
        let log = limits.iter().position(|limit| limit.algorithm() == ratelimit_core::Algorithm::SlidingLog);
        Ok(Self {
            fairness: vec![Jain::default(); limits.len()],
            judges: limits.iter().map(Judge::new).collect::<anyhow::Result<_>>()?,
            log: log.unwrap_or_default(),
            requests: 0,
            keys: 0,
        })
    }

    fn judge(&mut self, key: &[u8], requests: &[(ratelimit_core::Timestamp, u64)]) -> anyhow::Result<()> {
        self.requests += requests.len() as u64;
        self.judges.iter_mut().try_for_each(|judge| judge.judge(key, requests))
    }

    /// Ends a key that has had this many requests: its state is forgotten.
    fn end(&mut self, key: &[u8], requests: u64) -> anyhow::Result<()> {
        self.keys += 1;
        let admitted =
            self.judges.iter_mut().map(|judge| judge.end(key)).collect::<anyhow::Result<Vec<u64>>>()?;
        let by_log = admitted.get(self.log).copied().unwrap_or_default();
        if by_log < requests && by_log > 0 {
            for (fairness, by_judge) in self.fairness.iter_mut().zip(admitted) {
                fairness.add(share(by_judge, by_log));
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.keys += other.keys;
        for (judge, other) in self.judges.iter_mut().zip(&other.judges) {
            judge.totals.add(&other.totals);
        }
        for (fairness, other) in self.fairness.iter_mut().zip(&other.fairness) {
            fairness.merge(*other);
        }
    }

    fn comparison(&self, allocated: Option<fn() -> usize>) -> anyhow::Result<Comparison> {
        let algorithms = self.judges.iter().zip(&self.fairness).map(|(judge, fairness)| {
            let bytes =
                allocated.map(|allocated| memory::bytes_per_key(judge.limit(), allocated)).transpose()?;
            Ok(Compared::new(judge, &judge.totals, fairness.index(), bytes))
        });
        let algorithms = algorithms.collect::<anyhow::Result<_>>()?;
        Ok(Comparison { requests: self.requests, keys: self.keys, algorithms })
    }
}

/// The maximum number of requests that are decided before they are judged.
const CHUNK: usize = 1 << 14;

/// Compares all algorithms with the quota and the period of `limit`. `allocated` returns how many bytes the program has
/// allocated; with `None`, the memory that a key takes is not measured.
///
/// # Errors
/// If an algorithm cannot have this quota and period.
pub fn compare(trace: &Trace, limit: &Limit, allocated: Option<fn() -> usize>) -> anyhow::Result<Comparison> {
    let mut judges = Judges::new(limit)?;
    let mut chunk = Vec::with_capacity(CHUNK);
    for key in trace.each() {
        for request in key.requests() {
            chunk.push(request);
            if chunk.len() == CHUNK {
                judges.judge(key.key, &chunk)?;
                chunk.clear();
            }
        }
        judges.judge(key.key, &chunk)?;
        chunk.clear();
        judges.end(key.key, key.len())?;
    }
    judges.comparison(allocated)
}

#[cfg(test)]
mod tests;
