//! Load on a server: concurrent tasks that each await their own calls.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::keys::{Key, Random};
use crate::session::{Session, figure};
use crate::stopwatch::Stopwatch;

/// A contestant on a server.
pub(super) trait Remote: Send + Sync + 'static {
    /// Makes one call. Returns the number of decisions. Fails unless all are admitted.
    fn call(&self, keys: &mut Chooser) -> impl Future<Output = Result<u64>> + Send;
}

/// The time limit of a call. It is long because hundreds of concurrent calls wait for each other.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// The number of keys, which are requested equally often.
const KEYS: u64 = 100_000;

/// The number of tasks that insert the keys at the start.
const BEGINNERS: u64 = 64;

/// The number of keys inserted per millisecond of the measurement, at most all.
const KNOWN: u64 = 1_000;

/// Chooses keys: first those of a range, then random ones.
#[derive(Debug)]
pub(super) struct Chooser {
    first: Range<u64>,
    random: Random,
    keys: Vec<Key>,
}

impl Chooser {
    fn new(first: Range<u64>, seed: u64) -> Self {
        Self { first, random: Random(seed), keys: Vec::new() }
    }

    pub(super) fn one(&mut self) -> &str {
        self.many(1).first().map_or("", |key| &key.text)
    }

    pub(super) fn many(&mut self, count: usize) -> &[Key] {
        self.keys.resize_with(count, Key::default);
        for key in &mut self.keys {
            key.set(self.first.next().unwrap_or_else(|| self.random.below(KEYS)));
        }
        &self.keys
    }
}

/// A contestant and its runtime.
pub(super) struct Load<R> {
    remote: Arc<R>,
    runtime: Runtime,
    nanos: u64,
}

/// The results of a task.
#[derive(Default)]
struct Seen {
    decisions: u64,
    /// The nanoseconds of each call.
    calls: Vec<u32>,
}

impl<R: Remote> Load<R> {
    /// Opens a session with the contestant that `connect` returns.
    pub(super) fn open(connect: impl Future<Output = Result<R>>, millis: u64) -> Result<Box<dyn Session>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let remote = Arc::new(runtime.block_on(connect)?);
        runtime.block_on(Self::know(&remote, KEYS.min(millis * KNOWN)))?;
        Ok(Box::new(Self { remote, runtime, nanos: millis * 1_000_000 }))
    }

    /// Inserts this number of keys.
    async fn know(remote: &Arc<R>, keys: u64) -> Result<()> {
        let mut running = JoinSet::new();
        for task in 0..BEGINNERS {
            let remote = remote.clone();
            running.spawn(async move {
                let mut keys = Chooser::new(keys * task / BEGINNERS..keys * (task + 1) / BEGINNERS, task);
                while !keys.first.is_empty() {
                    remote.call(&mut keys).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = running.join_next().await {
            done??;
        }
        Ok(())
    }

    /// Runs all tasks for this time.
    async fn run(remote: &Arc<R>, tasks: u64, nanos: u64) -> Result<Seen> {
        let start = Stopwatch::start();
        let mut running = JoinSet::new();
        for task in 0..tasks {
            let remote = remote.clone();
            running.spawn(async move {
                let mut keys = Chooser::new(0..0, task);
                let mut seen = Seen::default();
                let mut now = start.nanos();
                while now < nanos {
                    seen.decisions += remote.call(&mut keys).await?;
                    let before = std::mem::replace(&mut now, start.nanos());
                    seen.calls.push(u32::try_from(now - before).unwrap_or(u32::MAX));
                }
                anyhow::Ok(seen)
            });
        }
        let mut all = Seen::default();
        while let Some(seen) = running.join_next().await {
            let mut seen = seen??;
            all.decisions += seen.decisions;
            all.calls.append(&mut seen.calls);
        }
        Ok(all)
    }
}

impl<R: Remote> Session for Load<R> {
    /// Measures with this number of concurrent calls: decisions per second, and the median and the 99th percentile of the
    /// latency in microseconds.
    fn step(&mut self, tasks: u64) -> Result<Vec<f64>> {
        let Self { remote, runtime, nanos } = self;
        runtime.block_on(async {
            Self::run(remote, tasks, *nanos / 8).await?;
            let start = Stopwatch::start();
            let mut seen = Self::run(remote, tasks, *nanos).await?;
            let seconds = start.seconds();
            seen.calls.sort_unstable();
            let rank = |percent: usize| {
                let place = (seen.calls.len() * percent / 100).min(seen.calls.len().saturating_sub(1));
                seen.calls.get(place).map_or(f64::NAN, |nanos| f64::from(*nanos) / 1e3)
            };
            Ok(vec![figure(seen.decisions) / seconds, rank(50), rank(99)])
        })
    }
}
