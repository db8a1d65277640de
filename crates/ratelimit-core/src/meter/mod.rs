//! The three meters: what is counted, and the pure state transition of each.
//!
//! Nothing here reads a clock, does I/O or depends on a store. A store that runs in a Rust process calls these
//! functions on its state. A script or an SQL statement does the same arithmetic on its server, and tests compare it
//! with them, decision by decision.

mod bucket;
mod bucket_state;
mod bytes;
mod charged;
mod check;
mod divisor;
mod log;
mod slice;
mod window;

pub use bucket::Bucket;
pub(crate) use bucket_state::MAX_DEBT;
pub use bucket_state::{BucketState, Debt};
pub use bytes::CorruptState;
pub use charged::Charged;
pub(crate) use check::{check_period, check_units};
pub use log::{Log, LogSight, LogState};
pub(crate) use slice::decide_costs;
pub use slice::{decide, refund};
pub use window::{Window, WindowState};

pub use crate::bounds::{MAX_LOG_UNITS, MAX_PERIOD_NANOS, MAX_RATES, MAX_SEGMENTS, MAX_UNITS};

use crate::{Mode, Receipt, Timestamp, Verdict};

/// How a meter counts. Plain data, which you can send to any server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// A count for each segment of time: fixed window, sliding-window counter, segmented sliding window.
    Window(Window),
    /// One instant, the theoretical arrival time: token bucket (GCRA), leaky bucket as meter and as queue.
    Bucket(Bucket),
    /// The instants of all admitted units: sliding log.
    Log(Log),
}

/// The state that a store keeps for one meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// State of a [`Meter::Window`].
    Window(WindowState),
    /// State of a [`Meter::Bucket`].
    Bucket(BucketState),
    /// State of a [`Meter::Log`].
    Log(LogState),
}

impl Meter {
    /// The state of a meter that has never been charged.
    pub fn fresh(&self) -> State {
        match self {
            Self::Window(window) => State::Window(window.fresh()),
            Self::Bucket(_) => State::Bucket(Bucket::fresh()),
            Self::Log(_) => State::Log(LogState::default()),
        }
    }

    /// Whether `state` is of this meter's kind and shape.
    pub fn owns(&self, state: &State) -> bool {
        match (self, state) {
            (Self::Window(window), State::Window(state)) => window.owns(state),
            (Self::Bucket(_), State::Bucket(_)) | (Self::Log(_), State::Log(_)) => true,
            _ => false,
        }
    }

    /// Returns whether `cost` units may be taken at `now`. A cost of zero always fits, except at a [gate](Bucket::gate).
    ///
    /// A `state` of another kind of meter is treated as a fresh one. If it comes from outside of the process, check it
    /// with [`Meter::owns`].
    pub fn fits(&self, state: &State, cost: u64, now: Timestamp) -> bool {
        match (self, state) {
            (Self::Window(window), State::Window(state)) if window.owns(state) => {
                window.fits(state, cost, now)
            }
            (Self::Bucket(bucket), State::Bucket(state)) => bucket.fits(state, cost, now),
            (Self::Log(log), State::Log(state)) => log.fits(&log.sight(state, cost, now), cost),
            _ => cost <= self.limit(),
        }
    }

    /// Charges `cost` units at `now`, whether they fit or not: call [`Meter::fits`] first, unless the charge is forced.
    pub fn charge(&self, state: &mut State, cost: u64, now: Timestamp) -> Charged {
        if !self.owns(state) {
            *state = self.fresh();
        }
        match (self, state) {
            (Self::Window(window), State::Window(state)) => window.charge(state, cost, now),
            (Self::Bucket(bucket), State::Bucket(state)) => bucket.charge(state, cost, now),
            (Self::Log(log), State::Log(state)) => log.charge(state, cost, now),
            _ => Charged { receipt: Receipt::at(now), ready_at: now },
        }
    }

    /// Decides one claim, and charges it if it is admitted and `mode` is not [`Mode::Peek`]. Returns whether it is
    /// admitted, and the verdict. Equivalent to [`Meter::fits`], [`Meter::charge`] and [`Meter::verdict`] one after
    /// another.
    #[inline]
    pub fn claim(&self, state: &mut State, cost: u64, now: Timestamp, mode: Mode) -> (bool, Verdict) {
        match (self, &mut *state) {
            (Self::Window(window), State::Window(state)) if window.owns(state) => {
                window.claim(&mut state.at, &mut state.counts, cost, now, mode)
            }
            (Self::Bucket(bucket), State::Bucket(state)) if bucket.has_one_rate_in(state) => {
                let Debt { tat, interval, .. } = &mut state.debts[0];
                let decided = bucket.claim(&mut state.at, tat, cost, now, mode);
                state.debts[0] = Debt::only(*tat, *interval);
                decided
            }
            _ => self.claim_in_steps(state, cost, now, mode),
        }
    }

