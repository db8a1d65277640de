//! States as bytes, for stores that keep opaque values: a tag, then unsigned 64-bit numbers, big-endian.

use std::fmt;

use smallvec::SmallVec;

use super::{BucketState, LogState, State, WindowState};
use crate::{MAX_UNITS, Timestamp};

const WINDOW: u8 = b'w';
const BUCKET: u8 = b'b';
const LOG: u8 = b'l';

/// The bytes that are stored under a meter's name are not the state of a meter, for example because another program wrote
/// them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CorruptState;

impl fmt::Display for CorruptState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stored value is not the state of a meter; was the key written by another program?")
    }
}

impl fmt::Debug for CorruptState {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::kit::write_error(self, f)
    }
}

impl std::error::Error for CorruptState {}

impl State {
    /// Encodes this state as bytes.
    ///
    /// ```
    /// use ratelimit_core::{Limit, Timestamp};
    /// use ratelimit_core::meter::State;
    ///
    /// let limit: Limit = "10/s".parse()?;
    /// let mut state = limit.meter_for(b"user:7").fresh();
    /// limit.meter_for(b"user:7").charge(&mut state, 3, Timestamp::from_secs(5));
    /// assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state));
    /// # Ok::<(), ratelimit_core::ParseLimitError>(())
    /// ```
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Window(state) => {
                write(WINDOW, std::iter::once(state.at.as_nanos()).chain(state.counts.iter().copied()))
            }
            Self::Bucket(state) => write(BUCKET, state.numbers().into_iter()),
            Self::Log(state) => write(LOG, state.units.iter().copied()),
        }
    }

    /// Decodes a state that [`State::to_bytes`] has encoded.
    ///
    /// # Errors
    /// [`CorruptState`] if `to_bytes` cannot have written these bytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CorruptState> {
        let (tag, rest) = bytes.split_first().ok_or(CorruptState)?;
        let (words, []) = rest.as_chunks::<8>() else {
            return Err(CorruptState);
        };
        let mut numbers = words.iter().map(|word| u64::from_be_bytes(*word));
        match *tag {
            WINDOW => {
                let at = numbers.next().ok_or(CorruptState)?;
                if numbers.len() == 0
                    || numbers.clone().any(|count| count > MAX_UNITS)
                    || at > Timestamp::MAX.as_nanos()
                {
                    return Err(CorruptState);
                }
                Ok(Self::Window(WindowState { at: Timestamp::derived(at), counts: numbers.collect() }))
            }
            BUCKET => {
                let numbers: SmallVec<[u64; 4]> = numbers.collect();
                BucketState::from_numbers(&numbers).map(Self::Bucket).ok_or(CorruptState)
            }
            LOG if numbers.clone().is_sorted() && numbers.clone().all(|unit| unit <= i64::MAX as u64) => {
                Ok(Self::Log(LogState { units: numbers.collect() }))
            }
            _ => Err(CorruptState),
        }
    }
}

fn write(tag: u8, numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    std::iter::once(tag).chain(numbers.flat_map(u64::to_be_bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Debt;
    use proptest::prelude::*;

    /// Stores hold them: a change would lose every state of a running fleet.
    #[test]
    fn the_bytes_of_a_state_do_not_change() {
        let check = |state: State, tag: u8, numbers: &[u64]| {
            let bytes = write(tag, numbers.iter().copied());
            assert_eq!(state.to_bytes(), bytes);
            assert_eq!(State::from_bytes(&bytes), Ok(state));
        };
        let at = Timestamp::from_nanos;
        let bucket = |debts: &[Debt]| State::Bucket(BucketState { at: at(1), debts: debts.into() });
        let (fast, slow) = (Debt { receipt: at(4), ..Debt::only(at(9), 3) }, Debt::only(at(6), 5));
        check(
            State::Window(WindowState { at: at(1), counts: SmallVec::from_slice(&[2, 3]) }),
            b'w',
            &[1, 2, 3],
        );
        check(State::Log(LogState { units: [1, 1, 2].into() }), b'l', &[1, 1, 2]);
        check(bucket(&[]), b'b', &[1]);
        check(bucket(&[slow]), b'b', &[1, 6, 5]);
        check(bucket(&[fast]), b'b', &[1, 9, 3, 4]);
        check(bucket(&[fast, slow]), b'b', &[1, 9, 3, 4, 6, 5, 6]);
        for intervals in [[5, 3], [5, 5]] {
            let debts = intervals.map(|interval| Debt::only(at(9), interval));
            assert_eq!(State::from_bytes(&bucket(&debts).to_bytes()), Err(CorruptState), "{intervals:?}");
        }
        assert_eq!(write(b'l', [0x0102].into_iter()), b"l\0\0\0\0\0\0\x01\x02");
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_round_trip(bytes: Vec<u8>) {
            if let Ok(state) = State::from_bytes(&bytes) {
                prop_assert_eq!(state.to_bytes(), bytes);
            }
        }

        #[test]
        fn window_states_round_trip(at in 0..Timestamp::MAX.as_nanos(), counts in prop::collection::vec(0..=MAX_UNITS, 1..9)) {
            let state = State::Window(WindowState { at: Timestamp::from_nanos(at), counts: counts.into() });
            prop_assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state));
        }

        #[test]
        fn log_states_round_trip(mut units in prop::collection::vec(0..1u64 << 62, 0..9)) {
            units.sort_unstable();
            let state = State::Log(LogState { units: units.into() });
            prop_assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state));
        }
    }
}
