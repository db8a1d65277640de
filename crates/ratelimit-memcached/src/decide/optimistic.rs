//! Bucket and log meters: one item holds the whole state, which is read, decided on, and written if unchanged.
//!
//! [`Optimistic`](ratelimit_store_kit::Optimistic) would not do: it needs a server that compares several items at once.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::meter::{Meter, State};
use ratelimit_core::{ErrorKind, StoreError, Timestamp};

use crate::decide::claims::{MeterLocation, OwnedClaim};
use crate::error::{self, ERRORS};
use crate::servers::{Answers, Batch, CommandIndex};
use crate::wire::commands::Command;
use crate::wire::lifetime::Lifetimes;
use crate::wire::reply::Reply;

/// The states of bucket and log meters during a decision.
#[derive(Debug)]
pub(crate) struct Entries {
    lifetimes: Lifetimes,
    entries: Vec<Entry>,
    places: HashMap<Arc<str>, usize>,
}

/// The state of one meter.
#[derive(Debug)]
struct Entry {
    location: MeterLocation,
    place: CommandIndex,
    /// The unique number of the item when it was read; `None` if there was none.
    unique: Option<u64>,
    state: Result<Option<State>, StoreError>,
    /// The lifetime of the item.
    lifetime: u64,
    is_changed: bool,
}

/// The outcome of a change.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// There was no change.
    Unchanged,
    /// The change is stored.
    Stored,
    /// Another writer was faster.
    Lost,
    /// The failure says whether the change may be stored.
    Failed(StoreError),
}

/// Refuses a log that may grow beyond the size of an item.
pub(crate) fn check_size(meter: &Meter, max_value: usize) -> Result<(), StoreError> {
    match meter {
        Meter::Log(log) => check_units(usize::try_from(log.limit()).unwrap_or(usize::MAX), max_value),
        Meter::Window(_) | Meter::Bucket(_) => Ok(()),
    }
}

/// Refuses the state of a log that is larger than an item.
pub(crate) fn check_state(state: &State, max_value: usize) -> Result<(), StoreError> {
    match state {
        State::Log(log) => check_units(log.units.len(), max_value),
        State::Window(_) | State::Bucket(_) => Ok(()),
    }
}

fn check_units(units: usize, max_value: usize) -> Result<(), StoreError> {
    if units.checked_mul(8).and_then(|bytes| bytes.checked_add(1)).is_some_and(|bytes| bytes <= max_value) {
        return Ok(());
    }
    let message = format!(
        "a sliding log of {units} units does not fit into an item; use a sliding window, or raise the servers' option -I and `max_item_size`"
    );
    Err(ERRORS.of(ErrorKind::Unsupported, message))
}

impl Entries {
    pub(crate) fn new(lifetimes: Lifetimes) -> Self {
        Self { lifetimes, entries: Vec::new(), places: HashMap::new() }
    }

    /// Adds the read of a meter to the batch, once; returns its index.
    pub(crate) fn push(&mut self, batch: &mut Batch<'_>, location: &MeterLocation) -> usize {
        if let Some(nth) = self.places.get(&location.name) {
            return *nth;
        }
        let place = batch.push(location.server, &location.name, Command::Read);
        self.entries.push(Entry {
            location: location.clone(),
            place,
            unique: None,
            state: Ok(None),
            lifetime: 0,
            is_changed: false,
        });
        self.places.insert(location.name.clone(), self.entries.len() - 1);
        self.entries.len() - 1
    }

    /// Decodes the states from the answers.
    pub(crate) fn receive(&mut self, answers: &Answers) {
        for entry in &mut self.entries {
            let reply = answers.reply(entry.place);
            if let Ok(Reply::Value { left: Some(left), .. }) = reply {
                entry.lifetime = self.lifetimes.of_left(*left);
            }
            let (state, unique) = match reply {
                Ok(Reply::Missing) => (Ok(None), None),
                // The plain protocol creates a meter with an empty value.
                Ok(Reply::Value { bytes, unique: Some(unique), .. }) if bytes.is_empty() => {
                    (Ok(None), Some(*unique))
                }
                Ok(Reply::Value { bytes, unique: Some(unique), .. }) => {
                    (State::from_bytes(bytes).map(Some).map_err(|_| ERRORS.corrupt_value()), Some(*unique))
                }
                Ok(_) => (Err(error::strange_response()), None),
                Err(failure) => (Err(failure.clone()), None),
            };
            (entry.state, entry.unique) = (state, unique);
        }
    }

    /// The state of a meter after the changes so far.
    pub(crate) fn state(&self, nth: usize) -> Result<Option<State>, StoreError> {
        self.entries[nth].state.clone()
    }

    /// Changes the state of a meter.
    pub(crate) fn change(&mut self, nth: usize, state: Option<State>, meter: &Meter, now: Timestamp) {
        let entry = &mut self.entries[nth];
        let life = state.as_ref().map_or(Duration::ZERO, |state| meter.forget_at(state).since(now));
        let lifetime = self.lifetimes.token(u64::try_from(life.as_nanos()).unwrap_or(u64::MAX));
        // The units of another limit may count for longer: concurrency limits with different leases share a log.
        let is_shared = matches!(&state, Some(State::Log(log)) if !log.units.is_empty());
        entry.lifetime = if is_shared { lifetime.max(entry.lifetime) } else { lifetime };
        (entry.state, entry.is_changed) = (Ok(state), true);
    }

    /// Whether any of them was changed.
    pub(crate) fn are_changed(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_changed)
    }

    /// Adds the writes of changed meters to a batch, in the order of their names: of several writers of the same items, the
    /// one that writes one of them first is then usually the first on the others as well.
    pub(crate) fn write(&self, batch: &mut Batch<'_>) -> Vec<Option<CommandIndex>> {
        let mut write = |entry: &Entry| {
            let state = entry.state.as_ref().ok()?.as_ref().filter(|_| entry.is_changed)?;
            let Entry { unique, lifetime, .. } = *entry;
            let command = Command::Write { value: state.to_bytes(), unique, lifetime };
            Some(batch.push(entry.location.server, &entry.location.name, command))
        };
        let mut order: Vec<usize> = (0..self.entries.len()).collect();
        order.sort_unstable_by_key(|nth| &self.entries[*nth].location.name);
        let mut places = vec![None; self.entries.len()];
        for nth in order {
            places[nth] = write(&self.entries[nth]);
        }
        places
    }
}

impl Written {
    pub(crate) fn new(answers: &Answers, place: Option<CommandIndex>) -> Self {
        match place.map(|place| answers.reply(place)) {
            None => Self::Unchanged,
            Some(Ok(Reply::Done)) => Self::Stored,
            Some(Ok(Reply::Lost | Reply::Missing)) => Self::Lost,
            Some(Ok(Reply::Value { .. })) => Self::Failed(error::strange_response()),
            Some(Err(failure)) => Self::Failed(failure.clone()),
        }
    }
}

/// Whether the claim's meter is stored as a whole.
pub(crate) fn is_optimistic(claim: &OwnedClaim) -> bool {
    !matches!(claim.meter, Meter::Window(_))
}

/// The pause before a write is tried again: grows from attempt to attempt, and is random, so that colliding writers do not
/// collide again. Shorter than those of [`Backoff`](ratelimit_store_kit::Backoff), which are for transactions with locks.
pub(crate) fn pause(attempt: u32) -> Duration {
    let most = 100_u64 << attempt.min(6);
    Duration::from_micros(RandomState::new().hash_one(attempt) % most)
}
