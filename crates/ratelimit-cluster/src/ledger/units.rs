//! The units charged to one meter in an interval, in a form that other nodes can add to their states.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, BucketState, Debt, LogState, Meter, State, Window, WindowState};
use ratelimit_core::store::{Refund, Verdict};

/// Units charged or refunded, and when: what nodes send to each other. Refunds are negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    /// Units of one segment of a window.
    Window {
        /// The number of the segment, as in [`Window::place`].
        segment: u64,
        /// The number of units.
        units: i64,
    },
    /// A sequence of charges to a bucket at one rate. If there are no units of other rates, it changes the TAT to
    /// `max(tat + drain, floor)`. Two sequences, one after the other, change it to
    /// `max(tat + drain1 + drain2, max(floor1 + drain2, floor2))`, which has the same form.
    ///
    /// A refund is of the units that drain last. It returns what has not drained at the newest charge: at most `floor` minus
    /// the instant of that charge.
    Bucket {
        /// The time that all units take to drain, in nanoseconds.
        drain: i64,
        /// The TAT after these charges to an empty bucket. Of a refund: the TAT before it.
        floor: Timestamp,
    },
    /// Units of a log.
    Log {
        /// The instant of the newest unit; of a refund, that of the charge.
        newest: Timestamp,
        /// The number of units.
        units: i64,
    },
}

/// The longest time to drain in one usage: that of a bucket's longest debt.
const MAX_DRAIN: i64 = (1 << 62) - 1;

impl Units {
    /// No units: the meter is only read.
    pub(super) fn reading(meter: &Meter) -> Self {
        match meter {
            Meter::Window(_) => Self::Window { segment: 0, units: 0 },
            Meter::Bucket(_) => Self::Bucket { drain: 0, floor: Timestamp::EPOCH },
            Meter::Log(_) => Self::Log { newest: Timestamp::EPOCH, units: 0 },
        }
    }

    /// Whether all of them were refunded before they were sent.
    pub(super) fn is_cancelled(&self) -> bool {
        self.is_nothing() && !self.is_reading()
    }

    /// Whether the meter is only read.
    pub(crate) fn is_reading(&self) -> bool {
        match self {
            Self::Window { segment, units } => (*segment, *units) == (0, 0),
            Self::Bucket { drain: units, floor: at } | Self::Log { newest: at, units } => {
                (*at, *units) == (Timestamp::EPOCH, 0)
            }
        }
    }

    /// The units of a charge, from its verdict and the newest instant at which the meter was charged.
    #[inline]
    pub(super) fn of_charge(meter: &Meter, cost: u64, verdict: &Verdict, at: Timestamp) -> Self {
        match meter {
            Meter::Window(window) => {
                Self::Window { segment: window.place(verdict.receipt.instant()).0, units: signed(cost) }
            }
            Meter::Bucket(bucket) => {
                let drain = signed(bucket.interval().saturating_mul(cost)).min(MAX_DRAIN);
                Self::Bucket { drain, floor: moved(at, drain) }
            }
            Meter::Log(log) => {
                Self::Log { newest: verdict.receipt.instant(), units: signed(cost.min(log.limit())) }
            }
        }
    }

    /// The units that a refund removed, from the states before and after it.
    pub(super) fn of_refund(refund: &Refund<'_>, before: &State, after: &State) -> Option<Self> {
        let receipt = refund.receipt.instant();
        let units = match (&refund.meter, before, after) {
            (Meter::Window(window), State::Window(before), State::Window(after)) => {
                let segment = window.place(receipt).0;
                let taken = count(window, before, segment).saturating_sub(count(window, after, segment));
                Self::Window { segment, units: -signed(taken) }
            }
            (Meter::Bucket(bucket), State::Bucket(before), State::Bucket(after)) => {
                let of_rate = |debt: &&Debt| debt.interval == bucket.interval();
                let line = |state: &BucketState| {
                    state.debts.iter().find(of_rate).map_or(0, |debt| debt.receipt.as_nanos())
                };
                let taken = line(before).saturating_sub(line(after));
                let floor = before.debts.iter().find(of_rate).map_or(Timestamp::EPOCH, |debt| debt.tat);
                Self::Bucket { drain: -signed(taken), floor }
            }
            (Meter::Log(_), State::Log(before), State::Log(after)) => {
                let taken = before.units.len().saturating_sub(after.units.len());
                Self::Log { newest: receipt, units: -signed(taken as u64) }
            }
            _ => return None,
        };
        (!units.is_nothing()).then_some(units)
    }

