//! What a shared store says of a meter, put in the place of what was known: its units are those of all nodes.

use std::ops::RangeInclusive;

use ratelimit_core::{BucketState, MAX_UNITS, Meter, MeterId, State, Timestamp};

use super::entry::{Entry, Tellings, counts_alike};
use super::logbook::LogBook;
use super::merge::turn_to;
use super::print::Print;
use super::units::{led_to, place};
use super::{Ledger, Units, Usage};

/// What a shared store says after it was told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reading {
    /// All units of one segment; if it is the newest, when the store was asked.
    Window { segment: u64, total: u64, newest_at: Option<Timestamp> },
    /// The TAT.
    Bucket { tat: Timestamp },
    /// Units of a log have been told, as of which instant.
    Told { units: u64, at: Timestamp },
    /// How many units of a log are live at an instant; if it is full, of which instant the oldest is.
    Log { live: u64, at: Timestamp, oldest: Option<Timestamp> },
}

/// How often a segment is read after it has ended.
const READ_AGAIN: u8 = 3;

/// What is kept of a meter beside its state, for a shared store.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Segments before this one have been read for the last time.
    read: u64,
    /// The newest segment when the store was last asked, and how often it was asked while it was.
    newest: u64,
    asked: u8,
    asked_at: Timestamp,
    /// What may have been charged there, and may not: it is counted beside what the store says.
    unsure: Vec<Units>,
    /// The TAT after the last reading.
    base: Option<Timestamp>,
    /// Whose the units of a log are.
    log: LogBook,
}

impl Ledger {
    /// Which segments of the window have to be read when this is told. One that has ended is read [`READ_AGAIN`] times
    /// more: other nodes tell within an interval, and the time that a trip takes, what they charged in it.
    pub(crate) fn segments(&self, usage: &Usage, now: Timestamp) -> Option<RangeInclusive<u64>> {
        self.with(usage, |entry, _| match (&entry.meter, &entry.state) {
            (Meter::Window(window), State::Window(state)) if counts_alike(&entry.meter, &usage.meter) => {
                let newest = window.place(state.at.max(now)).0;
                let read = entry.cold.shared.as_ref().map_or(0, |shared| shared.read);
                Some(newest.saturating_sub(window.carried().into()).max(read)..=newest)
            }
            _ => None,
        })
        .flatten()
    }

    /// The newest instant at which a meter was charged, as far as is known.
    pub(crate) fn newest(&self, id: &MeterId<'_>) -> Option<Timestamp> {
        let print = self.prints.of(id);
        let newest = |entry: &mut Entry<'_>| match &entry.state {
            State::Window(state) => Some(state.at),
            State::Bucket(state) => Some(state.at),
            State::Log(state) => state.units.back().map(|unit| Timestamp::derived(*unit)),
        };
        self.shard(print).open(print, |entry, _| newest(entry)).flatten()
    }

    /// As of which instant units of a log that are given back were told.
    pub(crate) fn told_at(&self, usage: &Usage, receipt: Timestamp) -> Timestamp {
        let told_at = |entry: &mut Entry<'_>| entry.cold.shared.as_ref()?.log.told_at(receipt);
        self.with(usage, |entry, _| told_at(entry)).flatten().unwrap_or(receipt)
    }

    /// Puts what the store says in the place of what was known, and what is pending beside it.
    pub(crate) fn settle(&self, usage: &Usage, reading: Reading) {
        self.with(usage, |entry, tellings| entry.settle(usage, reading, tellings));
    }

    /// It may have been told: from now on it is counted beside what the store says. What was given back is not: then
    /// the store may know of more than there is, never of less.
    pub(crate) fn unsure(&self, usage: &Usage) {
        let adds = match usage.units {
            Units::Window { units, .. } => units > 0,
            Units::Bucket { drain, .. } => drain > 0,
            Units::Log { .. } => false, // own units of a log are never taken from what the store says
        };
        self.with(usage, |entry, _| {
            if adds && counts_alike(&entry.meter, &usage.meter) {
                entry.cold.shared.get_or_insert_default().unsure.push(usage.units);
            }
        });
    }

    /// Units of a log that were told as of this instant have been given back.
    pub(crate) fn untell(&self, usage: &Usage, told_at: Timestamp, units: u64) {
        self.with(usage, |entry, _| {
            entry.cold.shared.as_mut().map(|shared| shared.log.untell(told_at, units))
        });
    }

    fn with<R>(&self, usage: &Usage, look: impl FnOnce(&mut Entry<'_>, &mut Tellings) -> R) -> Option<R> {
        let print = self.prints.of(&usage.name.id());
        self.shard(print).open(print, look)
    }
}

