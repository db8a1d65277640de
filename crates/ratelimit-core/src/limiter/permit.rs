//! Permits: hold what a request took under concurrency limits, renew it, and release it when they are dropped.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::RateLimiter;
use crate::{Applied, Clock, CounterStore, Decision, ErrorKind, StoreError};

/// Holds what a decision took under concurrency limits, until you release or drop it.
///
/// A task renews the lease each time a third of it has passed. If the process crashes, nobody renews the lease, and it
/// ends.
///
/// If a renewal fails, the task repeats it until the lease ends: each time a 24th of the lease has passed if the store has
/// certainly [applied nothing](StoreError::applied), otherwise a quarter. If the store applied a renewal but its answer
/// was lost, the new units stay taken until their lease ends, at most three times what the permit holds. Others may then
/// be refused although units are free, but never are too many admitted.
///
/// Dropping a permit releases its units in that task. If the store does not answer, and has certainly
/// released nothing, the task repeats the release as often as renewals that have failed, until it
/// succeeds or the lease has ended. One that may have been applied is not repeated, because a second one could take units of
/// others. The lease then ends by itself.
///
/// ```
/// # use std::sync::Arc;
/// # use ratelimit_core::{CounterStore, Limit, RateLimiter};
/// # async fn work() {}
/// # async fn example(store: impl CounterStore + 'static) -> Result<(), Box<dyn std::error::Error>> {
/// let limiter = Arc::new(RateLimiter::new(store, "20 at once".parse::<Limit>()?));
/// let decision = limiter.check("user:7").await?;
/// if decision.allowed() {
///     let permit = limiter.hold(decision);
///     work().await;
///     permit.release().await?; // or drop it
/// }
/// # Ok(())
/// # }
/// ```
#[must_use = "dropping it releases what it holds"]
pub struct Permit {
    decision: Arc<Decision<'static>>,
    release: Option<oneshot::Sender<oneshot::Sender<Result<(), StoreError>>>>,
    is_lost: Arc<AtomicBool>,
}

impl<S: CounterStore + 'static, C: Clock + 'static> RateLimiter<S, C> {
    /// Holds what `decision` took under concurrency limits until the permit is released or dropped.
    ///
    /// Requires a tokio runtime with its time driver.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn hold(self: &Arc<Self>, decision: Decision<'_>) -> Permit {
        let (release, released) = oneshot::channel();
        let is_lost = Arc::new(AtomicBool::new(false));
        let decision = Arc::new(decision.into_owned());
        tokio::spawn(hold(self.clone(), decision.clone(), released, is_lost.clone()));
        Permit { decision, release: Some(release), is_lost }
    }
}

impl Permit {
    /// Releases what the permit holds, and returns when the store has answered.
    ///
    /// # Errors
    /// If the store did not answer. The release is then repeated, as after a drop.
    pub async fn release(mut self) -> Result<(), StoreError> {
        let (done, outcome) = oneshot::channel();
        // If the task is gone, its runtime has shut down. The channel for the answer is then closed as well.
        let _ = self.release.take().map(|release| release.send(done));
        outcome.await.unwrap_or_else(|_| {
            let message = "the tokio runtime of the permit has shut down; the lease ends by itself";
            Err(StoreError::new("the permit", ErrorKind::Unreachable, message))
        })
    }

    /// The decision whose units it holds, for example to [settle](RateLimiter::settle) what was used under other limits.
    pub fn decision(&self) -> &Decision<'static> {
        &self.decision
    }

    /// Whether a lease has ended because it could not be renewed in time, so that another request may hold the same
    /// units. Also if the units were given back, by a call with this decision or a clone of it. The permit notices this at
    /// its next attempt to renew the lease.
    pub fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("is_lost", &self.is_lost()).finish_non_exhaustive()
    }
}

/// How many attempts are made in a third of a lease while the store does not answer and applies nothing.
const ATTEMPTS: u32 = 8;

/// Renews the leases until the permit is released or dropped, and then releases them.
async fn hold<S: CounterStore, C: Clock>(
    limiter: Arc<RateLimiter<S, C>>,
    decision: Arc<Decision<'static>>,
    mut released: oneshot::Receiver<oneshot::Sender<Result<(), StoreError>>>,
    is_lost: Arc<AtomicBool>,
) {
    let third = decision.renewal_interval();
    // A part of it has passed if the caller has waited since, for its turn in a queue.
    let mut pause = third.saturating_sub(limiter.passed_since(&decision));
    let reply = loop {
        if let Ok(reply) = tokio::time::timeout(pause, &mut released).await {
            break reply;
        }
        let begun = Instant::now();
        pause = match limiter.renew(&decision).await {
            Ok(true) => third,
            // Several more attempts before the lease ends.
            Err(error) if error.applied() == Applied::No => third / ATTEMPTS,
            // It may have charged units that nobody knows of until their lease ends. If attempts begin this far apart, a log
            // holds at most `RENEWALS` times what the permit holds.
            Err(_) => (third * 3 / 4).saturating_sub(begun.elapsed()),
            Ok(false) => {
                is_lost.store(true, Ordering::Relaxed);
                Duration::MAX
            }
        };
    };
    let mut reply = reply.ok();
    // After the longest lease nothing is held any more.
    let end = Instant::now() + decision.lease_lengths().max().unwrap_or_default();
    loop {
        let outcome = limiter.release(&decision).await;
        // A repeat of a release that was applied would take units of others that were charged at the same instant.
        let is_open = matches!(&outcome, Err(error) if error.applied() == Applied::No);
        if let Some(reply) = reply.take() {
            // If the receiver is gone, nobody waits for the outcome.
            let _ = reply.send(outcome);
        }
        if !is_open || Instant::now() >= end {
            break;
        }
        tokio::time::sleep(third / ATTEMPTS).await;
    }
}
