//! The stored form of a meter: forty bytes.

use ratelimit_core::{Bucket, Meter, State, Timestamp, Verdict, Window};

use crate::demand::Demand;
use crate::kit::{CompactState, Fingerprint, InPlace, expiry};

/// A meter: 96 bits of its fingerprint, when it may be removed, and its state.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    low: u64,
    pub(crate) high: u32,
    /// The second of its [`expiry`].
    pub(crate) forget_at: u32,
    state: CompactState,
}

impl Slot {
    #[inline]
    pub(crate) fn new(fingerprint: Fingerprint) -> Self {
        Self { low: fingerprint.low, high: fingerprint.kept(), ..Self::default() }
    }

    /// A meter without charges, and how to decide a claim on it; `None` if its state is too large for a slot.
    #[inline(always)]
    pub(crate) fn fresh(
        fingerprint: Fingerprint,
        meter: &Meter,
        now: Timestamp,
    ) -> Option<(Self, InPlace<'_>)> {
        let (state, way) = CompactState::fresh(meter, now)?;
        Some((Self::of_state(fingerprint, state), way))
    }

    /// A meter with this state. Do not store it, because its expiry is not set.
    #[inline]
    pub(crate) fn of_state(fingerprint: Fingerprint, state: CompactState) -> Self {
        Self { state, ..Self::new(fingerprint) }
    }

    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    pub(crate) fn state(&self) -> CompactState {
        self.state
    }

    #[inline]
    pub(crate) fn is(&self, fingerprint: Fingerprint) -> bool {
        self.low == fingerprint.low && self.high == fingerprint.kept()
    }

    /// See [`CompactState::in_place`].
    #[inline(always)]
    pub(crate) fn in_place<'m>(&self, meter: &'m Meter) -> Option<InPlace<'m>> {
        self.state.in_place(meter)
    }

    /// Decides a claim, and charges it if it is admitted and is not a peek; `None` if it cannot be decided [in
    /// place](Self::in_place).
    #[inline]
    pub(crate) fn claim(&mut self, demand: Demand<'_>) -> Option<(bool, Verdict)> {
        let decided = self.state.claim(demand.meter, demand.cost, demand.now, demand.mode)?;
        Some(self.decided(decided, demand))
    }

    /// The same for a window whose state is in this slot.
    #[inline(always)]
    pub(crate) fn claim_window(&mut self, window: &Window, demand: Demand<'_>) -> (bool, Verdict) {
        let decided = self.state.claim_window(window, demand.cost, demand.now, demand.mode);
        self.decided(decided, demand)
    }

    /// The same for a bucket whose state is in this slot.
    #[inline(always)]
    pub(crate) fn claim_bucket(&mut self, bucket: &Bucket, demand: Demand<'_>) -> (bool, Verdict) {
        let decided = self.state.claim_bucket(bucket, demand.cost, demand.now, demand.mode);
        self.decided(decided, demand)
    }

    /// Updates the expiry if the claim was charged.
    #[inline(always)]
    pub(crate) fn decided(
        &mut self,
        (admitted, verdict): (bool, Verdict),
        demand: Demand<'_>,
    ) -> (bool, Verdict) {
        if admitted && demand.charges() {
            // After a charge this is `Meter::forget_at`, already computed.
            expiry::keep_until(&mut self.forget_at, verdict.reset_at);
        }
        (admitted, verdict)
    }

    /// Whether both belong to the same meter.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.low == other.low && self.high == other.high
    }

    /// Stores a state in this slot if it is small enough. Returns whether it is.
    #[inline]
    pub(crate) fn keep(&mut self, state: &State) -> bool {
        let compact = CompactState::of(state);
        self.state = compact.unwrap_or(self.state);
        compact.is_some()
    }

    /// Refers to the state of this number, which is stored elsewhere.
    pub(crate) fn refer(&mut self, number: usize) {
        self.state = CompactState::elsewhere(number);
    }
}