    fn claim_in_steps(&self, state: &mut State, cost: u64, now: Timestamp, mode: Mode) -> (bool, Verdict) {
        let admitted = mode == Mode::Force || self.fits(state, cost, now);
        let charging = admitted && cost > 0 && mode != Mode::Peek;
        let charged = charging.then(|| self.charge(state, cost, now));
        (admitted, self.verdict(state, cost, now, charged))
    }

    /// Computes the figures of an answer from the state *after* the decision.
    ///
    /// `charged` is the result of [`Meter::charge`], or `None` if nothing was charged. In that case the verdict's
    /// `fits` says whether `cost` alone would have fitted.
    pub fn verdict(&self, state: &State, cost: u64, now: Timestamp, charged: Option<Charged>) -> Verdict {
        match (self, state) {
            (Self::Window(window), State::Window(state)) if window.owns(state) => {
                window.verdict(state, cost, now, charged)
            }
            (Self::Bucket(bucket), State::Bucket(state)) => bucket.verdict(state, cost, now, charged),
            (Self::Log(log), State::Log(state)) => log.verdict(
                &log.sight(state, if charged.is_some() { 0 } else { cost }, now),
                cost,
                now,
                charged,
            ),
            _ => self.verdict(&self.fresh(), cost, now, charged),
        }
    }

    /// Refunds `cost` units that this meter has charged with `receipt`. For a bucket, `self` must have the interval of that
    /// charge.
    ///
    /// Units that have left the meter by `now` (their window has passed, they have drained from the bucket) are not
    /// returned, because they would be available twice. After several refunds to one bucket this is not quite exact:
    /// the page *Algorithms* of the project's documentation describes the case and its bound. In a queue, a refund returns
    /// nothing if others would lose their turns: see [`Bucket::unqueued`].
    pub fn refund(&self, state: &mut State, cost: u64, receipt: Receipt, now: Timestamp) {
        match (self, state) {
            (Self::Window(window), State::Window(state)) if window.owns(state) => {
                window.refund(state, cost, receipt);
            }
            (Self::Bucket(bucket), State::Bucket(state)) => bucket.refund(state, cost, receipt, now),
            (Self::Log(log), State::Log(state)) => log.refund(state, cost, receipt),
            _ => {}
        }
    }

    /// The receipt of the newest charge of this meter, if it is as good as new from `reset_at` on
    /// ([`Verdict::reset_at`]).
    pub(crate) fn newest(&self, reset_at: Timestamp) -> Timestamp {
        let back = match self {
            Self::Window(window) => window.segment().saturating_mul(u64::from(window.carried()) + 1),
            Self::Bucket(_) => 0,
            Self::Log(log) => log.window() + 1,
        };
        Timestamp::derived(reset_at.as_nanos().saturating_sub(back))
    }

    /// The instant from which `state` decides like a fresh one, and may be forgotten: the epoch for a state that this meter
    /// does not [own](Self::owns).
    ///
    /// A store keeps the state a little longer, for callers whose clock is behind: see
    /// [`CounterStore`](crate::CounterStore#memory).
    pub fn forget_at(&self, state: &State) -> Timestamp {
        match (self, state) {
            (Self::Window(window), State::Window(state)) if window.owns(state) => {
                window.reset_at(state).max(state.at)
            }
            (Self::Bucket(bucket), State::Bucket(state)) => bucket.forget_at(state),
            (Self::Log(log), State::Log(state)) => log.reset_at(state),
            _ => Timestamp::EPOCH,
        }
    }

    /// Returns the same meter with the highest possible limit. Peek at it to learn how much was charged, even beyond the
    /// real limit: [`Verdict::limit`] minus [`Verdict::remaining`]. A log stays as it is: it rarely contains more units than its
    /// limit.
    #[must_use]
    pub fn widest(&self) -> Self {
        let widest = match self {
            Self::Window(window) => {
                let (segment, carried, offset) = (window.segment(), window.carried(), window.offset());
                Window::new(MAX_UNITS, segment, carried, window.strict(), offset).map(Self::Window)
            }
            Self::Bucket(bucket) => Ok(Self::Bucket(bucket.widest())),
            Self::Log(log) => Ok(Self::Log(*log)),
        };
        widest.unwrap_or(*self)
    }

    /// The maximum number of units that can be taken at once.
    pub fn limit(&self) -> u64 {
        match self {
            Self::Window(window) => window.limit(),
            Self::Bucket(bucket) => bucket.burst(),
            Self::Log(log) => log.limit(),
        }
    }
}