    /// Whether sending these units would change nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Self::Window { units, .. } | Self::Log { units, .. } => *units == 0,
            // The floor is no later than the last charge plus the time to drain.
            Self::Bucket { drain, .. } => *drain == 0,
        }
    }

    /// When charges to a bucket would have begun if it was empty.
    pub(super) fn began(&self) -> Option<Timestamp> {
        match self {
            Self::Bucket { drain, floor } if *drain > 0 => Some(moved(*floor, -drain)),
            _ => None,
        }
    }

    /// Whether more is refunded than charged.
    pub(crate) fn is_refund(&self) -> bool {
        match self {
            Self::Window { units, .. } | Self::Log { units, .. } => *units < 0,
            Self::Bucket { drain, .. } => *drain < 0,
        }
    }

    /// How much is refunded: units, or of a bucket the time that they take to drain.
    pub(super) fn refunded(&self) -> i64 {
        match self {
            Self::Window { units, .. } | Self::Log { units, .. } => units.saturating_neg().max(0),
            Self::Bucket { drain, .. } => drain.saturating_neg().max(0),
        }
    }

    /// Whether the units have left their window at this instant, so that no node needs them.
    pub(crate) fn have_left(&self, meter: &Meter, now: Timestamp) -> bool {
        match (meter, self) {
            (Meter::Window(window), Self::Window { segment, .. }) => {
                segment.saturating_add(u64::from(window.carried())) < window.place(now).0
            }
            (Meter::Log(log), Self::Log { newest, .. }) => {
                newest.as_nanos().saturating_add(log.window()) < now.as_nanos()
            }
            _ => false,
        }
    }

    /// Limits charges that could not be sent to what the state contains, so that what several nodes have charged during an
    /// outage does not close a bucket or a log for as long as that outage, times the number of nodes. `refunded` is what has
    /// been taken from the state and is still pending. Units of a log that have left by `now` do not count.
    ///
    /// The store has at least as many units after these as the state. A raised floor stands for those that are left out.
    pub(super) fn limit(&mut self, meter: &Meter, state: &State, refunded: i64, now: Timestamp) {
        match (self, meter, state) {
            (Self::Log { units, .. }, Meter::Log(log), State::Log(state)) => {
                let live = state.units.len() - count_left(log.window(), state, now);
                *units = (*units).min(signed(live as u64).saturating_add(refunded));
            }
            (Self::Bucket { drain, floor }, Meter::Bucket(bucket), State::Bucket(state)) => {
                // Of several rates, each drains while the others do, so the end of one does not stand for its units.
                let Some(debt) = state.only_debt().filter(|debt| debt.interval == bucket.interval()) else {
                    return;
                };
                let end = moved(debt.tat, refunded).max(*floor);
                let burst = bucket.interval().saturating_mul(bucket.burst());
                let most = signed(end.as_nanos().saturating_sub(state.at.as_nanos()).max(burst));
                if *drain > most {
                    (*drain, *floor) = (most, end);
                }
            }
            _ => {}
        }
    }

    /// Combines the units that were pending with these later ones. If they cannot be combined, the second value is what was
    /// pending, to be sent separately.
    #[inline]
    pub(super) fn appended_to(self, before: Option<Self>) -> (Self, Option<Self>) {
        match before {
            None => (self, None),
            Some(mut both) => {
                if both.try_append(&self) {
                    (both, None)
                } else {
                    (self, before)
                }
            }
        }
    }

    /// Adds later units. `false` if the two cannot be sent as one.
    #[inline]
    pub(super) fn try_append(&mut self, later: &Self) -> bool {
        match (self, later) {
            (Self::Window { segment, units }, Self::Window { segment: same, units: more })
                if segment == same =>
            {
                *units = units.saturating_add(*more);
            }
            // If more was refunded than charged, a later charge is sent separately: combined, the charge would begin where
            // the refunded units ended, which may be in the future.
            (Self::Bucket { drain, floor }, Self::Bucket { drain: more, floor: other })
                if *drain >= 0 || *more <= 0 =>
            {
                let both = drain.saturating_add(*more).clamp(-MAX_DRAIN, MAX_DRAIN);
                *floor = match (*more > 0, both >= 0) {
                    (true, _) => moved(*floor, *more).max(*other),
                    (false, true) => moved(*floor, *more),
                    // The units that are left to refund were charged before.
                    (false, false) if *drain > 0 => moved(*other, -*drain),
                    (false, false) => (*floor).max(*other),
                };
                *drain = both;
            }
            // A refund of another instant has to keep its instant.
            (Self::Log { newest, units }, Self::Log { newest: other, units: more })
                if *more >= 0 && *units >= 0 || newest == other =>
            {
                *newest = (*newest).max(*other);
                *units = units.saturating_add(*more);
            }
            _ => return false,
        }
        true
    }
}

