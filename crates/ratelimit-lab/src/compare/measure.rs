//! Measures how exact the algorithms are on the requests of many sources, on all cores.

use std::num::NonZeroUsize;
use std::thread;

use ratelimit_core::{Limit, Timestamp};
use serde::Serialize;

use super::counted::{Counted, Counter, Truth};
use super::source::Sources;
use super::{CHUNK, Comparison, Judges};

/// How exact the algorithms are on the requests of many sources.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// The sources.
    pub sources: Sources,
    /// The quota and the period, as a limit.
    pub limit: String,
    /// The windows, if every request is counted.
    pub counted: Vec<Counted>,
    /// All algorithms, if refused requests are not counted, as in this project.
    pub limited: Comparison,
}

/// The measurement of one thread.
struct ThreadMeasurement {
    truth: Truth,
    counters: Vec<Counter>,
    judges: Judges,
}

impl ThreadMeasurement {
    fn new(limit: &Limit) -> anyhow::Result<Self> {
        // Says best why a limit cannot be compared.
        let judges = Judges::new(limit)?;
        Ok(Self { truth: Truth::new(limit), counters: Counter::all(limit)?, judges })
    }

    fn source(
        &mut self,
        times: impl Iterator<Item = Timestamp>,
        done: &(impl Fn(u64) + Sync),
    ) -> anyhow::Result<()> {
        let mut chunk: Vec<(Timestamp, u64)> = Vec::with_capacity(CHUNK);
        let mut times = times.peekable();
        let mut requests = 0;
        while times.peek().is_some() {
            chunk.clear();
            chunk.extend(times.by_ref().take(CHUNK).map(|time| (time, 1)));
            for (time, _) in &chunk {
                let truth = self.truth.count(*time);
                self.counters.iter_mut().for_each(|counter| counter.count(*time, truth));
            }
            self.judges.judge(b"source", &chunk)?;
            requests += chunk.len() as u64;
            done(chunk.len() as u64);
        }
        if requests > 0 {
            self.truth.end();
            self.counters.iter_mut().for_each(Counter::end);
            self.judges.end(b"source", requests)?;
        }
        Ok(())
    }
}

/// Measures all algorithms with the quota and the period of `limit`. Threads call `done` with the number of requests that
/// they have judged since their last call.
///
/// # Errors
/// If an algorithm cannot have this quota and period.
pub fn measure(sources: &Sources, limit: &Limit, done: impl Fn(u64) + Sync) -> anyhow::Result<Measured> {
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let parts = thread::scope(|scope| {
        let run = |first: u64| {
            let done = &done;
            scope.spawn(move || {
                let mut part = ThreadMeasurement::new(limit)?;
                for nth in (first..sources.count).step_by(threads) {
                    part.source(sources.times(nth)?, done)?;
                }
                anyhow::Ok(part)
            })
        };
        let running: Vec<_> = (0..threads as u64).map(run).collect();
        let ended = running
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| anyhow::bail!("a thread has failed")));
        ended.collect::<anyhow::Result<Vec<ThreadMeasurement>>>()
    })?;
    let mut all = ThreadMeasurement::new(limit)?;
    for part in &parts {
        all.judges.merge(&part.judges);
        all.counters.iter_mut().zip(&part.counters).for_each(|(counter, other)| counter.merge(other));
    }
    Ok(Measured {
        sources: sources.clone(),
        limit: limit.to_string(),
        counted: all.counters.iter().map(Counter::result).collect(),
        limited: all.judges.comparison(None)?,
    })
}
