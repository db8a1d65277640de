//! The stored form of a meter: forty bytes.

use ratelimit_core::{
    Bucket, BucketState, CLOCK_SLACK, Debt, Meter, State, Timestamp, Verdict, Window, WindowState,
};
use smallvec::{SmallVec, smallvec};

use crate::demand::Demand;
use crate::fingerprint::Fingerprint;

/// A meter: 96 bits of its fingerprint, when it may be removed, and its state in three words.
///
/// Instants take 62 bits, so two bits of the first word say what the words contain.
#[derive(Clone, Copy, Default)]
pub(crate) struct Slot {
    low: u64,
    pub(crate) high: u32,
    /// In whole seconds since the epoch, up to the year 2106; meters beyond that are never removed.
    pub(crate) forget_at: u32,
    words: [u64; 3],
}

/// The contents of a slot's words.
pub(crate) enum Content {
    /// The state.
    Here(State),
    /// The number of a state that is too large for a slot.
    Elsewhere(usize),
}

/// How a claim is decided in place.
pub(crate) enum Way<'m> {
    Window(&'m Window),
    Bucket(&'m Bucket),
}

const KIND: u32 = 62;
const INSTANT: u64 = (1 << KIND) - 1;
const ONE_COUNT: u64 = 0;
const TWO_COUNTS: u64 = 1;
const BUCKET: u64 = 2;
const ELSEWHERE: u64 = 3;

impl Slot {
    #[inline]
    pub(crate) fn new(fingerprint: Fingerprint) -> Self {
        Self { low: fingerprint.low, high: fingerprint.kept(), ..Self::default() }
    }

    /// A meter without charges, and how a claim on it is decided; `None` if its state is too large for a slot.
    #[inline(always)]
    pub(crate) fn fresh(fingerprint: Fingerprint, meter: &Meter, now: Timestamp) -> Option<(Self, Way<'_>)> {
        // As of now, so that there is no elapsed time to account for.
        let now = now.as_nanos();
        let (words, way) = match meter {
            Meter::Window(window) if u64::from(window.carried()) < BUCKET => {
                ([now | u64::from(window.carried()) << KIND, 0, 0], Way::Window(window))
            }
            Meter::Bucket(bucket) => ([now | BUCKET << KIND, now, bucket.interval()], Way::Bucket(bucket)),
            _ => return None,
        };
        Some((Self::of_words(fingerprint, words), way))
    }

    /// A meter with these words. Not for storing, because it does not know its expiry.
    #[inline]
    pub(crate) fn of_words(fingerprint: Fingerprint, words: [u64; 3]) -> Self {
        Self { words, ..Self::new(fingerprint) }
    }

    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    pub(crate) fn words(&self) -> [u64; 3] {
        self.words
    }

    #[inline]
    pub(crate) fn is(&self, fingerprint: Fingerprint) -> bool {
        self.low == fingerprint.low && self.high == fingerprint.kept()
    }

    #[inline]
    pub(crate) fn content(&self) -> Content {
        let [first, second, third] = self.words;
        let at = Timestamp::from_nanos(first & INSTANT);
        let window = |len| WindowState { at, counts: SmallVec::from_buf_and_len([second, third], len) };
        match first >> KIND {
            ONE_COUNT => Content::Here(State::Window(window(1))),
            TWO_COUNTS => Content::Here(State::Window(window(2))),
            BUCKET => {
                let debt = Debt::only(Timestamp::derived(second), third);
                Content::Here(State::Bucket(BucketState { at, debts: smallvec![debt] }))
            }
            _ => Content::Elsewhere(usize::try_from(second).unwrap_or(usize::MAX)),
        }
    }

    /// Returns how a claim is decided in place; `None` if the slot's state is of another kind or shape than the
    /// claim's, or drains at another rate.
    #[inline(always)]
    pub(crate) fn way<'m>(&self, meter: &'m Meter) -> Option<Way<'m>> {
        let kind = self.words[0] >> KIND;
        if let Meter::Window(window) = meter {
            // As many counts as the kind says, and one more.
            return (kind == u64::from(window.carried()) && kind < BUCKET).then_some(Way::Window(window));
        }
        match meter {
            Meter::Bucket(bucket) if kind == BUCKET && self.words[2] == bucket.interval() => {
                Some(Way::Bucket(bucket))
            }
            _ => None,
        }
    }

    /// Decides a claim, and charges it if it is admitted and the mode says so; `None` if it cannot be decided [in
    /// place](Self::way).
    #[inline]
    pub(crate) fn claim(&mut self, demand: Demand<'_>) -> Option<(bool, Verdict)> {
        Some(match self.way(demand.meter)? {
            Way::Window(window) => self.claim_window(window, demand),
            Way::Bucket(bucket) => self.claim_bucket(bucket, demand),
        })
    }

    /// The same for a window whose state is in this slot.
    #[inline(always)]
    pub(crate) fn claim_window(&mut self, window: &Window, demand: Demand<'_>) -> (bool, Verdict) {
        let [first, counts @ ..] = &mut self.words;
        let (kind, mut at) = (*first & !INSTANT, Timestamp::from_nanos(*first & INSTANT));
        let decided = window.claim(&mut at, counts, demand.cost, demand.now, demand.mode);
        *first = at.as_nanos() | kind;
        self.decided(decided, demand)
    }

    /// The same for a bucket whose state is in this slot.
    #[inline(always)]
    pub(crate) fn claim_bucket(&mut self, bucket: &Bucket, demand: Demand<'_>) -> (bool, Verdict) {
        let [first, second, _] = &mut self.words;
        let (mut at, mut tat) = (Timestamp::from_nanos(*first & INSTANT), Timestamp::derived(*second));
        let decided = bucket.claim(&mut at, &mut tat, demand.cost, demand.now, demand.mode);
        (*first, *second) = (at.as_nanos() | BUCKET << KIND, tat.as_nanos());
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
            self.charged_until(verdict.reset_at);
        }
        (admitted, verdict)
    }

    /// Whether both belong to the same meter.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.low == other.low && self.high == other.high
    }

    /// Stores a state in this slot if it is small enough.
    #[inline]
    pub(crate) fn keep(&mut self, state: &State) -> bool {
        self.words = match state {
            State::Window(WindowState { at, counts }) => match counts[..] {
                [count] => [at.as_nanos() | ONE_COUNT << KIND, count, 0],
                [count, before] => [at.as_nanos() | TWO_COUNTS << KIND, count, before],
                _ => return false,
            },
            State::Bucket(state) => match state.only_debt() {
                Some(debt) => [state.at.as_nanos() | BUCKET << KIND, debt.tat.as_nanos(), debt.interval],
                None => return false,
            },
            State::Log(_) => return false,
        };
        true
    }

    /// Updates the expiry after a charge: the meter is as good as new at `instant`. After a charge this is
    /// `Meter::forget_at`, already computed. The expiry never decreases: if claims count in different ways (a log's
    /// period was changed), the answers to all of them stay true.
    #[inline]
    fn charged_until(&mut self, instant: Timestamp) {
        // Anything later than `NEVER` means never.
        if instant.as_nanos().saturating_add(SLACK) > u64::from(self.forget_at) * SECOND {
            self.forget_at = forget_second(instant);
        }
    }

    /// Stores the number of a state that is stored elsewhere.
    pub(crate) fn refer(&mut self, number: usize) {
        self.words = [ELSEWHERE << KIND, number as u64, 0];
    }

    /// How much was charged recently.
    pub(crate) fn charged(&self) -> u64 {
        if self.words[0] >> KIND == BUCKET { 0 } else { self.words[1] }
    }
}

/// The second from which on a meter may be removed that is as good as new at `instant`: that instant plus the slack for
/// late callers, rounded up.
pub(crate) fn forget_second(instant: Timestamp) -> u32 {
    u32::try_from(instant.as_nanos().saturating_add(SLACK).div_ceil(SECOND)).unwrap_or(NEVER)
}

/// Whether a meter that may be removed from `second` on can no longer influence a decision.
#[inline]
pub(crate) fn has_passed(second: u32, now: Timestamp) -> bool {
    second != NEVER && u64::from(second) <= now.as_nanos() / SECOND
}

/// Meters with this expiry are kept.
pub(crate) const NEVER: u32 = u32::MAX;

const SECOND: u64 = 1_000_000_000;
const SLACK: u64 = CLOCK_SLACK.as_secs() * SECOND;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_is_kept_until_its_second_has_come_and_for_ever_beyond_2106() {
        let instant = Timestamp::from_millis(10_500);
        assert_eq!(forget_second(instant), 12);
        assert!(!has_passed(12, Timestamp::from_nanos(11_999_999_999)));
        assert!(has_passed(12, Timestamp::from_secs(12)));
        assert!(!has_passed(forget_second(Timestamp::MAX), Timestamp::MAX));
    }
}
