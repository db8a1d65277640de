//! The compact form of a meter in a shard: one cache line.

use ratelimit_core::{
    BucketState, CLOCK_SLACK, Claim, Debt, Meter, Mode, State, Timestamp, Verdict, WindowState,
};
use smallvec::{SmallVec, smallvec};

use super::fingerprint::Fingerprint;
use super::units::Units;

/// A meter: the fingerprint of its name, its expiry, its state and its pending units. Everything that a charge of an existing
/// meter does not need is in the cold part, which the slot refers to by number.
///
/// Instants take 62 bits, so the first word of the state has two bits for its kind. The first word of the pending units takes
/// at most 63 bits.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Slot {
    hash: u64,
    other: u32,
    /// In whole seconds since the epoch, up to the year 2106; later instants never expire.
    forget_at: u32,
    state: [u64; 3],
    pending: [u64; 2],
    /// The number of the meter of the last charge.
    pub(super) meter: u32,
    /// The number of the cold part.
    pub(super) cold: u32,
}

const _: () = assert!(size_of::<Slot>() == 64);

const KIND: u32 = 62;
const INSTANT: u64 = (1 << KIND) - 1;
const ONE_COUNT: u64 = 0;
const TWO_COUNTS: u64 = 1;
const BUCKET: u64 = 2;
const LARGE: u64 = 3;

/// Set if there are pending units.
const PENDING: u64 = 1 << 63;

impl Slot {
    /// A meter whose state is in the cold part, without charges.
    pub(super) fn new(fingerprint: Fingerprint, meter: u32, cold: u32) -> Self {
        let Fingerprint { hash, other } = fingerprint;
        Self { hash, other, forget_at: 0, state: [LARGE << KIND, 0, 0], pending: [0; 2], meter, cold }
    }

    #[inline]
    pub(super) fn is(&self, fingerprint: Fingerprint) -> bool {
        self.hash == fingerprint.hash && self.other == fingerprint.other
    }

    #[inline]
    pub(super) fn fingerprint(&self) -> Fingerprint {
        Fingerprint { hash: self.hash, other: self.other }
    }

    /// The state; `None` if it is in the cold part.
    #[inline]
    pub(super) fn state(&self) -> Option<State> {
        let [first, second, third] = self.state;
        let at = Timestamp::from_nanos(first & INSTANT);
        let window = |len| WindowState { at, counts: SmallVec::from_buf_and_len([second, third], len) };
        match first >> KIND {
            ONE_COUNT => Some(State::Window(window(1))),
            TWO_COUNTS => Some(State::Window(window(2))),
            BUCKET => {
                let debt = Debt::only(Timestamp::derived(second), third);
                Some(State::Bucket(BucketState { at, debts: smallvec![debt] }))
            }
            _ => None,
        }
    }

    /// Decides a claim in place, and charges it if it is admitted and the mode says so. `None` if the state is in the cold part,
    /// of another kind or shape than the claim's, or drains at another rate.
    #[inline]
    pub(super) fn claim(&mut self, claim: &Claim<'_>, now: Timestamp, mode: Mode) -> Option<(bool, Verdict)> {
        let mut at = self.at();
        let [first, counts @ ..] = &mut self.state;
        let kind = *first >> KIND;
        let decided = match &claim.meter {
            // The kind is the number of carried segments.
            Meter::Window(window) if kind == u64::from(window.carried()) && kind < BUCKET => {
                window.claim(&mut at, counts, claim.cost, now, mode)
            }
            Meter::Bucket(bucket) if kind == BUCKET && counts[1] == bucket.interval() => {
                let mut tat = Timestamp::derived(counts[0]);
                let decided = bucket.claim(&mut at, &mut tat, claim.cost, now, mode);
                counts[0] = tat.as_nanos();
                decided
            }
            _ => return None,
        };
        *first = at.as_nanos().min(INSTANT) | kind << KIND;
        Some(decided)
    }

    /// The newest instant of a charge, if the state is in the slot.
    #[inline]
    pub(super) fn at(&self) -> Timestamp {
        Timestamp::from_nanos(self.state[0] & INSTANT)
    }

    /// Stores a state. `false` if it does not fit and has to be stored in the cold part.
    #[inline]
    pub(super) fn keep(&mut self, state: &State) -> bool {
        // Instants of other nodes may be further ahead than any clock.
        let first = |at: Timestamp, kind: u64| at.as_nanos().min(INSTANT) | kind << KIND;
        self.state = match state {
            State::Window(WindowState { at, counts }) => match counts[..] {
                [count] => [first(*at, ONE_COUNT), count, 0],
                [count, before] => [first(*at, TWO_COUNTS), count, before],
                _ => [LARGE << KIND, 0, 0],
            },
            State::Bucket(state) => match state.only_debt() {
                Some(debt) => [first(state.at, BUCKET), debt.tat.as_nanos(), debt.interval],
                None => [LARGE << KIND, 0, 0],
            },
            State::Log(_) => [LARGE << KIND, 0, 0],
        };
        !self.is_large()
    }

