//! Random sequences of claims, refunds, resets and changed limits, compared with the model answer by answer.

use std::time::Duration;

use ratelimit_core::{
    Answer, CLOCK_SLACK, Claim, Claims, CounterStore, Limit, MAX_UNITS, MeterId, Mode, Refund, Timestamp,
};

use super::sequence_parts::{Owned, describe, is_conservative, random_limit};
use crate::bench::{Handle, START};
use crate::failure::{CaseResult, Failure};
use crate::kind::Kind;
use crate::model::Model;
use crate::random::Random;

/// What a sequence is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// The kinds of limit; two limits of each.
    pub(super) kinds: &'static [Kind],
    /// How long a sequence is.
    pub(super) steps: u64,
    /// The shortest and the longest period, in microseconds.
    pub(super) periods: (u64, u64),
    /// The largest quota.
    pub(super) quota: u64,
    /// Whether quotas, bursts and rates change on the way.
    pub(super) changes: bool,
    /// Whether the clock steps back.
    pub(super) steps_back: bool,
    /// The most limits and the most keys of one slice.
    pub(super) slice: (usize, usize),
    /// Slices that go out in one batch.
    pub(super) batch: usize,
    /// Whether an answer may now and then be a conservative one.
    pub(super) conservative: bool,
}

/// What came of a sequence.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compared {
    /// How many claims.
    pub(super) claims: u64,
    /// How many answers differed, and only in what a conservative store may say.
    pub(super) conservative: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            kinds: &Kind::ALL,
            steps: 250,
            periods: (60_000_000, 7_200_000_000),
            quota: 20,
            changes: false,
            steps_back: true,
            slice: (3, 2),
            batch: 50,
            conservative: false,
        }
    }
}

/// Units that were charged and may be given back.
struct Held {
    limit: Limit,
    key: Vec<u8>,
    cost: u64,
    receipt: Timestamp,
}

/// One sequence on its way.
pub(super) struct Sequence {
    shape: Shape,
    random: Random,
    store: Handle,
    model: Model,
    slots: Vec<(Kind, Duration, Limit)>,
    keys: Vec<Vec<u8>>,
    now: Timestamp,
    newest: Timestamp,
    /// Nothing steps back before it: a meter that was as new then may have been forgotten.
    floor: Timestamp,
    pending: Vec<Owned>,
    held: Vec<Held>,
    compared: Compared,
    history: Vec<String>,
}

impl Sequence {
    /// A sequence of its own keys, made of the numbers of this seed.
    pub(super) fn new(shape: Shape, store: Handle, seed: u64, keys: &str) -> CaseResult<Self> {
        let mut random = Random::new(seed);
        let keys = (0..3).map(|number| format!("{keys}:{number}").into_bytes()).collect();
        let mut slots = Vec::new();
        for kind in shape.kinds {
            for name in ["a", "b"] {
                let micros = random.between(shape.periods.0 / 4, shape.periods.1 / 4) * 4;
                let period = Duration::from_micros(micros);
                slots.push((*kind, period, random_limit(&mut random, *kind, period, name, &shape)?));
            }
        }
        let now = START + Duration::from_nanos(random.below(shape.periods.1 * 1_000));
        Ok(Self {
            shape,
            random,
            store,
            model: Model::default(),
            slots,
            keys,
            now,
            newest: now,
            floor: Timestamp::EPOCH,
            pending: Vec::new(),
            held: Vec::new(),
            compared: Compared::default(),
            history: Vec::new(),
        })
    }

    /// Runs it.
    pub(super) async fn run(mut self) -> CaseResult<Compared> {
        for _ in 0..self.shape.steps {
            self.move_clock();
            match self.random.below(100) {
                0..6 => self.refund().await?,
                6..8 => self.reset().await?,
                8..14 if self.shape.changes => self.change()?,
                _ => {
                    let slice = self.slice();
                    self.compared.claims += slice.parts.len() as u64;
                    self.pending.push(slice);
                    if self.pending.len() >= self.shape.batch {
                        self.flush().await?;
                    }
                }
            }
        }
        self.flush().await?;
        Ok(self.compared)
    }

    fn move_clock(&mut self) {
        let period = self.shape.periods.1.saturating_mul(1_000);
        let step = match self.random.below(20) {
            0..6 => 0,
            6..8 => self.random.between(1, 3),
            8..13 => self.random.below(period / 50 + 2),
            13..17 => self.random.below(self.shape.periods.0 * 1_000),
            17 => self.random.below(period * 3),
            // To the very end of some segment, which is a whole number of microseconds.
            18 => 1_000 - self.now.as_nanos() % 1_000,
            _ if self.shape.steps_back => {
                let slack = u64::try_from(CLOCK_SLACK.as_nanos()).unwrap_or(0);
                let back = self.newest.as_nanos() - self.random.below(slack);
                self.now = Timestamp::from_nanos(back).max(self.floor);
                return;
            }
            _ => 1,
        };
        self.now = self.now + Duration::from_nanos(step);
        self.newest = self.newest.max(self.now);
    }

