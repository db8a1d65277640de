//! What was charged to one meter between two tellings, in a form that others can add to what they know.

use ratelimit_core::{BucketState, Debt, Meter, Refund, State, Timestamp, Verdict, Window, WindowState};

/// Units charged, or given back, and when: what nodes tell each other.
///
/// All are signed: refunds take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Units {
    /// Units of one segment of a window.
    Window {
        /// The segment's number, by [`Window::place`].
        segment: u64,
        /// How many.
        units: i64,
    },
    /// A sequence of charges to a bucket at one rate. Where there are no others it takes a TAT to `max(tat + drain, floor)`; two sequences, one after the
    /// other, to `max(tat + drain1 + drain2, max(floor1 + drain2, floor2))`, which is one of the same form.
    Bucket {
        /// What all of it takes to drain, in nanoseconds.
        drain: i64,
        /// The TAT that it leads to from an empty bucket.
        floor: Timestamp,
    },
    /// Units of a log.
    Log {
        /// The instant of the newest; of a refund, that of the charge.
        newest: Timestamp,
        /// How many.
        units: i64,
    },
}

/// The longest time to drain that is told: that of a bucket's longest debt.
const MAX_DRAIN: i64 = (1 << 62) - 1;

impl Units {
    /// What a charge of `cost` has added, from the verdict on it and the newest instant at which the meter was charged.
    #[inline]
    pub(super) fn of_charge(meter: &Meter, cost: u64, verdict: &Verdict, at: Timestamp) -> Self {
        match meter {
            Meter::Window(window) => {
                Self::Window { segment: window.place(verdict.receipt).0, units: signed(cost) }
            }
            Meter::Bucket(bucket) => {
                let drain = signed(bucket.interval().saturating_mul(cost)).min(MAX_DRAIN);
                Self::Bucket { drain, floor: moved(at, drain) }
            }
            Meter::Log(log) => Self::Log { newest: verdict.receipt, units: signed(cost.min(log.limit())) },
        }
    }

    /// What a refund has taken away, from the states before and after it.
    pub(super) fn of_refund(refund: &Refund<'_>, before: &State, after: &State) -> Option<Self> {
        let receipt = refund.receipt;
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
                Self::Bucket { drain: -signed(taken), floor: Timestamp::EPOCH }
            }
            (Meter::Log(_), State::Log(before), State::Log(after)) => {
                let taken = before.units.len().saturating_sub(after.units.len());
                Self::Log { newest: receipt, units: -signed(taken as u64) }
            }
            _ => return None,
        };
        (!units.is_nothing()).then_some(units)
    }

    /// Whether telling it would change nothing.
    pub(crate) fn is_nothing(&self) -> bool {
        match self {
            Self::Window { units, .. } | Self::Log { units, .. } => *units == 0,
            // Its floor lies no further ahead of the last charge than it takes to drain.
            Self::Bucket { drain, .. } => *drain == 0,
        }
    }

    /// What is pending once this was charged, too, and what then has to be told by itself because the two do not go together.
    #[inline]
    pub(super) fn after(self, before: Option<Self>) -> (Self, Option<Self>) {
        match before {
            None => (self, None),
            Some(mut both) => {
                if both.then(&self) {
                    (both, None)
                } else {
                    (self, before)
                }
            }
        }
    }

    /// Adds what came after it. `false` if the two cannot be told as one.
    #[inline]
    pub(super) fn then(&mut self, later: &Self) -> bool {
        match (self, later) {
            (Self::Window { segment, units }, Self::Window { segment: same, units: more })
                if segment == same =>
            {
                *units = units.saturating_add(*more);
            }
            // What is charged after more was given back than charged is told by itself: as one charge of the difference it
            // would begin where what was given back ended, which may be after now.
            (Self::Bucket { drain, floor }, Self::Bucket { drain: more, floor: other })
                if *drain >= 0 || *more <= 0 =>
            {
                *drain = drain.saturating_add(*more).clamp(-MAX_DRAIN, MAX_DRAIN);
                *floor = moved(*floor, *more).max(*other);
            }
            // What is given back of another instant is looked for at that instant.
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

/// Units of a segment; zero if it is not there any more, or not yet.
pub(super) fn count(window: &Window, state: &WindowState, segment: u64) -> u64 {
    place(window, state, segment).map_or(0, |place| state.counts[place])
}

/// Where a segment's count is.
pub(super) fn place(window: &Window, state: &WindowState, segment: u64) -> Option<usize> {
    let age = window.place(state.at).0.checked_sub(segment)?;
    usize::try_from(age).ok().filter(|age| *age < state.counts.len())
}

pub(super) fn moved(instant: Timestamp, by: i64) -> Timestamp {
    let nanos = instant.as_nanos().saturating_add_signed(by);
    Timestamp::derived(nanos.min(i64::MAX as u64))
}

pub(super) fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap_or(i64::MAX)
}
