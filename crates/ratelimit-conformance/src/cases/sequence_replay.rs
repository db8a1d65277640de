//! Runs a sequence on a store, and compares each answer with the model.

use std::collections::HashMap;

use ratelimit_core::store::{Answer, Claims, Mode};
use ratelimit_core::{CounterStore, Limit, StoreError, Timestamp};

use super::sequence_parts::{Held, KEYS, Part, Shape, Slice, Step, claim_on, is_conservative, name};
use crate::describe::{answer, differences, instant};
use crate::failure::CaseResult;
use crate::model::Model;
use crate::subject::Handle;

/// The claims of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compared {
    /// The number of claims.
    pub(super) claims: u64,
    /// The number of answers that differed within the promise of a conservative store.
    pub(super) conservative: u64,
}

/// The result of a sequence.
pub(super) enum Ended {
    /// All answers are those of the model.
    Same(Compared),
    /// An answer differs.
    Differs(Difference),
    /// A step precedes an instant at which a meter was as good as new. Can happen after other steps were removed.
    Meaningless,
}

/// A difference between a store and the model.
pub(super) struct Difference {
    /// The index of the step.
    pub(super) step: usize,
    /// The expected and the actual figures.
    pub(super) what: String,
    /// The steps up to it, as text.
    pub(super) history: Vec<Reported>,
    /// The meters of the step.
    pub(super) meters: Vec<String>,
}

/// A step as text.
pub(super) struct Reported {
    pub(super) place: usize,
    pub(super) text: String,
    /// The scope and the key, which are the same for all quotas of a meter.
    pub(super) meters: Vec<String>,
}

