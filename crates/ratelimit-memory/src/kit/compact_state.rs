//! The state of a meter in three words.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, BucketState, Debt, Meter, State, Window, WindowState};
use ratelimit_core::store::{Mode, Verdict};
use smallvec::{SmallVec, smallvec};

/// The state of a window of at most two counts, or of a bucket of one rate; or the number of a larger state that is
/// stored elsewhere.
///
/// Instants take 62 bits, so two bits of the first word say what the words contain.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct CompactState([u64; 3]);

/// How to decide a claim in place.
#[derive(Debug)]
pub enum InPlace<'m> {
    /// By [`CompactState::claim_window`].
    Window(&'m Window),
    /// By [`CompactState::claim_bucket`].
    Bucket(&'m Bucket),
}

const KIND: u32 = 62;
const INSTANT: u64 = (1 << KIND) - 1;
const ONE_COUNT: u64 = 0;
const TWO_COUNTS: u64 = 1;
const BUCKET: u64 = 2;
const ELSEWHERE: u64 = 3;

impl CompactState {
    /// A meter without charges as of `now`, and how to decide a claim on it; `None` if its state is too large.
    #[inline(always)]
    pub fn fresh(meter: &Meter, now: Timestamp) -> Option<(Self, InPlace<'_>)> {
        // As of `now`, so that no time has passed since.
        let now = now.as_nanos();
        Some(match meter {
            Meter::Window(window) if u64::from(window.carried()) < BUCKET => {
                (Self([now | u64::from(window.carried()) << KIND, 0, 0]), InPlace::Window(window))
            }
            Meter::Bucket(bucket) => {
                (Self([now | BUCKET << KIND, now, bucket.interval()]), InPlace::Bucket(bucket))
            }
            _ => return None,
        })
    }

    /// This state in three words; `None` if it is too large.
    #[inline]
    pub fn of(state: &State) -> Option<Self> {
        // Instants that other nodes have sent may be further ahead than any clock.
        let first = |at: Timestamp, kind: u64| at.as_nanos().min(INSTANT) | kind << KIND;
        Some(Self(match state {
            State::Window(WindowState { at, counts }) => match counts[..] {
                [count] => [first(*at, ONE_COUNT), count, 0],
                [count, before] => [first(*at, TWO_COUNTS), count, before],
                _ => return None,
            },
            State::Bucket(state) => {
                let debt = state.only_debt()?;
                [first(state.at, BUCKET), debt.tat.as_nanos(), debt.interval]
            }
            State::Log(_) => return None,
        }))
    }

    /// Refers to a state that is stored elsewhere, by its number.
    #[inline]
    pub fn elsewhere(number: u32) -> Self {
        Self([ELSEWHERE << KIND, u64::from(number), 0])
    }

    /// Converts back what [`words`](Self::words) has returned.
    #[inline]
    pub fn from_words(words: [u64; 3]) -> Self {
        Self(words)
    }

    /// The three words.
    #[inline]
    pub fn words(&self) -> [u64; 3] {
        self.0
    }

    /// The state.
    ///
    /// # Errors
    /// If the state is stored elsewhere. The error is its number.
    #[inline]
    pub fn state(&self) -> Result<State, u32> {
        let [first, second, third] = self.0;
        let window = |len| {
            State::Window(WindowState {
                at: self.at(),
                counts: SmallVec::from_buf_and_len([second, third], len),
            })
        };
        match first >> KIND {
            ONE_COUNT => Ok(window(1)),
            TWO_COUNTS => Ok(window(2)),
            BUCKET => {
                let debt = Debt::only(Timestamp::derived(second), third);
                Ok(State::Bucket(BucketState { at: self.at(), debts: smallvec![debt] }))
            }
            _ => Err(u32::try_from(second).unwrap_or(u32::MAX)),
        }
    }

    /// The units that counted at the newest charge. Of a window, all of its units; of a state that is stored elsewhere, what
    /// was [recorded](Self::record_units).
    #[inline]
    pub fn units(&self) -> u64 {
        let [first, second, third] = self.0;
        match first >> KIND {
            ONE_COUNT => second,
            TWO_COUNTS => second.saturating_add(third),
            BUCKET => second.saturating_sub(self.at().as_nanos()).div_ceil(third.max(1)),
            _ => third,
        }
    }

    /// Records how many units of a state count that is stored elsewhere. Does nothing for other states.
    pub fn record_units(&mut self, units: u64) {
        if self.0[0] >> KIND == ELSEWHERE {
            self.0[2] = units;
        }
    }

    /// The number of the state if it is stored elsewhere.
    #[inline]
    pub fn number(&self) -> Option<u32> {
        self.state().err()
    }

    /// The newest instant of a charge, unless the state is stored elsewhere.
    #[inline]
    pub fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.0[0] & INSTANT)
    }

    /// How to decide a claim in place; `None` if the state is stored elsewhere, is of another kind or shape than the
    /// claim's, or drains at another rate.
    #[inline(always)]
    pub fn in_place<'m>(&self, meter: &'m Meter) -> Option<InPlace<'m>> {
        let kind = self.0[0] >> KIND;
        match meter {
            // As many counts as the kind says, and one more.
            Meter::Window(window) => {
                (kind == u64::from(window.carried()) && kind < BUCKET).then_some(InPlace::Window(window))
            }
            Meter::Bucket(bucket) if kind == BUCKET && self.0[2] == bucket.interval() => {
                Some(InPlace::Bucket(bucket))
            }
            _ => None,
        }
    }

    /// Decides a claim, and charges it if it is admitted and is not a peek; `None` if it cannot be decided [in
    /// place](Self::in_place).
    #[inline]
    pub fn claim(&mut self, meter: &Meter, cost: u64, now: Timestamp, mode: Mode) -> Option<(bool, Verdict)> {
        Some(match self.in_place(meter)? {
            InPlace::Window(window) => self.claim_window(window, cost, now, mode),
            InPlace::Bucket(bucket) => self.claim_bucket(bucket, cost, now, mode),
        })
    }

    /// The same for a window whose state is in these words.
    #[inline(always)]
    pub fn claim_window(
        &mut self,
        window: &Window,
        cost: u64,
        now: Timestamp,
        mode: Mode,
    ) -> (bool, Verdict) {
        let [first, counts @ ..] = &mut self.0;
        let (kind, mut at) = (*first & !INSTANT, Timestamp::from_nanos(*first & INSTANT));
        let decided = window.claim(&mut at, counts, cost, now, mode);
        *first = at.as_nanos() | kind;
        decided
    }

    /// The same for a bucket whose state is in these words.
    #[inline(always)]
    pub fn claim_bucket(
        &mut self,
        bucket: &Bucket,
        cost: u64,
        now: Timestamp,
        mode: Mode,
    ) -> (bool, Verdict) {
        let [first, second, _] = &mut self.0;
        let (mut at, mut tat) = (Timestamp::from_nanos(*first & INSTANT), Timestamp::derived(*second));
        let decided = bucket.claim(&mut at, &mut tat, cost, now, mode);
        (*first, *second) = (at.as_nanos() | BUCKET << KIND, tat.as_nanos());
        decided
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_core::meter::LogState;

    use super::*;

    #[test]
    fn states_round_trip_or_are_too_large() {
        let at = Timestamp::MAX;
        let window = |counts: &[u64]| State::Window(WindowState { at, counts: counts.into() });
        let debt = Debt::only(Timestamp::derived(u64::MAX), u64::MAX);
        let bucket = |debts: &[Debt]| BucketState { at, debts: debts.iter().copied().collect() };
        let behind = Debt { receipt: at, ..debt };
        let large = [&[][..], &[behind], &[debt, debt]].map(|debts| State::Bucket(bucket(debts)));
        for large in [window(&[1, 2, 3]), State::Log(LogState::default())].into_iter().chain(large) {
            assert_eq!(CompactState::of(&large), None);
        }
        let bucket = bucket(&[debt]);
        for state in [window(&[u64::MAX]), window(&[7, u64::MAX]), State::Bucket(bucket.clone())] {
            let compact = CompactState::of(&state).unwrap();
            assert_eq!((compact.state(), compact.at(), compact.number()), (Ok(state), at, None));
            assert_eq!(CompactState::from_words(compact.words()), compact);
        }
        let ahead = BucketState { at: Timestamp::derived(u64::MAX), ..bucket.clone() };
        let compact = CompactState::of(&State::Bucket(ahead)).unwrap();
        assert_eq!(compact.state(), Ok(State::Bucket(bucket)), "no clock can be ahead of it");
        let elsewhere = CompactState::elsewhere(7);
        assert_eq!((elsewhere.state(), elsewhere.number()), (Err(7), Some(7)));
    }
}
