//! Window meters: one counter for each segment, added to first and decided on what comes back.
//!
//! A claim adds its cost to the counter of the current segment and reads those of the carried ones, in one batch. The counter's new
//! value holds everything that was admitted before it, and besides what others have added and not yet taken back. So a claim
//! that fits with it fits: never more than the limit is admitted. A claim that does not fit takes its cost back.

use std::collections::HashMap;

use ratelimit_core::{MAX_UNITS, State, Timestamp, Window, WindowState};
use smallvec::SmallVec;

use crate::error::Failure;
use crate::keys::segment_of;
use crate::lifetime::Lifetimes;
use crate::servers::{Answers, Batch, Place};
use crate::slice::{Ask, Spot};
use crate::wire;

/// Units to take off a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Take {
    pub(crate) server: usize,
    pub(crate) key: String,
    pub(crate) units: u64,
}

/// What will be taken off which counter: units that a reply still counts although they are on their way back.
#[derive(Debug, Default)]
pub(crate) struct Takes {
    units: HashMap<String, u64>,
    list: Vec<Take>,
}

/// A window's commands in a batch.
#[derive(Debug)]
pub(crate) struct Look {
    server: usize,
    /// The counter of the current segment.
    key: String,
    current: Place,
    /// What was added to it, if anything.
    reserved: u64,
    /// What of that is on its way back.
    taken: u64,
    carried: Vec<(String, Place)>,
}

impl Takes {
    fn push(&mut self, take: Take) {
        if take.units > 0 {
            *self.units.entry(take.key.clone()).or_default() += take.units;
            self.list.push(take);
        }
    }

    pub(crate) fn into_list(self) -> Vec<Take> {
        self.list
    }

    fn of(&self, key: &str) -> u64 {
        self.units.get(key).copied().unwrap_or(0)
    }
}

impl Look {
    /// Puts the commands for a claim into the batch.
    pub(crate) fn push(
        batch: &mut Batch,
        ask: &Ask,
        window: &Window,
        now: Timestamp,
        reserve: bool,
        lifetimes: &Lifetimes,
    ) -> Self {
        let Spot { name, server } = &ask.spot;
        let (index, _) = window.place(now);
        let key = segment_of(name, index);
        // Counts stay at this bound or below, and so far from where servers' arithmetic has had faults (2^63).
        let reserved = if reserve { ask.cost.min(MAX_UNITS) } else { 0 };
        let current = if reserved > 0 {
            let current = batch.push(*server, wire::add(&key, reserved, lifetimes.token(life(window))));
            batch.push(*server, wire::touch(&key));
            current
        } else {
            batch.push(*server, wire::look(&key))
        };
        let carried =
            (1..=u64::from(window.carried())).map_while(|age| index.checked_sub(age)).map(|index| {
                let key = segment_of(name, index);
                let place = batch.push(*server, wire::look(&key));
                (key, place)
            });
        let carried = carried.collect();
        Self { server: *server, key, current, reserved, taken: 0, carried }
    }

    /// The counts before the claim was added, without what is on its way back.
    pub(crate) fn state(
        &self,
        answers: &Answers,
        window: &Window,
        now: Timestamp,
        takes: &Takes,
    ) -> Result<State, Failure> {
        let mut counts: SmallVec<[u64; 2]> = SmallVec::with_capacity(window.carried() as usize + 1);
        let current = count(answers, self.current)?;
        counts.push(current.saturating_sub(self.reserved).saturating_sub(takes.of(&self.key)).min(MAX_UNITS));
        for (key, place) in &self.carried {
            counts.push(count(answers, *place)?.saturating_sub(takes.of(key)).min(MAX_UNITS));
        }
        counts.resize(window.carried() as usize + 1, 0);
        Ok(State::Window(WindowState { at: now, counts }))
    }

    /// Takes the reservation back. Nothing is taken if it is not known whether it was made.
    pub(crate) fn undo(&mut self, answers: &Answers, takes: &mut Takes) {
        if answers.reply(self.current).is_ok() {
            self.take(self.reserved - self.taken, takes);
        }
    }

    /// Takes back what is beyond the most that a meter counts: a forced charge may have led there.
    pub(crate) fn trim(&mut self, answers: &Answers, takes: &mut Takes) {
        if self.reserved > 0 {
            let after = count(answers, self.current).unwrap_or(0).saturating_sub(takes.of(&self.key));
            self.take(after.saturating_sub(MAX_UNITS).min(self.reserved), takes);
        }
    }

    fn take(&mut self, units: u64, takes: &mut Takes) {
        self.taken += units;
        takes.push(Take { server: self.server, key: self.key.clone(), units });
    }

    /// Whether it may be that units were added of which nothing is known.
    pub(crate) fn is_ambiguous(&self, answers: &Answers) -> bool {
        self.reserved > 0 && answers.reply(self.current).as_ref().is_err_and(Failure::is_maybe_applied)
    }
}

fn count(answers: &Answers, place: Place) -> Result<u64, Failure> {
    answers.reply(place).as_ref().map_err(Failure::clone)?.count()
}

/// How long a counter matters from the begin of its segment on.
fn life(window: &Window) -> u64 {
    window.segment().saturating_mul(u64::from(window.carried()) + 1)
}

/// What a refund takes off which counter.
pub(crate) fn refund(ask: &Ask, window: &Window, receipt: Timestamp) -> Take {
    let (index, _) = window.place(receipt);
    let key = segment_of(&ask.spot.name, index);
    Take { server: ask.spot.server, key, units: ask.cost.min(MAX_UNITS) }
}

/// The counters that matter around an instant.
pub(crate) struct Counters {
    /// Those that somebody may be adding to: of the current segment, and of its neighbours, where callers are whose
    /// clocks differ.
    pub(crate) live: Vec<String>,
    /// Older ones that still count.
    pub(crate) past: Vec<String>,
}

/// The counters of a window that matter around `now`.
pub(crate) fn counters(name: &str, window: &Window, now: Timestamp) -> Counters {
    let (index, _) = window.place(now);
    let of = |index| segment_of(name, index);
    let live = index.saturating_sub(1)..=index + 1;
    let past = index.saturating_sub(u64::from(window.carried()))..*live.start();
    Counters { live: live.map(of).collect(), past: past.map(of).collect() }
}