impl Entry<'_> {
    fn settle(&mut self, usage: &Usage, reading: Reading, tellings: &Tellings) {
        if !counts_alike(&self.meter, &usage.meter) || !self.meter.owns(&self.state) {
            return;
        }
        let print = self.print;
        let shared = self.cold.shared.get_or_insert_default();
        let outbox = tellings.outbox.iter().filter(|(of, other)| is_of(*of, print, other, usage));
        let pending = outbox.map(|(_, other)| &other.units).chain(&self.pending);
        match (&self.meter, &mut self.state, reading) {
            (Meter::Window(window), State::Window(state), Reading::Window { segment, total, newest_at }) => {
                let oldest = window.place(state.at).0.saturating_sub(window.carried().into());
                shared
                    .unsure
                    .retain(|units| matches!(units, Units::Window { segment, .. } if *segment >= oldest));
                if total > 0 {
                    turn_to(window, state, segment);
                }
                if let Some(place) = place(window, state, segment) {
                    let beside = pending.chain(&shared.unsure).map(|units| units.of_segment(segment));
                    let beside = beside.fold(0, i64::saturating_add);
                    state.counts[place] = total.saturating_add_signed(beside).min(MAX_UNITS);
                }
                if let Some(at) = newest_at.filter(|at| *at > shared.asked_at) {
                    shared.asked = if shared.newest == segment { shared.asked.saturating_add(1) } else { 1 };
                    (shared.newest, shared.asked_at) = (segment, at);
                    if shared.asked >= READ_AGAIN {
                        shared.read = segment;
                    }
                }
            }
            (Meter::Bucket(bucket), State::Bucket(state), Reading::Bucket { tat })
                if state.interval == bucket.interval() =>
            {
                shared.forget_drained(&usage.units);
                let mut known = BucketState { tat, ..*state };
                for units in shared.unsure.iter().chain(pending) {
                    if let Units::Bucket { drain, floor } = units {
                        known.tat = led_to(&known, *drain, *floor);
                    }
                }
                *state = known;
                shared.base = Some(known.tat);
            }
            (Meter::Log(_), _, Reading::Told { units, at }) => shared.log.tell(units, at),
            (Meter::Log(log), State::Log(state), Reading::Log { live, at, oldest }) => {
                let pending = pending.map(Units::of_log).fold(0, i64::saturating_add);
                let pending = u64::try_from(pending).unwrap_or(0);
                shared.log.settle((log.limit(), log.window()), state, (live, pending), at, oldest);
            }
            _ => return,
        }
        self.keep_until(self.meter.forget_at(&self.state));
    }
}

impl Units {
    /// Units of a log.
    fn of_log(&self) -> i64 {
        match self {
            Self::Log { units, .. } => *units,
            _ => 0,
        }
    }

    /// Units that were charged to this segment.
    fn of_segment(&self, of: u64) -> i64 {
        match self {
            Self::Window { segment, units } if *segment == of => *units,
            _ => 0,
        }
    }
}

fn is_of(print: Print, wanted: Print, other: &Usage, usage: &Usage) -> bool {
    print == wanted && counts_alike(&other.meter, &usage.meter)
}

impl Shared {
    /// If the bucket was empty here while this was charged, all from before has drained.
    fn forget_drained(&mut self, told: &Units) {
        if let (Units::Bucket { drain, floor }, Some(base)) = (told, self.base)
            && *floor > Timestamp::derived(base.as_nanos().saturating_add_signed(*drain))
        {
            self.unsure.clear();
        }
    }
}
