//! One key under some limits on a manual clock: the vocabulary of most cases.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::{Clock, Decision, Limits, ManualClock, RateLimiter, Request, Timestamp};

use crate::bench::Bench;
use crate::clock::START;
use crate::describe;
use crate::failure::{CaseResult, Failure, ensure, ensure_eq};
use crate::in_time::in_time;
use crate::journal::Journal;
use crate::subject::Handle;

/// One key under some limits.
#[derive(Clone)]
pub(crate) struct Trial {
    pub(crate) limiter: RateLimiter<Handle, ManualClock>,
    key: Vec<u8>,
    store: Handle,
    journal: Arc<Journal>,
}

impl Trial {
    /// The key `k` under these limits, at [`START`].
    pub(crate) fn new(bench: &Bench, limits: impl Into<Limits>) -> Self {
        let (store, journal) = (bench.store.clone(), bench.journal.clone());
        let limiter = reported(&store, &journal, limits.into(), ManualClock::at(START));
        Self { limiter, key: b"k".to_vec(), store, journal }
    }

    /// Another key under the same limits, on the same clock.
    pub(crate) fn key(&self, key: impl AsRef<[u8]>) -> Self {
        Self { key: key.as_ref().to_vec(), ..self.clone() }
    }

    /// The same key and clock under other limits.
    pub(crate) fn under(&self, limits: impl Into<Limits>) -> Self {
        let clock = self.limiter.clock().clone();
        let limiter = reported(&self.store, &self.journal, limits.into(), clock);
        Self { limiter, ..self.clone() }
    }

    /// The same key, limits and clock on another handle.
    pub(crate) fn on(&self, store: Handle) -> Self {
        let (limits, clock) = (self.limiter.limits().clone(), self.limiter.clock().clone());
        Self { limiter: reported(&store, &self.journal, limits, clock), store, ..self.clone() }
    }

    /// A request for this key.
    pub(crate) fn request(&self, cost: u64) -> Request<'_, '_> {
        Request::new(&self.key).cost(cost)
    }

    /// Sets the clock to this time after [`START`].
    pub(crate) fn at(&self, since_start: Duration) -> &Self {
        self.set(START + since_start)
    }

    /// Sets the clock.
    pub(crate) fn set(&self, now: Timestamp) -> &Self {
        self.limiter.clock().set(now);
        self
    }

    /// Advances the clock.
    pub(crate) fn advance(&self, duration: Duration) -> &Self {
        self.limiter.clock().advance(duration);
        self
    }

    /// The time of the clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.limiter.clock().now()
    }

    /// Requests units, which may be admitted or refused.
    pub(crate) async fn ask(&self, cost: u64) -> CaseResult<Decision<'static>> {
        in_time("a claim", async { Ok(self.limiter.check(self.request(cost)).await?.into_owned()) }).await
    }

    /// Requests units, which must be admitted.
    pub(crate) async fn admit(&self, cost: u64) -> CaseResult<Decision<'static>> {
        let decision = self.ask(cost).await?;
        if decision.allowed() { Ok(decision) } else { Err(self.unexpected("refused", cost, &decision)) }
    }

    /// Requests units, which must be refused.
    pub(crate) async fn refuse(&self, cost: u64) -> CaseResult<Decision<'static>> {
        let decision = self.ask(cost).await?;
        if decision.allowed() { Err(self.unexpected("admitted", cost, &decision)) } else { Ok(decision) }
    }

    /// Takes one unit at a time until a refusal, and returns the number of admitted units, at most `most`.
    pub(crate) async fn drain(&self, most: u64) -> CaseResult<u64> {
        let mut admitted = 0;
        while admitted < most && self.ask(1).await?.allowed() {
            admitted += 1;
        }
        Ok(admitted)
    }

    /// The number of units left, by a peek.
    pub(crate) async fn left(&self) -> CaseResult<u64> {
        in_time("a peek", async { Ok(self.limiter.peek(self.request(0)).await?.remaining()) }).await
    }

    /// Checks that exactly this number of units is left, by a peek and by requesting one more.
    pub(crate) async fn expect_left(&self, units: u64) -> CaseResult {
        ensure_eq!(self.left().await?, units, "units left of {}", self.reported());
        let more = self.limiter.would_allow(self.request(units + 1)).await?;
        ensure!(!more.allowed(), "{} units of {} would be admitted: {more:?}", units + 1, self.reported());
        let all = self.limiter.would_allow(self.request(units)).await?;
        ensure!(all.allowed(), "{units} units of {} would be refused: {all:?}", self.reported());
        Ok(())
    }

    /// Requests too much, and checks that the retry-after is exact to the nanosecond.
    pub(crate) async fn wait_exactly(&self, cost: u64) -> CaseResult<Duration> {
        let refused = self.refuse(cost).await?;
        let Some(wait) = refused.retry_after() else {
            return Err(Failure::new(format!("told never for a cost of {cost}: {refused:?}")));
        };
        ensure!(!wait.is_zero(), "refused a cost of {cost}, but told to come at once: {refused:?}");
        self.advance(wait - Duration::from_nanos(1));
        let early = self.refuse(cost).await?;
        let tick = Some(Duration::from_nanos(1));
        ensure_eq!(early.retry_after(), tick, "retry-after a nanosecond before it fits");
        self.advance(Duration::from_nanos(1));
        self.admit(cost).await?;
        Ok(wait)
    }

    fn unexpected(&self, what: &str, cost: u64, decision: &Decision<'_>) -> Failure {
        Failure::new(format!("a cost of {cost} of {} was {what}: {decision:?}", self.reported()))
    }

    /// The limits, the key and the time.
    fn reported(&self) -> String {
        let limits: Vec<String> = self.limiter.limits().iter().map(|limit| format!("`{limit}`")).collect();
        format!(
            "{} on key {} at {}",
            limits.join(", "),
            describe::key(&self.key),
            describe::instant(self.now())
        )
    }
}

/// A limiter whose limits the journal knows.
fn reported(
    store: &Handle,
    journal: &Arc<Journal>,
    limits: Limits,
    clock: ManualClock,
) -> RateLimiter<Handle, ManualClock> {
    journal.learn(&limits);
    RateLimiter::new(store.clone(), limits).with_clock(clock)
}