    fn slice(&mut self) -> Owned {
        let mode = match self.random.below(10) {
            0 => Mode::Peek,
            1 => Mode::Force,
            _ => Mode::Charge,
        };
        let limits = self.random.between(1, self.shape.slice.0 as u64);
        let keys = self.random.between(1, self.shape.slice.1 as u64);
        let mut parts: Vec<(Limit, Vec<u8>, u64)> = Vec::new();
        for _ in 0..limits * keys {
            let limit = self.slots[self.random.place(self.slots.len())].2.clone();
            let key = self.keys[self.random.place(self.keys.len())].clone();
            let taken = parts.iter().any(|(other, of, _)| other.scope() == limit.scope() && *of == key);
            if !taken {
                let cost = self.cost(limit.burst());
                parts.push((limit, key, cost));
            }
        }
        Owned { now: self.now, mode, parts }
    }

    fn cost(&mut self, most: u64) -> u64 {
        match self.random.below(20) {
            0 => 0,
            1 => most.saturating_add(1).min(MAX_UNITS),
            2 => most,
            3..8 => self.random.between(1, most),
            8..12 => self.random.between(1, most / 8 + 1),
            _ => 1,
        }
    }

    async fn flush(&mut self) -> CaseResult {
        let slices = std::mem::take(&mut self.pending);
        let claims: Vec<Vec<Claim<'_>>> = slices.iter().map(Owned::claims).collect();
        let mut batch = Vec::new();
        for (slice, claims) in slices.iter().zip(&claims) {
            batch.push(Claims::new(slice.now, slice.mode, claims)?);
        }
        let answers = match batch.as_slice() {
            [] => return Ok(()),
            [one] => vec![self.store.claim(*one).await],
            many => self.store.claim_many(many).await,
        };
        if answers.len() != batch.len() {
            return Err(self.differ(&format!("{} answers to {} slices", answers.len(), batch.len())));
        }
        for ((slice, claims), answer) in slices.iter().zip(&batch).zip(answers) {
            let (expected, found) = (self.model.claim(claims), answer?);
            self.history.push(slice.describe());
            if found != expected {
                if !self.shape.conservative || !is_conservative(claims, &expected, &found) {
                    return Err(self.differ(&describe(&expected, &found)));
                }
                self.compared.conservative += 1;
            }
            self.hold(slice, &found);
        }
        Ok(())
    }

    fn hold(&mut self, slice: &Owned, answer: &Answer) {
        if !answer.charged {
            return;
        }
        for ((limit, key, cost), verdict) in slice.parts.iter().zip(&answer.verdicts) {
            if *cost > 0 {
                let (limit, key) = (limit.clone(), key.clone());
                self.held.push(Held { limit, key, cost: *cost, receipt: verdict.receipt });
            }
        }
    }

    async fn refund(&mut self) -> CaseResult {
        self.flush().await?;
        if self.held.is_empty() {
            return Ok(());
        }
        // Mostly of what was charged lately, sometimes of what may have left.
        let recent = self.held.len().saturating_sub(1 + self.random.place(4));
        let place = if self.random.chance(80) { recent } else { self.random.place(self.held.len()) };
        let held = self.held.swap_remove(place);
        let cost = if self.random.chance(70) { held.cost } else { self.random.between(1, held.cost) };
        let id = MeterId { namespace: "sequence", scope: held.limit.scope(), key: &held.key };
        let refund = Refund { id, cost, meter: held.limit.meter_for(&held.key), receipt: held.receipt };
        self.store.refund(self.now, &[refund]).await?;
        self.history.push(format!(
            "at {:?} give back {cost} of {}, charged {:?}",
            self.now, held.limit, held.receipt
        ));
        if self.model.refund(self.now, &[refund]) {
            self.floor = self.newest;
        }
        Ok(())
    }

    async fn reset(&mut self) -> CaseResult {
        self.flush().await?;
        let limit = &self.slots[self.random.place(self.slots.len())].2;
        let key = &self.keys[self.random.place(self.keys.len())];
        let id = MeterId { namespace: "sequence", scope: limit.scope(), key };
        self.history.push(format!("reset {limit}"));
        let claims = [Claim { id, cost: 0, meter: limit.meter_for(key) }];
        let claims = Claims::new(self.now, Mode::Charge, &claims)?;
        self.model.reset(claims);
        Ok(self.store.reset(claims).await?)
    }

    fn change(&mut self) -> CaseResult {
        let place = self.random.place(self.slots.len());
        let (kind, period, ref old) = self.slots[place];
        let name = old.name().unwrap_or("a").to_owned();
        // A bucket keeps its count when its rate changes; a window of another length is another window.
        let period = if kind.has_burst() {
            period * u32::try_from(self.random.between(1, 3)).unwrap_or(1)
        } else {
            period
        };
        let new = random_limit(&mut self.random, kind, period, &name, &self.shape)?;
        self.history.push(format!("{} becomes {new}", self.slots[place].2));
        self.slots[place].2 = new;
        Ok(())
    }

    fn differ(&self, what: &str) -> Failure {
        let last: Vec<&str> = self.history.iter().rev().take(12).rev().map(String::as_str).collect();
        Failure::new(format!("{what}\n     after step {}: {}", self.history.len(), last.join("\n       ")))
    }
}
