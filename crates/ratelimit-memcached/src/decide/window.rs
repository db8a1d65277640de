//! Window meters: one counter for each segment, which is incremented first and decided on with the reply.
//!
//! A claim adds its cost to the counter of the current segment and reads those of the carried segments, in one batch. The
//! new value of the counter includes everything that was admitted before, and also what other callers have added and not
//! yet taken back. A claim that fits with all of that fits, so the limit is never exceeded. A claim that does not fit takes
//! its cost back.
//!
//! A reset replaces a counter by a mark; from then on the segment is counted under a name with this mark. If a claim has
//! reserved before the reset and takes its units back after it, it meets the mark and takes nothing off what has been
//! counted since.
//!
//! A reset replaces the newest counter first, and a claim reads it last. So a claim that misses units of an older segment
//! because of a reset also meets the mark of the current one, and is counted after the reset. A reset marks the segment of
//! its own time and its neighbours. A claim whose time is further away, with segments of a few milliseconds, meets no mark.

use std::collections::BTreeMap;
use std::iter;

use ratelimit_core::meter::{MAX_UNITS, State, Window, WindowState};
use ratelimit_core::store::Receipt;
use ratelimit_core::{StoreError, Timestamp};
use smallvec::SmallVec;

use crate::decide::claims::{MeterLocation, OwnedClaim};
use crate::error;
use crate::servers::{Answers, Batch, CommandIndex};
use crate::wire::commands::Command;
use crate::wire::keys::{segment_of, since_reset};
use crate::wire::lifetime::Lifetimes;
use crate::wire::reply::Counter;

/// Units to take off a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deduction {
    pub(crate) server: usize,
    pub(crate) key: String,
    pub(crate) units: u64,
}

/// The server of each counter, and the units to take off it. Replies that were received before still contain them.
#[derive(Debug, Default)]
pub(crate) struct Deductions(BTreeMap<String, (usize, u64)>);

/// A window's commands in a batch.
#[derive(Debug)]
pub(crate) struct WindowCommands {
    window: Window,
    server: usize,
    /// The counter of the current segment.
    current: CounterIndex,
    /// The place of the segment's new count, if something was added to it.
    added: Option<CommandIndex>,
    /// The lifetime of a new counter.
    lifetime: u64,
    /// The units that were added to the counter of the current segment.
    reserved: u64,
    /// How many of those are being taken back.
    taken: u64,
    carried: SmallVec<[CounterIndex; 1]>,
}

/// A counter, and the place of its value in the answers.
#[derive(Debug)]
struct CounterIndex {
    key: String,
    value: CommandIndex,
}

impl Deduction {
    /// Adds its command to the batch.
    pub(crate) fn push(&self, batch: &mut Batch<'_>) -> CommandIndex {
        batch.push(self.server, &self.key, Command::Deduction { units: self.units })
    }
}

