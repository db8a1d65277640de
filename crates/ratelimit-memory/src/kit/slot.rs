//! The stored form of a meter: forty bytes.

use ratelimit_core::{Bucket, Meter, Timestamp, Verdict, Window};

use super::{CompactState, Demand, Fingerprint, InPlace, expiry};

/// A meter: 96 bits of its fingerprint, when it may be removed, and its state.
#[derive(Clone, Copy, Debug, Default)]
pub struct Slot {
    /// The lower half of the fingerprint.
    pub low: u64,
    /// The [kept](Fingerprint::kept) bits of the upper half.
    pub high: u32,
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

    /// Whether it is the meter with this fingerprint.
    #[inline]
    pub fn is(&self, fingerprint: Fingerprint) -> bool {
        self.low == fingerprint.low && self.high == fingerprint.kept()
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
        self.low == other.low && self.high == other.high
    }
}
