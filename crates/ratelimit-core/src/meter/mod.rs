//! The three meters: what is counted, and the one pure transition of each.
//!
//! Nothing here reads a clock, does I/O or knows a store. A store that runs in a Rust process calls these functions on
//! the state that it holds; a script or an SQL statement does the same arithmetic on its server and is checked
//! against them, decision by decision.

mod bucket;
mod bytes;
mod divisor;
mod log;
mod slice;
mod window;

pub use bucket::{Bucket, BucketState, Debt, MAX_RATES};
pub use bytes::CorruptState;
pub use log::{Log, LogSight, LogState};
pub use slice::{decide, refund};
pub use window::{Window, WindowState};

use crate::{LimitError, Mode, Timestamp, Verdict};

/// The most units a limit may allow, a claim may cost and a meter ever counts: 999,999,999,999,999.
///
/// It is the largest integer that an HTTP structured field can carry, and leaves every store room to add exactly
/// (a script on Redis has 53 bits).
pub const MAX_UNITS: u64 = 999_999_999_999_999;

/// The most units a sliding log may hold: it keeps eight bytes for each.
pub const MAX_LOG_UNITS: u64 = 1_000_000;

/// The longest period of a limit: 3,660 days (ten years).
pub const MAX_PERIOD_NANOS: u64 = 3_660 * 86_400 * 1_000_000_000;

/// The most segments that a segmented window may be divided into.
pub const MAX_SEGMENTS: u32 = 3_600;

/// How a meter counts. Plain data that can travel to any store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meter {
    /// A count for each segment of time: fixed window, sliding-window counter, segmented sliding window.
    Window(Window),
    /// One instant, the theoretical arrival time: token bucket (GCRA), leaky bucket as meter and as queue.
    Bucket(Bucket),
    /// The instants of all admitted units: sliding log.
    Log(Log),
}

/// What a store keeps for one meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// State of a [`Meter::Window`].
    Window(WindowState),
    /// State of a [`Meter::Bucket`].
    Bucket(BucketState),
    /// State of a [`Meter::Log`].
    Log(LogState),
}

/// What a charge leaves behind for the answer and for a later refund.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Charged {
    /// What [`Meter::refund`] needs to find this charge again.
    pub receipt: Timestamp,
    /// When the charged units may be used: at once, or for a leaky queue when their turn comes.
    pub ready_at: Timestamp,
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

    /// Whether `cost` units may be taken at `now`. Costs of zero always fit.
    ///
    /// A `state` of another meter's kind is taken for a fresh one; check with [`Meter::owns`] where it came from
    /// outside of the process.
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

    /// Takes `cost` units at `now`, whether they fit or not: ask [`Meter::fits`] first, unless the charge is forced.
    pub fn charge(&self, state: &mut State, cost: u64, now: Timestamp) -> Charged {
        if !self.owns(state) {
            *state = self.fresh();
        }
        match (self, state) {
            (Self::Window(window), State::Window(state)) => window.charge(state, cost, now),
            (Self::Bucket(bucket), State::Bucket(state)) => bucket.charge(state, cost, now),
            (Self::Log(log), State::Log(state)) => log.charge(state, cost, now),
            _ => Charged { receipt: now, ready_at: now },
        }
    }

    /// One claim from end to end: whether it is admitted, and the verdict. The same as [`Meter::fits`],
    /// [`Meter::charge`] and [`Meter::verdict`] one after another, in one go.
    #[inline]
    pub fn claim(&self, state: &mut State, cost: u64, now: Timestamp, mode: Mode) -> (bool, Verdict) {
        match (self, &mut *state) {
            (Self::Window(window), State::Window(state)) if window.owns(state) => {
                window.claim(&mut state.at, &mut state.counts, cost, now, mode)
            }
            (Self::Bucket(bucket), State::Bucket(state)) if bucket.is_only_rate_of(state) => {
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

    /// The figures of an answer, worked out from the state *after* the decision.
    ///
    /// `charged` is what [`Meter::charge`] gave back, or `None` if nothing was charged. Then `fits` of the verdict
    /// says whether `cost` alone would have fitted.
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

    /// Gives back `cost` units that were charged with `receipt` by this meter: of a bucket, at this interval.
    ///
    /// Units that have left the meter by `now` (their window has passed, they have drained from the bucket) are not
    /// given back: that would hand them out twice. Of a bucket that is not quite so after several refunds: the page
    /// *Algorithms* of the project's documentation has the case, and its bound.
    pub fn refund(&self, state: &mut State, cost: u64, receipt: Timestamp, now: Timestamp) {
        match (self, state) {
            (Self::Window(window), State::Window(state)) if window.owns(state) => {
                window.refund(state, cost, receipt);
            }
            (Self::Bucket(bucket), State::Bucket(state)) => bucket.refund(state, cost, receipt, now),
            (Self::Log(log), State::Log(state)) => log.refund(state, cost, receipt),
            _ => {}
        }
    }

    /// The instant from which `state` decides like a fresh one, and may be forgotten.
    ///
    /// A store keeps it a little longer, for claims whose clock is behind: see
    /// [`CounterStore`](crate::CounterStore#memory).
    pub fn forget_at(&self, state: &State) -> Timestamp {
        match (self, state) {
            (Self::Window(window), State::Window(state)) => window.reset_at(state).max(state.at),
            (Self::Bucket(_), State::Bucket(state)) => state.forget_at(),
            (Self::Log(log), State::Log(state)) => log.reset_at(state),
            _ => Timestamp::EPOCH,
        }
    }

    /// The most units that can ever be taken at once.
    pub fn limit(&self) -> u64 {
        match self {
            Self::Window(window) => window.limit(),
            Self::Bucket(bucket) => bucket.burst(),
            Self::Log(log) => log.limit(),
        }
    }
}

/// Checks a number of units that a limit allows.
fn check_units(what: &'static str, units: u64, most: u64) -> Result<(), LimitError> {
    if units == 0 {
        return Err(LimitError::Zero { what });
    }
    if units > most {
        return Err(LimitError::TooLarge { what, most });
    }
    Ok(())
}

/// Checks a length of time of a limit, in nanoseconds.
fn check_period(what: &'static str, nanos: u64) -> Result<(), LimitError> {
    if nanos == 0 {
        return Err(LimitError::Zero { what });
    }
    if nanos > MAX_PERIOD_NANOS {
        return Err(LimitError::TooLong { what });
    }
    Ok(())
}
