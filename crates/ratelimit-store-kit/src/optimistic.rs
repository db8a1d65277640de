//! A store that decides here what its server then compares and writes.

use std::fmt;
use std::time::Duration;

use ratelimit_core::kit::deadline_after;
use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, Timestamp};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout_at};

use crate::{Backoff, Batch, Change, CompareAndSet, Decided, NewValue, Outcome, StateCache, Versioned};

/// The default of [`Optimistic::with_time_limit`].
const TIME_LIMIT: Duration = Duration::from_secs(1);

/// The default of [`Optimistic::with_cache`].
const CACHE: usize = 16 << 20;

/// A store on a server that can [compare and write](CompareAndSet) several values in one request.
///
/// Each call guesses the server's values (those it had last), decides on them, and sends the versions of the guess with the
/// result. If the guess was right, as it is if no other client wrote, that was one round trip. Otherwise the server returns
/// its values, and the call decides again, until its deadline: the caller that has just written knows the versions, and
/// may win against another one a hundred times in a row.
///
/// The whole state of a meter is sent each time. For long logs it is better to do the arithmetic on the server.
///
/// A store makes one call at a time, because concurrent calls would only conflict with each other. If yours gets many
/// concurrent calls, wrap it in [`Batched`](ratelimit_core::layers::Batched), so that they share round trips.
///
/// It is [`Exact`](Decisions::Exact) and decides by the caller's time.
pub struct Optimistic<S> {
    name: &'static str,
    address: String,
    time_limit: Duration,
    link: Mutex<Link<S>>,
}

struct Link<S> {
    server: S,
    /// The last known values. They may be wrong; then the server says so.
    known: StateCache,
}

impl<S: CompareAndSet> Optimistic<S> {
    /// A store on `server`. Errors call it `name`, at `address`: without user and password.
    pub fn new(name: &'static str, address: impl Into<String>, server: S) -> Self {
        let link = Mutex::new(Link { server, known: StateCache::new(CACHE) });
        Self { name, address: address.into(), time_limit: TIME_LIMIT, link }
    }

    /// Sets how long a call may take, whatever it waits for: other calls, a connection, the reply. One second by default.
    #[must_use]
    pub fn with_time_limit(self, time_limit: Duration) -> Self {
        Self { time_limit, ..self }
    }

    /// Sets how much memory the last known states may take, in bytes; 16 MiB by default. A call on a meter whose state is not
    /// known, although it exists, takes a second round trip.
    #[must_use]
    pub fn with_cache(self, bytes: usize) -> Self {
        let Link { server, .. } = self.link.into_inner();
        Self { link: Mutex::new(Link { server, known: StateCache::new(bytes) }), ..self }
    }

    /// Decides until the decision was based on what the server has.
    async fn run(&self, batch: &Batch) -> Result<Vec<Answer>, StoreError> {
        let deadline = deadline_after(self.time_limit);
        let mut link = self.turn(deadline).await?;
        let (mut conflicts, mut backoff) = (0_u64, Backoff::until(deadline));
        loop {
            let known = batch.names().iter().map(|name| link.known.get(name).cloned());
            let (versions, states): (Vec<_>, Vec<_>) =
                known.map(|known| known.map(|known| (known.version, known.state)).unzip()).unzip();
            let Decided { answers, writes } = batch.decide(states);
            let new = writes.into_iter().map(|write| {
                let write = write?;
                Some(NewValue { value: Versioned::new(write.state), lifetime: write.lifetime })
            });
            let changes = batch.names().iter().zip(versions).zip(new);
            let changes: Vec<_> =
                changes.map(|((name, expected), new)| Change { name, expected, new }).collect();
            let call = link.server.compare_and_set(&changes);
            match self.in_time(deadline, conflicts, call).await {
                Err(error) => backoff.after(error).await?,
                Ok(Outcome::Done) => {
                    for Change { name, new, .. } in changes {
                        if let Some(new) = new {
                            link.known.set(name, Some(new.value));
                        }
                    }
                    return Ok(answers);
                }
                Ok(Outcome::Conflict(present)) => {
                    batch.names().iter().for_each(|name| link.known.set(name, None));
                    present.into_iter().for_each(|(name, value)| link.known.set(&name, Some(value)));
                    conflicts += 1;
                }
            }
        }
    }

    /// Waits until no other call uses the connection. Nothing has been sent until then.
    async fn turn(&self, deadline: Instant) -> Result<MutexGuard<'_, Link<S>>, StoreError> {
        timeout_at(deadline, self.link.lock()).await.map_err(|_| {
            let message = format!("other calls took all of its {:?}", self.time_limit);
            StoreError::new(self.name, ErrorKind::Timeout, message).at(&self.address).not_applied()
        })
    }

    async fn in_time<T>(
        &self,
        deadline: Instant,
        conflicts: u64,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        timeout_at(deadline, call).await.unwrap_or_else(|_| {
            let message = match conflicts {
                0 => format!("no answer within {:?}", self.time_limit),
                _ => format!("other clients came first {conflicts} times within {:?}", self.time_limit),
            };
            Err(StoreError::new(self.name, ErrorKind::Timeout, message).at(&self.address))
        })
    }
}

impl<S: CompareAndSet> CounterStore for Optimistic<S> {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, Time::Caller)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let answers = self.run(&Batch::of_claims(&[claims])).await?;
        let missing = || StoreError::new(self.name, ErrorKind::Server, "there is no answer").maybe_applied();
        answers.into_iter().next().ok_or_else(missing)
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        if slices.is_empty() {
            return Vec::new();
        }
        match self.run(&Batch::of_claims(slices)).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => slices.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        if refunds.is_empty() {
            return Ok(());
        }
        self.run(&Batch::of_refunds(now, refunds)).await.map(drop)
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        let deadline = deadline_after(self.time_limit);
        let batch = Batch::of_claims(&[claims]);
        let mut link = self.turn(deadline).await?;
        batch.names().iter().for_each(|name| link.known.set(name, None));
        let mut backoff = Backoff::until(deadline);
        loop {
            match self.in_time(deadline, 0, link.server.remove(batch.names())).await {
                Err(error) => backoff.after(error).await?,
                done => return done,
            }
        }
    }
}

impl<S> fmt::Debug for Optimistic<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, address, time_limit, .. } = self;
        f.debug_struct("Optimistic")
            .field("name", name)
            .field("address", address)
            .field("time_limit", time_limit)
            .finish_non_exhaustive()
    }
}
