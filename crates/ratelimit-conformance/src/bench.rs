//! What a case works with: a space of its own, handles on it, limiters on a clock that is moved by hand.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::{
    DynCounterStore, Limit, Limits, ManualClock, Promises, RateLimiter, SystemClock, Timestamp,
};
use tokio::task::JoinSet;

use crate::control::Control;
use crate::failure::{CaseResult, Failure};
use crate::journal::Journal;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::{Space, Suite};

/// A handle on the store.
pub(crate) type Handle = Arc<dyn DynCounterStore>;

/// A whole hour in 2027: where the clocks of most cases begin.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// What a case works with. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Bench {
    pub(crate) space: Arc<dyn Space>,
    pub(crate) control: Option<Arc<Control>>,
    pub(crate) store: Handle,
    pub(crate) suite: Arc<Suite>,
    /// What has been asked by trials.
    pub(crate) journal: Arc<Journal>,
    /// A number of this case's own, the same in every run with the same seed.
    pub(crate) seed: u64,
}

impl Bench {
    /// What the store promises.
    pub(crate) fn promises(&self) -> Promises {
        self.store.dyn_promises()
    }

    /// Opens a further handle.
    pub(crate) async fn open(&self) -> CaseResult<Handle> {
        Ok(self.space.open().await?)
    }

    /// Opens several handles.
    pub(crate) async fn handles(&self, count: usize) -> CaseResult<Vec<Handle>> {
        let mut handles = vec![self.store.clone()];
        while handles.len() < count {
            handles.push(self.open().await?);
        }
        Ok(handles)
    }

    /// A limiter on a clock of its own that stands at [`START`].
    pub(crate) fn limiter(&self, limits: impl Into<Limits>) -> RateLimiter<Handle, ManualClock> {
        RateLimiter::new(self.store.clone(), limits).with_clock(ManualClock::at(START))
    }

    /// A limiter on the machine's clock.
    pub(crate) fn real(&self, limits: impl Into<Limits>) -> RateLimiter<Handle, SystemClock> {
        RateLimiter::new(self.store.clone(), limits)
    }

    /// Random numbers of this case's own.
    pub(crate) fn random(&self) -> Random {
        Random::new(self.seed)
    }

    /// How many meters are stored.
    pub(crate) async fn meters(&self) -> CaseResult<u64> {
        let meters = self.space.meters().await?;
        meters.ok_or_else(|| Failure::skipped("the subject does not tell how many meters are stored"))
    }

    /// A proxy before the server, and a handle that goes through it.
    pub(crate) async fn through_proxy(&self) -> CaseResult<(Proxy, Handle)> {
        let Some(server) = self.space.address() else {
            return Err(Failure::not_applicable("the subject has no server's address"));
        };
        let proxy = Proxy::start(server).await?;
        let handle = self.space.open_at(proxy.address()).await?;
        Ok((proxy, handle))
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

/// Reads a limit.
pub(crate) fn limit(text: &str) -> CaseResult<Limit> {
    Ok(text.parse()?)
}

/// Reads limits that are checked together.
pub(crate) fn limits(texts: &[&str]) -> CaseResult<Limits> {
    let limits: Vec<Limit> = texts.iter().map(|text| limit(text)).collect::<CaseResult<_>>()?;
    Ok(Limits::new(limits)?)
}

/// Runs `count` tasks side by side, spread over `handles`, and gives what each of them found.
pub(crate) async fn storm<T, F, R>(handles: &[Handle], count: usize, task: F) -> CaseResult<Vec<T>>
where
    T: Send + 'static,
    F: Fn(Handle, usize) -> R,
    R: Future<Output = CaseResult<T>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for (number, handle) in (0..count).zip(handles.iter().cycle()) {
        tasks.spawn(task(handle.clone(), number));
    }
    let mut found = Vec::with_capacity(count);
    while let Some(ended) = tasks.join_next().await {
        match ended {
            Ok(result) => found.push(result?),
            Err(error) => return Err(Failure::new(panic_message(error))),
        }
    }
    Ok(found)
}

/// What a panic said.
pub(crate) fn panic_message(error: tokio::task::JoinError) -> String {
    if !error.is_panic() {
        return error.to_string();
    }
    let panic = error.into_panic();
    let text = panic.downcast_ref::<String>().cloned();
    let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
    format!("panicked: {}", text.unwrap_or_else(|| "without a message".to_owned()))
}

/// Waits in real time.
pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
