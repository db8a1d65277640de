//! Which keys a full server evicts, as the server itself reports.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use tokio::task::JoinHandle;

use super::base::{Harm, now};
use crate::history::Loss;
use crate::load::KeyId;
use crate::plan::Phase;

/// How long a server may take to report an eviction, in nanoseconds.
const DELAY: u64 = 1_000_000_000;

/// How long to wait for the last reports.
const LAST: Duration = Duration::from_millis(300);

type Seen = Arc<Mutex<Vec<(u64, String)>>>;

/// Collects the names of the evicted keys.
pub(super) struct Watcher {
    seen: Seen,
    task: JoinHandle<()>,
}

impl Watcher {
    /// Collects the names that the server reports.
    pub(super) fn start(names: impl Stream<Item = String> + Send + 'static) -> Self {
        let seen = Seen::default();
        let all = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut names = std::pin::pin!(names);
            while let Some(name) = names.next().await {
                all.lock().unwrap_or_else(PoisonError::into_inner).push((now(), name));
            }
        });
        Self { seen, task }
    }

    /// The harm until now: a loss for each evicted key of the phase. The number of evictions includes fillers.
    pub(super) async fn end(self, from: u64, phase: &Phase) -> Harm {
        let harm = Harm::without_loss(from);
        tokio::time::sleep(LAST).await;
        self.task.abort();
        let seen = std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner));
        let evictions = seen.len() as u64;
        let loss = |(at, name): (u64, String)| {
            let key = KeyId::find(&name, phase.number)?;
            Some(Loss { from: at - DELAY, to: at, keys: Some([key].into()), is_split: false })
        };
        Harm { losses: seen.into_iter().filter_map(loss).collect(), evictions, ..harm }
    }
}
