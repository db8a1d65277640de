//! The circuit: closed, open until an instant, or half-open with one probe in progress.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::BreakerConfig;
use super::refusal::{Failed, RefusedCall};
use super::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::layers::observe;
use crate::random::random_up_to;
use crate::{Clock, ErrorKind, StoreError, Timestamp};

/// The value of [`Circuit::until`] while the circuit is closed. The end of a pause is never zero.
const CLOSED: u64 = 0;

#[derive(Debug)]
pub(super) struct Circuit {
    config: BreakerConfig,
    /// When the next probe may begin. Written only under the lock; a closed circuit is read without it.
    until: AtomicU64,
    /// Failures in succession while it is closed. Written only under the lock.
    failures: AtomicU32,
    /// How often the circuit has closed. The outcome of a call that began before it last closed is ignored.
    generation: AtomicU64,
    opened: Mutex<Opened>,
}

#[derive(Debug, Default)]
struct Opened {
    /// What the errors of refused calls report. `None` if the circuit has never been open.
    failed: Option<Arc<Failed>>,
    /// The longest possible duration of the present pause.
    pause: Duration,
    probing: bool,
}

/// What the outcome of a call shows about the store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Outcome<'e> {
    /// The store answers.
    Answered,
    /// The store is unavailable.
    Failed(&'e StoreError),
    /// The outcome shows neither.
    Unknown,
}

impl<'e> Outcome<'e> {
    pub(super) fn of<T>(result: &'e Result<T, StoreError>) -> Self {
        match result {
            Ok(_) => Self::Answered,
            Err(error) => match error.kind() {
                ErrorKind::Unreachable
                | ErrorKind::Timeout
                | ErrorKind::Denied
                | ErrorKind::ReadOnly
                | ErrorKind::Server => Self::Failed(error),
                // The server has answered, about this meter or this kind of call.
                ErrorKind::Full | ErrorKind::Corrupt | ErrorKind::Unsupported => Self::Answered,
                // The call may not have reached the server.
                ErrorKind::Contended
                | ErrorKind::Misconfigured
                | ErrorKind::CircuitOpen
                | ErrorKind::Overloaded => Self::Unknown,
            },
        }
    }
}

/// A call that may reach the store. If it is dropped before it has ended, the outcome is unknown.
#[derive(Debug)]
pub(super) struct Call<'c, C: Clock> {
    circuit: &'c Circuit,
    clock: &'c C,
    generation: u64,
    is_probe: bool,
}

impl Circuit {
    pub(super) fn new(config: BreakerConfig) -> Self {
        let config = BreakerConfig {
            failures: config.failures.max(1),
            // A pause of zero would let all calls through as probes.
            first_pause: config.first_pause.max(Duration::from_millis(1)),
            longest_pause: config.longest_pause.max(config.first_pause).max(Duration::from_millis(1)),
        };
        observe::no_changes();
        Self {
            config,
            until: AtomicU64::new(CLOSED),
            failures: AtomicU32::new(0),
            generation: AtomicU64::new(0),
            opened: Mutex::default(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.until.load(Ordering::Acquire) == CLOSED
    }

    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a call through if the circuit is closed, or as the only probe if a pause is over.
    #[inline]
    pub(super) fn enter<'c, C: Clock>(&'c self, clock: &'c C) -> Result<Call<'c, C>, StoreError> {
        // Loaded first: a call that begins just before the circuit closes has the older generation and is ignored.
        let generation = self.generation.load(Ordering::Acquire);
        let call = Call { circuit: self, clock, generation, is_probe: false };
        if self.is_closed() { Ok(call) } else { self.probe(call) }
    }

    #[cold]
    fn probe<'c, C: Clock>(&self, call: Call<'c, C>) -> Result<Call<'c, C>, StoreError> {
        let now = call.clock.now();
        let mut opened = self.opened();
        let until = self.until.load(Ordering::Acquire);
        if until == CLOSED {
            return Ok(call);
        }
        if now.as_nanos() >= until && !opened.probing {
            opened.probing = true;
            return Ok(Call { is_probe: true, ..call });
        }
        let failed = opened.failed.clone();
        drop(opened);
        let refusal = RefusedCall { failed, now, until: Timestamp::from_nanos(until) };
        Err(StoreError::new("breaker", ErrorKind::CircuitOpen, "").with_lazy_message(refusal))
    }

    fn answered(&self, generation: u64) {
        // Without a failure there is nothing to write: the common case.
        if self.failures.load(Ordering::Relaxed) == 0 {
            return;
        }
        let _lock = self.opened();
        if self.is_closed() && generation == self.generation.load(Ordering::Relaxed) {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    fn failed(&self, generation: u64, error: &StoreError, now: impl FnOnce() -> Timestamp) {
        let mut opened = self.opened();
        if !self.is_closed() || generation != self.generation.load(Ordering::Relaxed) {
            return;
        }
        let failures = self.failures.load(Ordering::Relaxed).saturating_add(1);
        self.failures.store(failures, Ordering::Relaxed);
        if failures >= self.config.failures {
            let now = now();
            opened.failed = Some(Arc::new(Failed { since: now, last: error.clone() }));
            opened.pause = self.config.first_pause;
            self.pause(&opened, now);
            drop(opened);
            observe::opened(error);
        }
    }

    /// Begins a pause.
    fn pause(&self, opened: &Opened, now: Timestamp) {
        let least = opened.pause / 2;
        let until = now + least + random_up_to(opened.pause.saturating_sub(least));
        self.until.store(until.as_nanos().max(CLOSED + 1), Ordering::Release);
    }

    fn probed(&self, outcome: Outcome<'_>, now: impl FnOnce() -> Timestamp) {
        let mut opened = self.opened();
        opened.probing = false;
        match outcome {
            Outcome::Answered => {
                self.failures.store(0, Ordering::Relaxed);
                self.generation.fetch_add(1, Ordering::AcqRel);
                self.until.store(CLOSED, Ordering::Release);
                drop(opened);
                observe::closed();
            }
            Outcome::Failed(error) => {
                let now = now();
                let since = opened.failed.as_ref().map_or(now, |failed| failed.since);
                opened.failed = Some(Arc::new(Failed { since, last: error.clone() }));
                opened.pause = opened.pause.saturating_mul(2).min(self.config.longest_pause);
                self.pause(&opened, now);
                drop(opened);
                observe::still_open(error);
            }
            // The pause is as long as before, because the caller may have had a short deadline.
            Outcome::Unknown => self.pause(&opened, now()),
        }
    }
}

impl<C: Clock> Call<'_, C> {
    #[inline]
    pub(super) fn ended(mut self, outcome: Outcome<'_>) {
        let now = || self.clock.now();
        if std::mem::take(&mut self.is_probe) {
            return self.circuit.probed(outcome, now);
        }
        match outcome {
            Outcome::Answered => self.circuit.answered(self.generation),
            Outcome::Failed(error) => self.circuit.failed(self.generation, error, now),
            Outcome::Unknown => {}
        }
    }
}

impl<C: Clock> Drop for Call<'_, C> {
    /// If the caller drops a probe, another call can be the probe after a pause.
    #[inline]
    fn drop(&mut self) {
        if self.is_probe {
            self.circuit.probed(Outcome::Unknown, || self.clock.now());
        }
    }
}
