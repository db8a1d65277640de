//! The state of a bucket: the units that have not drained, by rate.

use smallvec::SmallVec;

use crate::{MAX_PERIOD_NANOS, MAX_RATES, MAX_UNITS, Timestamp};

/// The maximum debt that forced charges can create: 2<sup>62</sup> - 1 ns, about 146 years.
pub(crate) const MAX_DEBT: u64 = (1 << 62) - 1;

/// The state of a [`Bucket`](super::Bucket).
///
/// A debt stands for units that have not drained, as the time that they take to drain. Nearly always there is one debt.
/// There are several while the bucket has units that were charged under limits of different rates: because a limit has
/// changed, or because several limits share the bucket. Then there is a debt for each rate. It contains the units of
/// that rate and of all slower ones, and drains at that rate. The bucket contains as many units as the debt with the most
/// units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketState {
    /// The latest instant at which the bucket was charged; in a bucket [in steps](super::Bucket::in_steps), the beginning
    /// of that step.
    pub at: Timestamp,
    /// A debt for each rate, in ascending order of `interval`: the first one contains all units.
    pub debts: SmallVec<[Debt; 1]>,
}

/// Units of a [`BucketState`] that drain one after another.
///
/// As numbers, in stores and in [`State::to_bytes`](crate::meter::State::to_bytes), a bucket with one debt whose receipt is its
/// `tat` is `at`, `tat`, `interval`; any other is `at`, and `tat`, `interval`, `receipt` of each debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// When all of its units will have drained: the theoretical arrival time.
    pub tat: Timestamp,
    /// How long one unit takes to drain, in nanoseconds.
    pub interval: u64,
    /// The receipt of the latest charge at this rate: the instant at which the units of this rate will have drained, on a
    /// clock that stands still while none of them drains. If the bucket has never had units of another rate at the same
    /// time, it is equal to `tat`.
    pub receipt: Timestamp,
}

impl BucketState {
    /// Returns this state as numbers, for a store that keeps numbers; see [`Debt`].
    pub fn numbers(&self) -> SmallVec<[u64; 4]> {
        let mut numbers: SmallVec<[u64; 4]> = SmallVec::from_slice(&[self.at.as_nanos()]);
        if let Some(debt) = self.only_debt() {
            numbers.extend([debt.tat.as_nanos(), debt.interval]);
            return numbers;
        }
        for debt in &self.debts {
            numbers.extend([debt.tat.as_nanos(), debt.interval, debt.receipt.as_nanos()]);
        }
        numbers
    }

    /// Returns the state that these numbers represent, or `None` if they are not valid.
    pub fn from_numbers(numbers: &[u64]) -> Option<Self> {
        let (at, debts) = numbers.split_first()?;
        let instant = |nanos: u64| (nanos <= i64::MAX as u64).then(|| Timestamp::derived(nanos));
        let debts: SmallVec<[Debt; 1]> = match debts {
            [tat, interval] => SmallVec::from([Debt::only(instant(*tat)?, *interval)]),
            _ => {
                let (debts, []) = debts.as_chunks() else { return None };
                let debt = |[tat, interval, receipt]: &[u64; 3]| {
                    Some(Debt { tat: instant(*tat)?, interval: *interval, receipt: instant(*receipt)? })
                };
                debts.iter().map(debt).collect::<Option<_>>()?
            }
        };
        let sound = debts.is_sorted_by(|one, other| one.interval < other.interval)
            && debts.iter().all(|debt| (1..=MAX_PERIOD_NANOS).contains(&debt.interval))
            && debts.len() <= MAX_RATES
            && *at <= Timestamp::MAX.as_nanos();
        sound.then(|| Self { at: Timestamp::derived(*at), debts })
    }

    /// The instant as of which a claim at `now` is decided.
    pub(super) fn seen(&self, now: Timestamp) -> u64 {
        now.max(self.at).as_nanos()
    }

    /// The index of the debt of this interval; `Err` with the index at which to insert it, after all faster ones.
    pub(super) fn place(&self, interval: u64) -> Result<usize, usize> {
        self.debts.binary_search_by_key(&interval, |debt| debt.interval)
    }

    /// The drain time of the units of exactly this debt's rate, without those of slower rates.
    pub(super) fn left_at_rate(&self, place: usize, seen: u64) -> u64 {
        let Debt { interval, .. } = self.debts[place];
        let slower = left_of(&self.debts[place + 1..], interval, seen);
        left_of(&self.debts[place..], interval, seen).saturating_sub(slower)
    }

    /// Returns the debt if there is exactly one, and its receipt is its `tat`: a store may keep such a state in three
    /// numbers.
    pub fn only_debt(&self) -> Option<Debt> {
        match self.debts[..] {
            [debt] if debt.receipt == debt.tat => Some(debt),
            _ => None,
        }
    }

