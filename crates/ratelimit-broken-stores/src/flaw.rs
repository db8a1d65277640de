//! The operations of a store that can have a bug.

use std::fmt;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State, decide, refund};
use ratelimit_core::store::{Answer, CLOCK_SLACK, Claim, Claims, Decisions, MeterId, Mode, Refund, Time};
use tokio::time::Instant;

/// The kinds of call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Call {
    /// A single slice.
    Claim,
    /// A slice of a batch.
    Batch,
    /// A refund.
    Refund,
    /// A reset.
    Reset,
}

/// A call after it has read the states.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Look<'a> {
    /// The kind of the call.
    pub call: Call,
    /// The claims.
    pub claims: &'a Claims<'a>,
    /// The states of their meters.
    pub states: &'a [Option<State>],
    /// Whether one of the meters has expired, but is still stored.
    pub expired: bool,
}

/// The write of a state.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Write {
    /// The kind of the call.
    pub call: Call,
    /// The mode of the call.
    pub mode: Mode,
    /// Whether something was charged.
    pub charged: bool,
    /// The index in the slice or among the refunds.
    pub place: usize,
    /// The units of the claim or of the refund.
    pub cost: u64,
    /// The meter that the call gave.
    pub meter: Meter,
    /// The instant of the call.
    pub now: Timestamp,
    /// The instant from which on the state no longer influences a decision.
    pub forget_at: Timestamp,
    /// The same if only the limit of this call counted: another lease may be longer.
    pub own_forget_at: Timestamp,
    /// When the units of a bucket will have drained at its fastest rate; `None` for other meters.
    pub tat: Option<Timestamp>,
    /// When the units of the slowest rate of a bucket will have drained; `None` for other meters.
    pub slowest_tat: Option<Timestamp>,
    /// [`forget_at`](Self::forget_at) of the first meter of the slice.
    pub first_forget_at: Timestamp,
    /// [`forget_at`](Self::forget_at) of the last meter of the slice.
    pub last_forget_at: Timestamp,
    /// The instant until which the former state was to be kept; `None` if there was none.
    pub former: Option<Timestamp>,
    /// When the server would have removed the former state.
    pub former_expiry: Option<Instant>,
    /// When the server would have removed what was stored last under this name, even if it was reset since.
    pub latest_expiry: Option<Instant>,
}

/// A bug in one or more operations of a store. The default implementations are correct.
pub trait Flaw: fmt::Debug + Default + Send + Sync + 'static {
    /// The promise about decisions.
    const DECISIONS: Decisions = Decisions::Exact;
    /// The promise about time, which [`instant`](Self::instant) has to keep.
    const TIME: Time = Time::Caller;
    /// The maximum number of meters. The store evicts the oldest beyond it.
    const MOST_METERS: usize = usize::MAX;
    /// Whether a reset also removes the meters whose name starts with the given one.
    const RESETS_PREFIXES: bool = false;

    /// The stored name of a meter.
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        id.to_bytes()
    }

    /// The name of a meter in this call.
    fn name_in(&self, _call: Call, id: &MeterId<'_>) -> Vec<u8> {
        self.name(id)
    }

    /// The instant of a call.
    fn instant(&self, _call: Call, now: Timestamp) -> Timestamp {
        now
    }

    /// The instant of a claim in this mode.
    fn instant_in(&self, call: Call, _mode: Mode, now: Timestamp) -> Timestamp {
        self.instant(call, now)
    }

    /// Whether a claim reads and writes in two steps, with other calls between them.
    fn torn(&self, _look: &Look<'_>) -> bool {
        false
    }

    /// Whether a claim in two steps writes back what the first step has read for this claim.
    fn stale(&self, _claim: &Claim<'_>) -> bool {
        true
    }

    /// Whether all refunds read and write in two steps.
    fn torn_refund(&self) -> bool {
        false
    }

    /// Whether a refund of a meter with this state reads and writes in two steps.
    fn torn_refund_of(&self, _refund: &Refund<'_>, _state: &Option<State>, _now: Timestamp) -> bool {
        self.torn_refund()
    }

    /// Whether a call with these refunds reads and writes in two steps.
    fn torn_refunds(&self, _refunds: &[Refund<'_>]) -> bool {
        false
    }

    /// Whether the call takes a lock that a dropped future does not release.
    fn latched(&self, _call: Call) -> bool {
        false
    }

    /// Decides a slice.
    fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
        decide(claims, states)
    }

    /// Whether the states are written back.
    fn writes(&self, answer: &Answer) -> bool {
        answer.charged
    }

    /// The stored form of a state.
    fn kept(&self, state: State) -> State {
        state
    }

    /// The instant until which a written meter is kept.
    fn keep_until(&self, write: &Write) -> Timestamp {
        write.forget_at + CLOCK_SLACK
    }

    /// When the server removes a written meter, whatever the time of the callers.
    fn expires(&self, _write: &Write) -> Option<Instant> {
        None
    }

    /// Refunds units.
    fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
        refund(&refunded.meter, state, refunded.cost, refunded.receipt, now);
    }

    /// Refunds units to the meter at this place of a call.
    fn refund_among(&self, refunds: &[Refund<'_>], place: usize, state: &mut Option<State>, now: Timestamp) {
        self.refund(&refunds[place], state, now);
    }

    /// Whether a reset removes a meter with this state.
    fn resets(&self, _state: &State, _now: Timestamp) -> bool {
        true
    }

    /// Whether a refund or a reset continues after the meter at this index. `known` says whether the meter was stored,
    /// `cost` how many units were refunded to it (zero for a reset).
    fn goes_on(&self, _call: Call, _place: usize, _known: bool, _cost: u64) -> bool {
        true
    }

    /// The order in which the slices of a batch are decided.
    fn order(&self, count: usize) -> Vec<usize> {
        (0..count).collect()
    }
}