    /// Whether the state is in the cold part.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.state[0] >> KIND == LARGE
    }

    #[inline]
    pub(super) fn is_pending(&self) -> bool {
        self.pending[0] != 0
    }

    /// The pending units; `meter` is of the same kind as the slot's.
    #[inline]
    pub(super) fn pending(&self, meter: &Meter) -> Option<Units> {
        let [first, second] = self.pending;
        let (first, second) = ((first != 0).then_some(first & !PENDING)?, second.cast_signed());
        Some(match meter {
            Meter::Window(_) => Units::Window { segment: first, units: second },
            Meter::Bucket(_) => Units::Bucket { drain: second, floor: Timestamp::derived(first) },
            Meter::Log(_) => Units::Log { newest: Timestamp::derived(first), units: second },
        })
    }

    /// Replaces the pending units.
    #[inline]
    pub(super) fn set_pending(&mut self, units: Option<Units>) {
        let words = units.map(|units| match units {
            Units::Window { segment, units } => [segment, units.cast_unsigned()],
            Units::Bucket { drain, floor } => [floor.as_nanos(), drain.cast_unsigned()],
            Units::Log { newest, units } => [newest.as_nanos(), units.cast_unsigned()],
        });
        self.pending = words.map_or([0; 2], |[first, second]| [first.min(!PENDING) | PENDING, second]);
    }

    /// Delays expiry until this instant plus the slack of late callers. The expiry never moves back, so that earlier answers
    /// stay valid.
    #[inline]
    pub(super) fn keep_until(&mut self, instant: Timestamp) {
        const SLACK: u64 = CLOCK_SLACK.as_secs() * SECOND;
        let until = instant.as_nanos().saturating_add(SLACK);
        if until > u64::from(self.forget_at) * SECOND {
            self.forget_at = u32::try_from(until.div_ceil(SECOND)).unwrap_or(u32::MAX);
        }
    }

    /// Whether the meter can no longer influence a decision.
    pub(super) fn is_expired(&self, now: Timestamp) -> bool {
        self.forget_at != u32::MAX && u64::from(self.forget_at) <= now.as_nanos() / SECOND
    }
}

const SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use ratelimit_core::{Limit, LogState};

    use super::*;

    fn slot() -> Slot {
        Slot::new(Fingerprint { hash: 1, other: 2 }, 3, 4)
    }

    #[test]
    fn a_state_comes_back_or_is_large() {
        let at = Timestamp::MAX;
        let window = |counts: &[u64]| State::Window(WindowState { at, counts: counts.into() });
        let debt = Debt::only(Timestamp::derived(u64::MAX), u64::MAX);
        let bucket = |debts: &[Debt]| BucketState { at, debts: debts.iter().copied().collect() };
        let behind = Debt { receipt: at, ..debt };
        let large = [&[][..], &[behind], &[debt, debt]].map(|debts| State::Bucket(bucket(debts)));
        let large = [window(&[1, 2, 3]), State::Log(LogState::default())].into_iter().chain(large);
        let bucket = bucket(&[debt]);
        for state in [window(&[u64::MAX]), window(&[7, u64::MAX]), State::Bucket(bucket.clone())] {
            let mut slot = slot();
            assert_eq!((slot.state(), slot.keep(&state), slot.state()), (None, true, Some(state)));
            assert_eq!(
                (slot.fingerprint(), slot.meter, slot.cold),
                (Fingerprint { hash: 1, other: 2 }, 3, 4)
            );
            for large in large.clone() {
                assert_eq!((slot.keep(&large), slot.state()), (false, None));
            }
        }
        let ahead = BucketState { at: Timestamp::derived(u64::MAX), ..bucket.clone() };
        let mut slot = slot();
        assert!(slot.keep(&State::Bucket(ahead)));
        assert_eq!(slot.state(), Some(State::Bucket(bucket)), "no clock can be ahead of it");
    }

    #[test]
    fn what_is_pending_comes_back() {
        let meter = |text: &str| text.parse::<Limit>().unwrap().meter_for(b"k");
        let instants = [Timestamp::EPOCH, Timestamp::derived(i64::MAX.cast_unsigned())];
        for (units, instant) in
            [i64::MIN, -1, 0, i64::MAX].into_iter().flat_map(|units| instants.map(|at| (units, at)))
        {
            let window = Units::Window { segment: instant.as_nanos(), units };
            let bucket = Units::Bucket { drain: units, floor: instant };
            let log = Units::Log { newest: instant, units };
            for (text, units) in [("1/s fixed", window), ("1/s burst 1", bucket), ("1/s log", log)] {
                let mut slot = slot();
                assert_eq!((slot.is_pending(), slot.pending(&meter(text))), (false, None));
                slot.set_pending(Some(units));
                assert_eq!((slot.is_pending(), slot.pending(&meter(text))), (true, Some(units)));
                slot.set_pending(None);
                assert!(!slot.is_pending());
            }
        }
    }

    #[test]
    fn it_expires_at_a_whole_second_and_never_after_2106() {
        let mut slot = slot();
        slot.keep_until(Timestamp::from_millis(10_500));
        slot.keep_until(Timestamp::from_millis(5_500));
        assert!(!slot.is_expired(Timestamp::from_nanos(11_999_999_999)));
        assert!(slot.is_expired(Timestamp::from_secs(12)));
        slot.keep_until(Timestamp::MAX);
        assert!(!slot.is_expired(Timestamp::MAX));
    }
}
