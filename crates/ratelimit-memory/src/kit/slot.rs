//! A meter in forty bytes, and how a claim is decided in it.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, Meter, Window};
use ratelimit_core::store::{Claim, Mode, Verdict};

use super::compact_state::{BUCKET, INSTANT_MASK, KIND_SHIFT};
use super::fingerprint::SCALE;
use super::{CompactState, Fingerprint, expiry};

/// A claim without its meter's name, which is not needed after the search for the meter.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'m> {
    /// As [`Claim::cost`].
    pub cost: u64,
    /// As [`Claim::meter`].
    pub meter: &'m Meter,
    /// When it is made.
    pub now: Timestamp,
    /// Whether and how to charge.
    pub mode: Mode,
}

impl<'m> Demand<'m> {
    /// Leaves out the name.
    pub fn new(claim: &'m Claim<'_>, now: Timestamp, mode: Mode) -> Self {
        Self { cost: claim.cost, meter: &claim.meter, now, mode }
    }

    /// Whether it charges its meter if it is admitted.
    #[inline]
    pub fn charges(&self) -> bool {
        self.cost > 0 && self.mode != Mode::Peek
    }

    /// Whether it fits a meter that was never charged.
    #[inline]
    pub fn fits_fresh(&self) -> bool {
        self.mode == Mode::Force || self.cost <= self.meter.limit()
    }
}

/// A meter: 90 bits of its fingerprint, the scale of its limit, when it may be removed, and its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// The lower half of the fingerprint.
    pub low: u64,
    /// The [kept](Fingerprint::kept) bits of the upper half, and in the lowest six bits the scale of the limit: its binary
    /// logarithm, rounded down.
    kept_and_scale: u32,
    /// The second of its [`expiry`].
    pub forget_at: u32,
    /// The state, or the number of a [large](super::LargeStates) one that is elsewhere.
    pub state: CompactState,
}

/// A meter whose state is in its slot, and so decides there.
#[derive(Debug)]
pub enum SlotMeter<'m> {
    /// By [`Slot::claim_window`].
    Window(&'m Window),
    /// By [`Slot::claim_bucket`].
    Bucket(&'m Bucket),
}

impl Slot {
    /// A meter without charges; `None` if its state is too large for a slot.
    #[inline(always)]
    pub fn fresh(fingerprint: Fingerprint, meter: &Meter, now: Timestamp) -> Option<(Self, SlotMeter<'_>)> {
        // Unlike `Meter::fresh` as of `now`, so that no time has passed since.
        let now = now.as_nanos();
        let (words, in_slot) = match meter {
            Meter::Window(window) if u64::from(window.carried()) < BUCKET => {
                ([now | u64::from(window.carried()) << KIND_SHIFT, 0, 0], SlotMeter::Window(window))
            }
            Meter::Bucket(bucket) => {
                ([now | BUCKET << KIND_SHIFT, now, bucket.interval()], SlotMeter::Bucket(bucket))
            }
            _ => return None,
        };
        Some((Self::new(fingerprint, CompactState(words)), in_slot))
    }

    /// A meter with this state, whose expiry is not set yet.
    #[inline]
    pub fn new(fingerprint: Fingerprint, state: CompactState) -> Self {
        Self { low: fingerprint.low, kept_and_scale: fingerprint.kept(), forget_at: 0, state }
    }

    /// Whether it is the meter with this fingerprint.
    #[inline]
    pub fn is(&self, fingerprint: Fingerprint) -> bool {
        self.low == fingerprint.low && self.kept() == fingerprint.kept()
    }

    /// The claim's meter, if it can be decided in this slot: not if the state is elsewhere, is of another kind or shape than
    /// the claim's, or drains at another rate.
    #[inline(always)]
    pub fn in_slot<'m>(&self, meter: &'m Meter) -> Option<SlotMeter<'m>> {
        let [first, _, interval] = self.state.0;
        let kind = first >> KIND_SHIFT;
        match meter {
            // The kind of a window is the number of segments that it carries.
            Meter::Window(window) => {
                (kind == u64::from(window.carried()) && kind < BUCKET).then_some(SlotMeter::Window(window))
            }
            Meter::Bucket(bucket) if kind == BUCKET && interval == bucket.interval() => {
                Some(SlotMeter::Bucket(bucket))
            }
            _ => None,
        }
    }

    /// Decides a claim, and charges it if it is admitted and is not a peek; `None` if it cannot be decided [in this
    /// slot](Self::in_slot).
    #[inline]
    pub fn claim(&mut self, demand: Demand<'_>) -> Option<(bool, Verdict)> {
        Some(match self.in_slot(demand.meter)? {
            SlotMeter::Window(window) => self.claim_window(window, demand),
            SlotMeter::Bucket(bucket) => self.claim_bucket(bucket, demand),
        })
    }

    /// The same for a window.
    #[inline(always)]
    pub fn claim_window(&mut self, window: &Window, demand: Demand<'_>) -> (bool, Verdict) {
        let Demand { cost, now, mode, .. } = demand;
        let [first, counts @ ..] = &mut self.state.0;
        let (kind, mut at) = (*first & !INSTANT_MASK, Timestamp::from_nanos(*first & INSTANT_MASK));
        let decided = window.claim(&mut at, counts, cost, now, mode);
        *first = at.as_nanos() | kind;
        self.record(decided, demand)
    }

    /// The same for a bucket.
    #[inline(always)]
    pub fn claim_bucket(&mut self, bucket: &Bucket, demand: Demand<'_>) -> (bool, Verdict) {
        let Demand { cost, now, mode, .. } = demand;
        let [first, second, _] = &mut self.state.0;
        let (mut at, mut tat) = (Timestamp::from_nanos(*first & INSTANT_MASK), Timestamp::derived(*second));
        let decided = bucket.claim(&mut at, &mut tat, cost, now, mode);
        (*first, *second) = (at.as_nanos() | BUCKET << KIND_SHIFT, tat.as_nanos());
        self.record(decided, demand)
    }

    /// Updates the expiry and the scale of the limit if the claim was charged.
    #[inline(always)]
    pub fn record(&mut self, (admitted, verdict): (bool, Verdict), demand: Demand<'_>) -> (bool, Verdict) {
        if admitted && demand.charges() {
            // After a charge this is `Meter::forget_at`, already computed.
            expiry::keep_until(&mut self.forget_at, verdict.reset_at);
            self.set_limit(verdict.limit);
        }
        (admitted, verdict)
    }

    /// The [kept](Fingerprint::kept) bits of its fingerprint.
    #[inline]
    pub fn kept(&self) -> u32 {
        self.kept_and_scale & !SCALE
    }

    /// Records the limit of the meter, for [`used`](Self::used).
    #[inline]
    pub fn set_limit(&mut self, limit: u64) {
        self.kept_and_scale = self.kept() | limit.max(1).ilog2();
    }

    /// How much of the limit was used at the newest charge: from zero to [`ALL`](Self::ALL), which means more than half of
    /// the limit, and always if all of it was. Of a window all units count, also those that are about to leave it.
    #[inline]
    pub fn used(&self) -> u64 {
        let scale = self.kept_and_scale & SCALE;
        self.state.units().min(1 << scale) << (63 - scale) >> 47
    }

    /// All of the limit is [used](Self::used).
    pub const ALL: u64 = 1 << 16;

    /// Whether both belong to the same meter.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        self.low == other.low && self.kept() == other.kept()
    }
}
