//! What a shared store says of a meter, put in the place of what was known: its units are those of all nodes.

use std::ops::RangeInclusive;

use ratelimit_core::{CLOCK_SLACK, Debt, MAX_PERIOD_NANOS, MAX_UNITS, Meter, MeterId, State, Timestamp};
use smallvec::{SmallVec, smallvec};

use super::entry::{Entry, Tellings, counts_together};
use super::logbook::LogBook;
use super::merge::{self, turn_to};
use super::units::{moved, place, signed};
use super::{Ledger, Units, Usage};

/// What a shared store says after it was told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reading {
    /// All units of one segment; if it is the newest, when the store was asked.
    Window { segment: u64, total: u64, newest_at: Option<Timestamp> },
    /// What a bucket owes.
    Bucket(Owed),
    /// Units of a log have been told, as of which instant.
    Told { units: u64, at: Timestamp },
    /// How many units of a log are live at an instant; if it is full, of which instant the oldest is.
    Log { live: u64, at: Timestamp, oldest: Option<Timestamp> },
}

/// What a shared store says of a bucket, whatever the rates at which its units drain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    /// How many units have not drained, those begun counted whole.
    pub(crate) units: u64,
    /// When all of them will have.
    pub(crate) tat: Timestamp,
    /// As of when it was asked. It has decided as of its newest charge, if that is later.
    pub(crate) at: Timestamp,
    /// When it was asked.
    pub(crate) now: Timestamp,
    /// Whether nothing says that there are units of other rates than the one that was asked for.
    pub(crate) has_one_rate: bool,
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
    unsure: Vec<(Meter, Units)>,
    /// When all had drained after the last reading.
    base: Option<Timestamp>,
    /// Whether that told nothing of a bucket that was not known.
    is_known: bool,
    /// Whose the units of a log are.
    log: LogBook,
}

impl Ledger {
    /// Which segments of the window have to be read when this is told. One that has ended is read [`READ_AGAIN`] times
    /// more: other nodes tell within an interval, and the time that a trip takes, what they charged in it.
    pub(crate) fn segments(&self, usage: &Usage, now: Timestamp) -> Option<RangeInclusive<u64>> {
        self.with(usage, |entry, _| match (&entry.meter, &entry.state) {
            (Meter::Window(window), State::Window(state)) if counts_together(&entry.meter, &usage.meter) => {
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

    /// Whether all units of a bucket drain at this rate, as far as is known.
    pub(crate) fn has_one_rate(&self, id: &MeterId<'_>, interval: u64) -> bool {
        let print = self.prints.of(id);
        let is_alone = |entry: &mut Entry<'_>| match &entry.state {
            State::Bucket(state) => state.only_debt().is_some_and(|debt| debt.interval == interval),
            _ => true,
        };
        self.shard(print).open(print, |entry, _| is_alone(entry)).unwrap_or(true)
    }

    /// The receipt by which the store gives back what takes so long to drain of a bucket with several rates, if it has no units
    /// that are not known here.
    pub(crate) fn receipt(
        &self,
        id: &MeterId<'_>,
        interval: u64,
        time: u64,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let print = self.prints.of(id);
        let receipt = |entry: &mut Entry<'_>| {
            entry.cold.shared.as_ref().filter(|shared| shared.is_known)?;
            let State::Bucket(state) = &entry.state else { return None };
            let newest = state.debts.iter().find(|debt| debt.interval == interval)?.receipt;
            let front = state.drained_to(interval, now)?;
            // If nothing is left it is that of all. A nanosecond of slower units, of which a part counts as a whole one, is nothing.
            let is_all = newest.as_nanos() <= front.as_nanos() + 1;
            Some(moved(if is_all { now.max(state.at) } else { front }, signed(time)))
        };
        self.shard(print).open(print, |entry, _| receipt(entry)).flatten()
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
            if adds && counts_together(&entry.meter, &usage.meter) {
                entry.cold.shared.get_or_insert_default().unsure.push((usage.meter, usage.units));
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
        if !counts_together(&self.meter, &usage.meter) || !self.meter.owns(&self.state) {
            return;
        }
        let print = self.print;
        let shared = self.cold.shared.get_or_insert_default();
        let is_of_this =
            |(of, other): &&(_, Usage)| *of == print && counts_together(&other.meter, &usage.meter);
        let outbox = tellings.outbox.iter().filter(is_of_this).map(|(_, other)| (other.meter, other.units));
        let pending = outbox.chain(self.pending.map(|units| (self.meter, units)));
        match (&self.meter, &mut self.state, reading) {
            (Meter::Window(window), State::Window(state), Reading::Window { segment, total, newest_at }) => {
                let oldest = window.place(state.at).0.saturating_sub(window.carried().into());
                shared.unsure.retain(
                    |units| matches!(units, (_, Units::Window { segment, .. }) if *segment >= oldest),
                );
                if total > 0 {
                    turn_to(window, state, segment);
                }
                if let Some(place) = place(window, state, segment) {
                    let beside = pending.chain(shared.unsure.iter().copied());
                    let beside = beside.map(|(_, units)| units.of_segment(segment));
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
            (_, state @ State::Bucket(_), Reading::Bucket(owed)) => {
                shared.forget_drained(&usage.units);
                let beside: SmallVec<[_; 4]> = shared.unsure.iter().copied().chain(pending).collect();
                shared.is_known = owed.settle(&usage.meter, state, &beside);
                shared.base = if let State::Bucket(state) = state { state.tat() } else { None };
            }
            (Meter::Log(_), _, Reading::Told { units, at }) => shared.log.tell(units, at),
            (Meter::Log(log), State::Log(state), Reading::Log { live, at, oldest }) => {
                let pending = pending.map(|(_, units)| units.of_log()).fold(0, i64::saturating_add);
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

impl Owed {
    /// Puts what the store says, and what is to be counted beside it, in the place of what was known, unless that is the same:
    /// then it is so with the rates of all its units.
    fn settle(&self, asked: &Meter, state: &mut State, beside: &[(Meter, Units)]) -> bool {
        let (State::Bucket(known), Meter::Bucket(bucket)) = (&mut *state, asked) else { return false };
        let is_known = known.tat() == Some(self.tat) && known.owed(self.now) == self.units;
        if beside.is_empty() && is_known {
            return true;
        }
        known.debts = smallvec![self.debt(bucket.interval())];
        for (meter, units) in beside {
            merge::add(meter, state, units);
        }
        false
    }

    /// Of several rates never less than what the store owes, if it has decided within [`CLOCK_SLACK`] after it was asked.
    ///
    /// Each of its debts is then of no more than all units, and of none when all have drained. So none is larger than this one,
    /// which goes evenly from the one to the other, and is later by the slack, or by half of its length.
    pub(super) fn debt(&self, interval: u64) -> Debt {
        let until_drained = |from: Timestamp| self.tat.as_nanos().saturating_sub(from.as_nanos());
        let left = until_drained(self.now);
        let may_be_alone = until_drained(self.at) > self.units.saturating_sub(1).saturating_mul(interval);
        if self.has_one_rate && may_be_alone || left == 0 {
            return Debt::only(self.tat, interval);
        }
        let evenly = left.checked_div(self.units).unwrap_or(interval);
        let late = left.min(CLOCK_SLACK.as_secs() * 1_000_000_000);
        let tat = moved(self.tat, signed(late));
        Debt::only(tat, evenly.clamp(1, MAX_PERIOD_NANOS))
    }
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