/// The newest instant of a charge; the epoch for an empty log.
pub(super) fn newest(state: &State) -> Timestamp {
    match state {
        State::Window(state) => state.at,
        State::Bucket(state) => state.at,
        State::Log(state) => state.units.back().map_or(Timestamp::EPOCH, |unit| Timestamp::derived(*unit)),
    }
}

/// The units of a segment; zero if the state does not contain it.
fn count(window: &Window, state: &WindowState, segment: u64) -> u64 {
    place(window, state, segment).map_or(0, |place| state.counts[place])
}

/// The index of the count of a segment.
pub(super) fn place(window: &Window, state: &WindowState, segment: u64) -> Option<usize> {
    let age = window.place(state.at).0.checked_sub(segment)?;
    usize::try_from(age).ok().filter(|age| *age < state.counts.len())
}

/// How many units of a log have left its window. They are the first ones.
pub(super) fn count_left(window: u64, state: &LogState, now: Timestamp) -> usize {
    state.units.partition_point(|unit| unit.saturating_add(window) < now.as_nanos())
}

/// The number of whole units of a bucket that take at least `length` to drain, and when they began to, if they have drained at
/// `end`.
pub(crate) fn whole_units(bucket: &Bucket, length: u64, end: Timestamp) -> (u64, Timestamp) {
    let units = length.div_ceil(bucket.interval());
    let time = units.saturating_mul(bucket.interval()).min(MAX_DRAIN.unsigned_abs());
    (units, Timestamp::derived(end.as_nanos().saturating_sub(time)))
}

pub(super) fn moved(instant: Timestamp, by: i64) -> Timestamp {
    let nanos = instant.as_nanos().saturating_add_signed(by);
    Timestamp::derived(nanos.min(i64::MAX as u64))
}

pub(super) fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}

/// Whether units of one meter count the same in the other: only the limits may differ.
pub(super) fn counts_alike(one: &Meter, other: &Meter) -> bool {
    match (one, other) {
        (Meter::Window(one), Meter::Window(other)) => {
            (one.segment(), one.offset(), one.carried()) == (other.segment(), other.offset(), other.carried())
        }
        (Meter::Bucket(one), Meter::Bucket(other)) => one.interval() == other.interval(),
        (Meter::Log(one), Meter::Log(other)) => one.window() == other.window(),
        _ => false,
    }
}

/// Whether units of both meters are counted in one state.
pub(super) fn counts_together(one: &Meter, other: &Meter) -> bool {
    matches!((one, other), (Meter::Bucket(_), Meter::Bucket(_))) || counts_alike(one, other)
}
