//! Bucket and log meters: the whole state in one item, read, decided on, and written if nobody else has written it meanwhile.

use std::collections::HashMap;
use std::sync::Arc;

use ratelimit_core::{ErrorKind, Meter, State, Timestamp};

use crate::error::Failure;
use crate::lifetime::Lifetimes;
use crate::reply::Reply;
use crate::servers::{Answers, Batch, Place};
use crate::slice::{Ask, Spot};
use crate::wire::Command;

/// The states of bucket and log meters on their way through a decision.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    cells: Vec<Cell>,
    places: HashMap<Arc<str>, usize>,
}

/// The state of one meter.
#[derive(Debug)]
struct Cell {
    spot: Spot,
    place: Place,
    /// The number that the item had when it was read; `None` if there was none.
    unique: Option<u64>,
    state: Result<Option<State>, Failure>,
    /// How the newest change counted, and when it was made.
    changed: Option<(Meter, Timestamp)>,
}

/// What became of a change.
#[derive(Clone, Debug)]
pub(crate) enum Written {
    /// There was none.
    Unchanged,
    /// It is stored.
    Stored,
    /// Somebody else was faster.
    Lost,
    /// It may be stored or not, as the failure says.
    Failed(Failure),
}

/// Refuses a log that may grow beyond the size of an item.
pub(crate) fn check_size(meter: &Meter, max_value: usize) -> Result<(), Failure> {
    let Meter::Log(log) = meter else { return Ok(()) };
    let bytes = usize::try_from(log.limit()).ok().and_then(|units| units.checked_mul(8)?.checked_add(1));
    if bytes.is_some_and(|bytes| bytes <= max_value) {
        return Ok(());
    }
    let message = format!(
        "a sliding log of {} units does not fit into an item; use a sliding window, or raise the servers' option -I and `max_item_size`",
        log.limit()
    );
    Err(Failure::new(ErrorKind::Unsupported, message))
}

impl Cells {
    /// Puts the reading of a meter into the batch, once; gives its number here.
    pub(crate) fn push(&mut self, batch: &mut Batch, spot: &Spot) -> usize {
        if let Some(nth) = self.places.get(&spot.name) {
            return *nth;
        }
        let place = batch.push(spot.server, &Command::Read { key: &spot.name });
        self.cells.push(Cell { spot: spot.clone(), place, unique: None, state: Ok(None), changed: None });
        self.places.insert(spot.name.clone(), self.cells.len() - 1);
        self.cells.len() - 1
    }

    /// Takes the states from the answers.
    pub(crate) fn receive(&mut self, answers: &Answers) {
        for cell in &mut self.cells {
            let (state, unique) = match answers.reply(cell.place) {
                Ok(Reply::Missing) => (Ok(None), None),
                Ok(Reply::Value { bytes, unique: Some(unique) }) => {
                    (State::from_bytes(bytes).map(Some).map_err(|_| Failure::corrupt()), Some(*unique))
                }
                Ok(_) => (Err(Failure::strange_response()), None),
                Err(failure) => (Err(failure.clone()), None),
            };
            (cell.state, cell.unique) = (state, unique);
        }
    }

    /// The state of a meter as it stands after the changes so far.
    pub(crate) fn state(&self, nth: usize) -> Result<Option<State>, Failure> {
        self.cells[nth].state.clone()
    }

    /// Changes it.
    pub(crate) fn change(&mut self, nth: usize, state: Option<State>, meter: &Meter, now: Timestamp) {
        self.cells[nth].state = Ok(state);
        self.cells[nth].changed = Some((*meter, now));
    }

    /// Whether one of them was changed.
    pub(crate) fn are_changed(&self) -> bool {
        self.cells.iter().any(|cell| cell.changed.is_some())
    }

    /// Puts the writing of what was changed into a batch.
    pub(crate) fn write(&self, batch: &mut Batch, lifetimes: &Lifetimes) -> Vec<Option<Place>> {
        let write = |cell: &Cell| {
            let (meter, now) = cell.changed.as_ref()?;
            let state = cell.state.as_ref().ok()?.as_ref()?;
            let life = meter.forget_at(state).since(*now);
            let lifetime = lifetimes.token(u64::try_from(life.as_nanos()).unwrap_or(u64::MAX));
            let value = &state.to_bytes();
            let command = Command::Write { key: &cell.spot.name, value, unique: cell.unique, lifetime };
            Some(batch.push(cell.spot.server, &command))
        };
        self.cells.iter().map(write).collect()
    }
}

impl Written {
    pub(crate) fn new(answers: &Answers, place: Option<Place>) -> Self {
        match place.map(|place| answers.reply(place)) {
            None => Self::Unchanged,
            Some(Ok(Reply::Done)) => Self::Stored,
            Some(Ok(Reply::Lost | Reply::Missing)) => Self::Lost,
            Some(Ok(Reply::Value { .. })) => Self::Failed(Failure::strange_response()),
            Some(Err(failure)) => Self::Failed(failure.clone()),
        }
    }
}

/// Whether a claim changes a meter that is kept as a whole.
pub(crate) fn is_optimistic(ask: &Ask) -> bool {
    !matches!(ask.meter, Meter::Window(_))
}
