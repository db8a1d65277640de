//! The state of a meter in three words.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{BucketState, Debt, State, WindowState};
use smallvec::{SmallVec, smallvec};

/// The state of a window of at most two counts, or of a bucket of one rate; or the number of a larger state that is
/// stored elsewhere.
///
/// Instants take 62 bits, so two bits of the first word say what the words contain.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[repr(transparent)]
pub struct CompactState(pub(super) [u64; 3]);

/// Where the two bits of the first word begin that say what the words contain; below them is an instant.
pub(super) const KIND_SHIFT: u32 = 62;
pub(super) const INSTANT_MASK: u64 = (1 << KIND_SHIFT) - 1;
/// A window's kind is the number of the segments that it carries.
const ONE_COUNT: u64 = 0;
const TWO_COUNTS: u64 = 1;
pub(super) const BUCKET: u64 = 2;
const ELSEWHERE: u64 = 3;

impl CompactState {
    /// This state in three words; `None` if it is too large.
    #[inline]
    pub fn of(state: &State) -> Option<Self> {
        // Instants that other nodes have sent may be further ahead than any clock.
        let first = |at: Timestamp, kind: u64| at.as_nanos().min(INSTANT_MASK) | kind << KIND_SHIFT;
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
        Self([ELSEWHERE << KIND_SHIFT, u64::from(number), 0])
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
        match first >> KIND_SHIFT {
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
        match first >> KIND_SHIFT {
            ONE_COUNT => second,
            TWO_COUNTS => second.saturating_add(third),
            BUCKET => second.saturating_sub(self.at().as_nanos()).div_ceil(third.max(1)),
            _ => third,
        }
    }

    /// Records how many units of a state count that is stored elsewhere. Does nothing for other states.
    pub fn record_units(&mut self, units: u64) {
        if self.0[0] >> KIND_SHIFT == ELSEWHERE {
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
        Timestamp::from_nanos(self.0[0] & INSTANT_MASK)
    }
}

#[cfg(test)]
mod tests;
