//! The stored form of a meter: forty bytes.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, Meter, Window};
use ratelimit_core::store::Verdict;

use super::fingerprint::SCALE;
use super::{CompactState, Demand, Fingerprint, InPlace, expiry};

/// A meter: 90 bits of its fingerprint, the scale of its limit, when it may be removed, and its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// The lower half of the fingerprint.
    pub low: u64,
    /// The [kept](Fingerprint::kept) bits of the upper half, and in the lowest six bits the scale of the limit: its binary
    /// logarithm, rounded down.
    high: u32,
    /// The second of its [`expiry`].
    pub forget_at: u32,
    /// The state, or the number of a [large](super::LargeStates) one.
    pub state: CompactState,
}

impl Slot {
    /// A meter without charges, and how to decide a claim on it; `None` if its state is too large for a slot.
    #[inline(always)]
    pub fn fresh(fingerprint: Fingerprint, meter: &Meter, now: Timestamp) -> Option<(Self, InPlace<'_>)> {
        let (state, way) = CompactState::fresh(meter, now)?;
        Some((Self::new(fingerprint, state), way))
    }

    /// A meter with this state, whose expiry is not set yet.
    #[inline]
    pub fn new(fingerprint: Fingerprint, state: CompactState) -> Self {
        Self { low: fingerprint.low, high: fingerprint.kept(), forget_at: 0, state }
    }

    /// The [kept](Fingerprint::kept) bits of its fingerprint.
    #[inline]
    pub fn kept(&self) -> u32 {
        self.high & !SCALE
    }

    /// Records the limit of the meter, for [`used`](Self::used).
    #[inline]
    pub fn set_limit(&mut self, limit: u64) {
        self.high = self.kept() | limit.max(1).ilog2();
    }

    /// How much of the limit was used at the newest charge: from zero to [`ALL`](Self::ALL), which means more than half of
    /// the limit, and always if all of it was. Of a window all units count, also those that are about to leave it.
    #[inline]
    pub fn used(&self) -> u64 {
        let scale = self.high & SCALE;
        self.state.units().min(1 << scale) << (63 - scale) >> 47
    }

    /// All of the limit is [used](Self::used).
    pub const ALL: u64 = 1 << 16;

    /// Whether it is the meter with this fingerprint.
    #[inline]
    pub fn is(&self, fingerprint: Fingerprint) -> bool {
        self.low == fingerprint.low && self.kept() == fingerprint.kept()
    }

    /// Decides a claim, and charges it if it is admitted and is not a peek; `None` if it cannot be decided [in
    /// place](CompactState::in_place).
    #[inline]
    pub fn claim(&mut self, demand: Demand<'_>) -> Option<(bool, Verdict)> {
        let decided = self.state.claim(demand.meter, demand.cost, demand.now, demand.mode)?;
        Some(self.decided(decided, demand))
    }

    /// The same for a window whose state is in this slot.
    #[inline(always)]
    pub fn claim_window(&mut self, window: &Window, demand: Demand<'_>) -> (bool, Verdict) {
        let decided = self.state.claim_window(window, demand.cost, demand.now, demand.mode);
        self.decided(decided, demand)
    }

    /// The same for a bucket whose state is in this slot.
    #[inline(always)]
    pub fn claim_bucket(&mut self, bucket: &Bucket, demand: Demand<'_>) -> (bool, Verdict) {
        let decided = self.state.claim_bucket(bucket, demand.cost, demand.now, demand.mode);
        self.decided(decided, demand)
    }

    /// Updates the expiry if the claim was charged.
    #[inline(always)]
    pub fn decided(&mut self, (admitted, verdict): (bool, Verdict), demand: Demand<'_>) -> (bool, Verdict) {
        if admitted && demand.charges() {
            // After a charge this is `Meter::forget_at`, already computed.
            expiry::keep_until(&mut self.forget_at, verdict.reset_at);
        }
        (admitted, verdict)
    }

    /// Whether both belong to the same meter.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        self.low == other.low && self.kept() == other.kept()
    }
}