    /// Returns how many units have not drained by `now`, counting partly drained ones in full. This is the same for every
    /// limit that shares the bucket.
    ///
    /// ```
    /// use ratelimit_core::Timestamp;
    /// use ratelimit_core::meter::{BucketState, Debt};
    ///
    /// let debt = Debt::only(Timestamp::from_secs(32), 1_000_000_000); // one a second
    /// let state = BucketState { at: Timestamp::from_secs(30), debts: [debt].into_iter().collect() };
    /// assert_eq!(state.owed(Timestamp::from_millis(30_500)), 2);
    /// assert_eq!(state.owed(Timestamp::from_secs(31)), 1);
    /// ```
    pub fn owed(&self, now: Timestamp) -> u64 {
        let seen = self.seen(now);
        self.debts.iter().map(|debt| debt.left(seen).div_ceil(debt.interval)).max().unwrap_or(0)
    }

    /// Returns how far the line of this rate's units has drained by `now`, on the clock of their receipts; `None` if
    /// there are no such units. A [`refund`](super::Meter::refund) returns at most as many units as drain between this
    /// instant and its receipt.
    ///
    /// ```
    /// use ratelimit_core::Timestamp;
    /// use ratelimit_core::meter::{BucketState, Debt};
    ///
    /// let debt = Debt::only(Timestamp::from_secs(32), 1_000_000_000); // one a second
    /// let state = BucketState { at: Timestamp::from_secs(30), debts: [debt].into_iter().collect() };
    /// assert_eq!(state.drained_to(1_000_000_000, Timestamp::from_secs(31)), Some(Timestamp::from_secs(31)));
    /// ```
    pub fn drained_to(&self, interval: u64, now: Timestamp) -> Option<Timestamp> {
        let place = self.place(interval).ok()?;
        let left = self.left_at_rate(place, self.seen(now));
        Some(Timestamp::derived(self.debts[place].receipt.as_nanos().saturating_sub(left)))
    }

    /// When all units will have drained: the latest `tat` of the debts. `None` if there are no debts.
    pub fn tat(&self) -> Option<Timestamp> {
        latest(&self.debts)
    }
}

/// The latest `tat` of the debts; `None` if there are no debts.
#[inline]
pub(super) fn latest(debts: &[Debt]) -> Option<Timestamp> {
    debts.iter().map(|debt| debt.tat).max()
}

/// The drain time of these debts at an interval not longer than theirs. A part of a nanosecond is rounded up, which does not
/// change the number of units.
pub(super) fn left_of(debts: &[Debt], interval: u64, seen: u64) -> u64 {
    debts.iter().map(|debt| debt.owed(seen).at(interval)).max().unwrap_or(0)
}

impl Debt {
    /// The debt of a bucket that has only this one.
    pub fn only(tat: Timestamp, interval: u64) -> Self {
        Self { tat, interval, receipt: tat }
    }

    /// Makes a debt that has drained begin at `seen`, as a new one does.
    pub(super) fn restart_if_drained(&mut self, seen: u64) {
        if self.left(seen) == 0 {
            *self = Self::only(Timestamp::derived(seen), self.interval);
        }
    }

    /// Adds units to this debt, which contains those of the slower debts as well. If it has drained below these, it starts from
    /// them: a unit that drains slowly stays until it has drained.
    pub(super) fn add(&mut self, slower: &[Self], cost: u64, seen: u64) {
        let left = self.left(seen).max(left_of(slower, self.interval, seen));
        let after = (left + drain_time(cost, self.interval)).min(MAX_DEBT);
        self.tat = Timestamp::derived(seen + after);
    }

    /// Adds units to the line of this debt's rate, and returns their receipt.
    pub(super) fn lengthen_line(&mut self, cost: u64, seen: u64) -> Timestamp {
        let line = self.receipt.as_nanos() + drain_time(cost, self.interval);
        self.receipt = Timestamp::derived(line.min(seen + MAX_DEBT));
        self.receipt
    }

    /// The time that is left until it has drained, in nanoseconds.
    pub(super) fn left(&self, seen: u64) -> u64 {
        self.tat.as_nanos().saturating_sub(seen)
    }

    pub(super) fn owed(&self, seen: u64) -> Owed {
        Owed { time: self.left(seen), interval: self.interval }
    }
}

/// Units, expressed as the time that they take to drain at an interval.
#[derive(Clone, Copy)]
pub(super) struct Owed {
    pub(super) time: u64,
    pub(super) interval: u64,
}

impl Owed {
    /// The time at another interval, rounded up.
    fn at(self, interval: u64) -> u64 {
        if interval == self.interval {
            return self.time;
        }
        let product = u128::from(self.time) * u128::from(interval);
        u64::try_from(product.div_ceil(u128::from(self.interval))).unwrap_or(MAX_DEBT)
    }

    /// The same, rounded down.
    pub(super) fn whole_nanos(self, interval: u64) -> u64 {
        let product = u128::from(self.time) * u128::from(interval);
        u64::try_from(product / u128::from(self.interval)).unwrap_or(MAX_DEBT)
    }
}

/// The time that `units`, at most [`MAX_UNITS`], take to drain at this interval, at most [`MAX_DEBT`].
pub(super) fn drain_time(units: u64, interval: u64) -> u64 {
    units.min(MAX_UNITS).saturating_mul(interval).min(MAX_DEBT)
}
