//! The places at which a store can go wrong.

use std::fmt;

use ratelimit_core::{
    Answer, CLOCK_SLACK, Claims, Clock, Decisions, MeterId, Mode, Refund, State, SystemClock, Time,
    Timestamp, decide, refund,
};

/// What a store is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A slice by itself.
    Claim,
    /// A slice of a batch.
    Batch,
    /// Units to give back.
    Refund,
    /// Meters to forget.
    Reset,
}

/// A call when its states have been read.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Which call.
    pub call: Call,
    /// The claims.
    pub claims: &'a Claims<'a>,
    /// The states of their meters.
    pub states: &'a [Option<State>],
    /// Whether one of them is there still, but has expired.
    pub expired: bool,
}

/// A state that is written.
#[derive(Clone, Copy, Debug)]
pub struct Write {
    /// By which call.
    pub call: Call,
    /// In which mode.
    pub mode: Mode,
    /// Whether something was charged.
    pub charged: bool,
    /// Its place in the slice or among the refunds.
    pub place: usize,
    /// The call's instant.
    pub now: Timestamp,
    /// When it cannot influence anything any more.
    pub forget_at: Timestamp,
    /// The same of the first meter in the slice.
    pub first_forget_at: Timestamp,
    /// Until when the former state was kept.
    pub former: Option<Timestamp>,
}

/// The places at which a store can go wrong. As they stand here they are right.
pub trait Flaw: fmt::Debug + Default + Send + Sync + 'static {
    /// What it promises of its decisions.
    const DECISIONS: Decisions = Decisions::Exact;
    /// Whose time it promises to decide by; [`instant`](Self::instant) has to do so.
    const TIME: Time = Time::Caller;
    /// The most meters; the oldest goes when there are more.
    const MOST_METERS: usize = usize::MAX;

    /// Under which name a meter is stored.
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        id.to_bytes()
    }

    /// Under which name this call looks for a meter.
    fn name_in(&self, _call: Call, id: &MeterId<'_>) -> Vec<u8> {
        self.name(id)
    }

    /// The instant at which a call happens.
    fn instant(&self, _call: Call, now: Timestamp) -> Timestamp {
        now
    }

    /// Whether it reads and writes as two steps, with others between them.
    fn torn(&self, _look: &Look<'_>) -> bool {
        false
    }

    /// Whether refunds read and write as two steps.
    fn torn_refund(&self) -> bool {
        false
    }

    /// Whether the call takes a lock that a dropped future does not give back.
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

    /// What is kept of a state.
    fn kept(&self, state: State) -> State {
        state
    }

    /// Until when a meter is kept that is written.
    fn keep_until(&self, write: &Write) -> Timestamp {
        write.forget_at + CLOCK_SLACK
    }

    /// Gives units back.
    fn refund(&self, given: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
        refund(&given.meter, state, given.cost, given.receipt, now);
    }

    /// Whether a reset of `name` forgets the meter stored as `other`.
    fn resets(&self, name: &[u8], other: &[u8]) -> bool {
        name == other
    }

    /// Whether a refund or a reset goes on after the meter in this place, which was known or not, and got so many units.
    fn goes_on(&self, _call: Call, _place: usize, _known: bool, _cost: u64) -> bool {
        true
    }

    /// In which order the slices of a batch are decided.
    fn order(&self, count: usize) -> Vec<usize> {
        (0..count).collect()
    }
}

/// No flaw at all.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sound;

impl Flaw for Sound {}

/// No flaw either, by a clock of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoundByServer;

impl Flaw for SoundByServer {
    const TIME: Time = Time::Server;

    fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
        SystemClock::new().now()
    }
}