impl Deductions {
    fn push(&mut self, Deduction { server, key, units }: Deduction) {
        if units > 0 {
            self.0.entry(key).or_insert((server, 0)).1 += units;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn into_list(self) -> Vec<Deduction> {
        self.0.into_iter().map(|(key, (server, units))| Deduction { server, key, units }).collect()
    }

    fn of(&self, key: &str) -> u64 {
        self.0.get(key).map_or(0, |(_, units)| *units)
    }
}

impl WindowCommands {
    /// Adds the commands for a claim to the batch.
    pub(crate) fn push(
        batch: &mut Batch<'_>,
        claim: &OwnedClaim,
        window: &Window,
        now: Timestamp,
        reserve: bool,
        lifetimes: &Lifetimes,
    ) -> Self {
        let MeterLocation { name, server } = &claim.key;
        let (index, _) = window.place(now);
        // A count stays at this bound or below, apart from reservations: far from 2^63, where servers have had arithmetic
        // errors.
        let reserved = if reserve { claim.cost.min(MAX_UNITS) } else { 0 };
        let lifetime = lifetimes.token(life(window));
        let current = segment_of(name, index);
        let added = add(batch, *server, &current, reserved, lifetime);
        let carried = (1..=u64::from(window.carried())).map_while(|age| index.checked_sub(age));
        let carried =
            carried.map(|index| CounterIndex::push(batch, *server, segment_of(name, index))).collect();
        let current = CounterIndex::push(batch, *server, current);
        Self { window: *window, server: *server, current, added, lifetime, reserved, taken: 0, carried }
    }

    /// Whether one of its counters has been replaced by the mark of a reset.
    pub(crate) fn meets_reset(&self, answers: &Answers) -> bool {
        iter::once(&self.current).chain(&self.carried).any(|counter| counter.moved(answers).is_some())
    }

    /// Adds the commands for the counters that follow the marks of resets. What was added before a reset counts no more.
    pub(crate) fn follow(&mut self, answers: &Answers, batch: &mut Batch<'_>) {
        if let Some(key) = self.current.moved(answers) {
            self.added = add(batch, self.server, &key, self.reserved, self.lifetime);
            self.current = CounterIndex::push(batch, self.server, key);
        }
        for counter in &mut self.carried {
            if let Some(key) = counter.moved(answers) {
                *counter = CounterIndex::push(batch, self.server, key);
            }
        }
    }

    /// The counts before this claim, without the units that are being taken back.
    pub(crate) fn state(
        &self,
        answers: &Answers,
        now: Timestamp,
        deductions: &Deductions,
    ) -> Result<State, StoreError> {
        let segments = self.window.carried() as usize + 1;
        let mut counts: SmallVec<[u64; 2]> = SmallVec::with_capacity(segments);
        let current = count(answers, self.counted())?.saturating_sub(self.reserved);
        counts.push(current.saturating_sub(deductions.of(&self.current.key)).min(MAX_UNITS));
        for CounterIndex { key, value } in &self.carried {
            counts.push(count(answers, *value)?.saturating_sub(deductions.of(key)).min(MAX_UNITS));
        }
        counts.resize(segments, 0);
        Ok(State::Window(WindowState { at: now, counts }))
    }

    /// Takes the reservation back. Takes nothing if it is unknown whether the reservation was made.
    pub(crate) fn undo(&mut self, answers: &Answers, deductions: &mut Deductions) {
        if answers.reply(self.counted()).is_ok() {
            self.take(self.reserved - self.taken, deductions);
        }
    }

    /// Whether units are being taken back.
    pub(crate) fn is_undone(&self) -> bool {
        self.taken > 0
    }

    /// Takes back what exceeds the maximum count of a meter, which a forced charge can reach.
    pub(crate) fn trim(&mut self, answers: &Answers, deductions: &mut Deductions) {
        if self.reserved > 0 {
            let after = count(answers, self.counted()).unwrap_or(0);
            let after = after.saturating_sub(deductions.of(&self.current.key));
            self.take(after.saturating_sub(MAX_UNITS).min(self.reserved), deductions);
        }
    }

    fn take(&mut self, units: u64, deductions: &mut Deductions) {
        self.taken += units;
        deductions.push(Deduction { server: self.server, key: self.current.key.clone(), units });
    }

    /// Whether units may have been added without a reply.
    pub(crate) fn is_ambiguous(&self, answers: &Answers) -> bool {
        self.reserved > 0 && answers.reply(self.counted()).as_ref().is_err_and(error::is_maybe_applied)
    }

    /// The place of the current segment's count in the answers.
    fn counted(&self) -> CommandIndex {
        self.added.unwrap_or(self.current.value)
    }
}

impl CounterIndex {
    fn push(batch: &mut Batch<'_>, server: usize, key: String) -> Self {
        let value = batch.push(server, &key, Command::ReadCounter);
        Self { key, value }
    }

    /// The name under which it is counted after a reset.
    fn moved(&self, answers: &Answers) -> Option<String> {
        match answers.reply(self.value).as_ref().ok()?.counter() {
            Ok(Counter::Reset(mark)) => Some(since_reset(&self.key, mark)),
            _ => None,
        }
    }
}

/// Adds to a counter, unless that is zero. It is read in any case: the read returns the mark of a reset, and marks the counter as
/// used, because additions alone leave it among the first to be evicted.
fn add(batch: &mut Batch<'_>, server: usize, key: &str, units: u64, lifetime: u64) -> Option<CommandIndex> {
    (units > 0).then(|| batch.push(server, key, Command::Add { units, lifetime }))
}

fn count(answers: &Answers, place: CommandIndex) -> Result<u64, StoreError> {
    match answers.reply(place).as_ref().map_err(StoreError::clone)?.counter()? {
        Counter::Count(count) => Ok(count),
        Counter::Reset(_) => Err(error::contended()), // not here: such a claim is tried again
    }
}

/// How long a counter is relevant, from the beginning of its segment.
pub(crate) fn life(window: &Window) -> u64 {
    window.segment().saturating_mul(u64::from(window.carried()) + 1)
}

/// The units that a refund takes off a counter.
pub(crate) fn refund(claim: &OwnedClaim, window: &Window, receipt: Receipt) -> Deduction {
    let (index, _) = window.place(receipt.instant());
    let key = segment_of(&claim.key.name, index);
    Deduction { server: claim.key.server, key, units: claim.cost.min(MAX_UNITS) }
}

/// The counters that are relevant around an instant, newest first.
pub(crate) struct Counters {
    /// Those that callers may be adding to: of the current segment, and of its neighbours, because clocks differ.
    pub(crate) live: Vec<String>,
    /// Older ones that still count.
    pub(crate) past: Vec<String>,
}

/// The counters of a window that are relevant around `now`.
pub(crate) fn counters(name: &str, window: &Window, now: Timestamp) -> Counters {
    let (index, _) = window.place(now);
    let of = |index| segment_of(name, index);
    let live = index.saturating_sub(1)..=index + 1;
    let past = index.saturating_sub(u64::from(window.carried()))..*live.start();
    Counters { live: live.rev().map(of).collect(), past: past.rev().map(of).collect() }
}
