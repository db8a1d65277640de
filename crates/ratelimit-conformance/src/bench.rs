//! The tools of a case: an empty space, handles on it, and limiters on a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratelimit_core::store::{Decisions, Promises};
use ratelimit_core::{IntoLimits, Limit, Limits, ManualClock, RateLimiter, SystemClock};
use tokio::task::JoinSet;

use crate::clock::START;
use crate::control::Control;
use crate::failure::{CaseResult, Failure, panic_message};
use crate::journal::{Journal, Noted};
use crate::kind::Kind;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::subject::{Handle, Space};
use crate::suite::Suite;

/// The tools of a case. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) space: Arc<dyn Space>,
    pub(crate) control: Option<Arc<Control>>,
    /// Whether the store reconnects by itself.
    pub(crate) reconnects: bool,
    pub(crate) store: Handle,
    pub(crate) suite: Arc<Suite>,
    /// The calls of all handles.
    pub(crate) journal: Arc<Journal>,
    /// The seed of this case, derived from the seed of the run.
    pub(crate) seed: u64,
}

impl Bench {
    /// The promises of the store.
    pub(crate) fn promises(&self) -> Promises {
        self.store.dyn_promises()
    }

    /// All kinds of limit that the store supports: nodes that count for themselves do not support some.
    pub(crate) fn kinds(&self) -> Vec<Kind> {
        let is_one_count = self.promises().decisions != Decisions::Eventual;
        Kind::ALL.into_iter().filter(|kind| is_one_count || !kind.needs_one_count()).collect()
    }

    /// Those of them whose units come back by themselves.
    pub(crate) fn renewed(&self) -> Vec<Kind> {
        self.kinds().into_iter().filter(|kind| kind.is_renewed()).collect()
    }

    /// Opens another handle.
    pub(crate) async fn open(&self) -> CaseResult<Handle> {
        Ok(Noted::handle(self.space.open().await?, &self.journal))
    }

    /// Opens a handle whose calls may take a minute.
    pub(crate) async fn patient(&self) -> CaseResult<Handle> {
        Ok(Noted::handle(self.space.open_patient().await?, &self.journal))
    }

    /// Opens several handles.
    pub(crate) async fn handles(&self, count: usize) -> CaseResult<Vec<Handle>> {
        let mut handles = vec![self.store.clone()];
        while handles.len() < count {
            handles.push(self.open().await?);
        }
        Ok(handles)
    }

    /// A limiter on a new manual clock, set to [`START`].
    pub(crate) fn limiter(&self, limits: impl IntoLimits) -> RateLimiter<Handle, ManualClock> {
        self.real(limits).with_clock(ManualClock::at(START))
    }

    /// A limiter on the system clock.
    pub(crate) fn real(&self, limits: impl IntoLimits) -> RateLimiter<Handle, SystemClock> {
        let limits = limits.into_limits();
        self.journal.learn(&limits);
        RateLimiter::new(self.store.clone(), limits)
    }

    /// The random numbers of this case.
    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// The number of stored meters.
    pub(crate) async fn meters(&self) -> CaseResult<u64> {
        let meters = self.space.meters().await?;
        meters.ok_or_else(|| Failure::skipped("the subject does not tell how many meters are stored"))
    }

    /// A proxy in front of the server, and a handle that connects through it.
    pub(crate) async fn through_proxy(&self) -> CaseResult<(Proxy, Handle)> {
        let Some(server) = self.space.address() else {
            return Err(Failure::not_applicable("the subject has no server's address"));
        };
        let proxy = Proxy::start(server).await?;
        let handle = Noted::handle(self.space.open_at(proxy.address()).await?, &self.journal);
        Ok((proxy, handle))
    }

    /// Ends the case if a call of the store takes several round trips.
    pub(crate) fn sends_together(&self) -> CaseResult {
        if self.space.sends_together() {
            return Ok(());
        }
        Err(Failure::not_applicable("the subject declares that its calls take several round trips"))
    }

    /// Control over the server.
    pub(crate) fn control(&self) -> CaseResult<Arc<Control>> {
        match (&self.control, self.space.address()) {
            (Some(control), _) => Ok(control.clone()),
            (None, Some(_)) => Err(Failure::skipped("the subject gives no control over its server")),
            (None, None) => Err(Failure::not_applicable("the subject has no server")),
        }
    }
}

/// Parses a limit.
pub(crate) fn limit(text: &str) -> CaseResult<Limit> {
    Ok(text.parse()?)
}

/// Parses limits that are checked together.
pub(crate) fn limits(texts: &[&str]) -> CaseResult<Limits> {
    let limits: Vec<Limit> = texts.iter().map(|text| limit(text)).collect::<CaseResult<_>>()?;
    Ok(Limits::new(limits)?)
}

/// Runs `count` tasks concurrently, spread over `handles`, and returns their results. None begins before all are started. Each
/// makes calls that the store ends in time; a storm that does not end is reported as a case that hangs.
///
/// The tasks wait in a loop, because a thread that sleeps would wake up after a store in memory has served the others.
pub(crate) async fn storm<T, F, R>(handles: &[Handle], count: usize, task: F) -> CaseResult<Vec<T>>
where
    T: Send + 'static,
    F: Fn(Handle, usize) -> R,
    R: Future<Output = CaseResult<T>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    let started = Arc::new(AtomicUsize::new(0));
    for (number, handle) in (0..count).zip(handles.iter().cycle()) {
        let (task, started) = (task(handle.clone(), number), started.clone());
        tasks.spawn(async move {
            started.fetch_add(1, Ordering::SeqCst);
            while started.load(Ordering::SeqCst) < count {
                tokio::task::yield_now().await;
            }
            task.await
        });
    }
    let mut found = Vec::with_capacity(count);
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => found.push(result.map_err(|failure| failure.in_storm(count))?),
            Err(error) => return Err(Failure::new(panic_message(error))),
        }
    }
    Ok(found)
}