/// A step with its answer. Becomes text only after a difference.
enum Done<'a> {
    Claimed(&'a Slice, Box<Answer>),
    GivenBack(Timestamp, Vec<(Held, u64)>),
    Reset(Timestamp, &'a Limit, usize),
}

/// A sequence in progress.
struct Replay<'a> {
    shape: Shape,
    store: &'a Handle,
    keys: Vec<Vec<u8>>,
    model: Model,
    /// No step may precede it: a meter that was as good as new then may have been removed.
    floor: Timestamp,
    pending: Vec<(usize, &'a Slice)>,
    held: HashMap<usize, Held>,
    compared: Compared,
    history: Vec<(usize, Done<'a>)>,
}

/// Runs a sequence on a store. `keys` is an unused prefix of keys.
pub(super) async fn replay(shape: Shape, store: &Handle, steps: &[Step], keys: &str) -> CaseResult<Ended> {
    let mut replay = Replay {
        shape,
        store,
        keys: (0..KEYS).map(|number| format!("{keys}:{number}").into_bytes()).collect(),
        model: Model::default(),
        floor: Timestamp::EPOCH,
        pending: Vec::new(),
        held: HashMap::new(),
        compared: Compared::default(),
        history: Vec::new(),
    };
    for (place, step) in steps.iter().enumerate() {
        if step.now() < replay.floor {
            return Ok(Ended::Meaningless);
        }
        if let Some(difference) = replay.step(place, step).await? {
            return Ok(Ended::Differs(difference));
        }
    }
    let difference = replay.flush().await?;
    Ok(difference.map_or(Ended::Same(replay.compared), Ended::Differs))
}

impl<'a> Replay<'a> {
    async fn step(&mut self, place: usize, step: &'a Step) -> CaseResult<Option<Difference>> {
        if let Step::Claim(slice) = step {
            self.pending.push((place, slice));
            return if self.pending.len() >= self.shape.batch { self.flush().await } else { Ok(None) };
        }
        if let Some(difference) = self.flush().await? {
            return Ok(Some(difference));
        }
        match step {
            Step::Claim(_) => Ok(None),
            Step::Refund { now, of } => Ok(self.refund(place, *now, of).await),
            Step::Reset { now, limit, key } => {
                let claims = [claim_on(limit, &self.keys[*key], 0)];
                let claims = Claims::new(*now, Mode::Charge, &claims)?;
                self.model.reset(claims);
                let done = self.store.reset(claims).await;
                self.history.push((place, Done::Reset(*now, limit, *key)));
                Ok(done.err().map(|error| self.differs(place, format!("the reset failed: {error}"))))
            }
        }
    }

    async fn refund(&mut self, place: usize, now: Timestamp, of: &[(usize, u64)]) -> Option<Difference> {
        // Without the charges that were removed from the sequence.
        let charges = of.iter().filter_map(|(number, cost)| Some((self.held.remove(number)?, *cost)));
        let charges: Vec<(Held, u64)> = charges.collect();
        if charges.is_empty() {
            return None;
        }
        let refunds: Vec<_> = charges.iter().map(|(held, cost)| held.refund(*cost, &self.keys)).collect();
        let done = self.store.refund(now, &refunds).await;
        if self.model.refund(now, &refunds) {
            self.floor = self.floor.max(now);
        }
        self.history.push((place, Done::GivenBack(now, charges)));
        done.err().map(|error| self.differs(place, format!("the refund failed: {error}")))
    }

    /// Sends the pending slices to the store, in one batch.
    async fn flush(&mut self) -> CaseResult<Option<Difference>> {
        let slices = std::mem::take(&mut self.pending);
        let keys = self.keys.clone();
        let claims: Vec<_> = slices.iter().map(|(_, slice)| slice.claims(&keys)).collect();
        let mut batch = Vec::new();
        for ((_, slice), claims) in slices.iter().zip(&claims) {
            batch.push(Claims::new(slice.now, slice.mode, claims)?);
        }
        let answers = match batch.as_slice() {
            [] => return Ok(None),
            [one] => vec![self.store.claim(*one).await],
            many => self.store.claim_many(many).await,
        };
        if answers.len() != batch.len() {
            let what = format!("{} answers to {} slices", answers.len(), batch.len());
            return Ok(Some(self.differs(slices[0].0, what)));
        }
        for (((place, slice), claims), found) in slices.into_iter().zip(&batch).zip(answers) {
            if let Some(difference) = self.compare(place, slice, claims, found) {
                return Ok(Some(difference));
            }
        }
        Ok(None)
    }

    fn compare(
        &mut self,
        place: usize,
        slice: &'a Slice,
        claims: &Claims<'_>,
        found: Result<Answer, StoreError>,
    ) -> Option<Difference> {
        self.compared.claims += slice.parts.len() as u64;
        let expected = self.model.claim(claims);
        let found = match found {
            Ok(found) => found,
            Err(error) => {
                self.history.push((place, Done::Claimed(slice, Box::new(expected))));
                return Some(self.differs(place, format!("the claim failed: {error}")));
            }
        };
        if found != expected {
            if !self.shape.conservative || !is_conservative(claims, &expected, &found) {
                let names: Vec<String> = slice.parts.iter().map(Part::name).collect();
                let what = differences(&expected, &found, &names);
                self.history.push((place, Done::Claimed(slice, Box::new(expected))));
                return Some(self.differs(place, what));
            }
            self.compared.conservative += 1;
        }
        if found.charged {
            self.held.extend(slice.held(&found).into_iter().map(|held| (held.part.number, held)));
        }
        self.history.push((place, Done::Claimed(slice, Box::new(found))));
        None
    }

    /// Describes a difference in the last step of the history.
    fn differs(&mut self, step: usize, what: String) -> Difference {
        let reported = |(place, done): &(usize, Done<'_>)| done.reported(*place, *place == step);
        let history: Vec<Reported> = self.history.iter().map(reported).collect();
        let meters = history.last().map(|reported| reported.meters.clone()).unwrap_or_default();
        Difference { step, what, history, meters }
    }
}

impl Done<'_> {
    fn reported(&self, place: usize, differs: bool) -> Reported {
        let (text, meters) = match self {
            Self::Claimed(slice, found) => {
                let meters = slice.parts.iter().map(|part| meter(&part.limit, part.key)).collect();
                let expected = if differs { "expected " } else { "" };
                (format!("{} -> {expected}{}", slice.describe(), answer(found)), meters)
            }
            Self::GivenBack(now, charges) => {
                let part = |(Held { part, receipt }, cost): &(Held, u64)| {
                    format!("{cost} of {}, receipt {}", part.name(), instant(receipt.instant()))
                };
                let parts: Vec<String> = charges.iter().map(part).collect();
                let meters =
                    charges.iter().map(|(Held { part, .. }, _)| meter(&part.limit, part.key)).collect();
                (format!("{} give back {}", instant(*now), parts.join(" and ")), meters)
            }
            Self::Reset(now, limit, key) => {
                (format!("{} reset {}", instant(*now), name(limit, *key)), vec![meter(limit, *key)])
            }
        };
        Reported { place, text, meters }
    }
}

fn meter(limit: &Limit, key: usize) -> String {
    format!("{} {key}", limit.scope())
}
