//! Load on a server: so many tasks, each awaiting its own calls.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::keys::{Key, Random};
use crate::measure::{Session, figure};
use crate::stopwatch::Stopwatch;

/// Somebody who can be asked over the wire.
pub(super) trait Remote: Send + Sync + 'static {
    /// One call. Gives the number of decisions that it made; fails unless all were admitted.
    fn call(&self, keys: &mut Chooser) -> impl Future<Output = Result<u64>> + Send;
}

/// How long a call may take: hundreds that are under way at once wait for each other, and none is to be given up.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

/// How many keys are asked about, each as often as any other.
const KEYS: u64 = 100_000;

/// How many tasks make the keys known at the beginning.
const BEGINNERS: u64 = 64;

/// Of a short measurement, so many keys for each millisecond are known beforehand.
const KNOWN: u64 = 1_000;

/// Chooses keys: first those of a range, then at random.
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

/// A contestant and the runtime that it lives on.
pub(super) struct Load<R> {
    remote: Arc<R>,
    runtime: Runtime,
    nanos: u64,
}

/// What a task has seen.
#[derive(Default)]
struct Seen {
    decisions: u64,
    /// Nanoseconds of each call.
    calls: Vec<u32>,
}

impl<R: Remote> Load<R> {
    /// A session with what `connect` connects.
    pub(super) fn open(connect: impl Future<Output = Result<R>>, millis: u64) -> Result<Box<dyn Session>> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let remote = Arc::new(runtime.block_on(connect)?);
        runtime.block_on(Self::know(&remote, KEYS.min(millis * KNOWN)))?;
        Ok(Box::new(Self { remote, runtime, nanos: millis * 1_000_000 }))
    }

    /// Asks about each of the first so many keys.
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

    /// All tasks for so long.
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
    /// With so many calls under way at once: decisions per second, and the median and the 99th percentile of how long a
    /// call took, in microseconds.
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
