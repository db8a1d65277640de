//! Generates random sequences of claims, refunds, resets and changed limits.

use std::time::Duration;

use ratelimit_core::meter::MAX_UNITS;
use ratelimit_core::store::{Answer, CLOCK_SLACK, Claims, Mode};
use ratelimit_core::{Algorithm, Limit, Timestamp};

use super::sequence_parts::{Drawn, Held, KEYS, Part, Shape, Slice, Step, claim_on};
use crate::clock::START;
use crate::failure::CaseResult;
use crate::kind::Kind;
use crate::model::Model;
use crate::random::Random;

/// Generates a sequence. The model shows which units are charged and can be refunded.
struct Author {
    shape: Shape,
    random: Random,
    model: Model,
    keys: Vec<Vec<u8>>,
    slots: Vec<(Drawn, Duration, Limit)>,
    now: Timestamp,
    newest: Timestamp,
    /// The clock does not step back before it: a meter that was as good as new then may have been removed.
    floor: Timestamp,
    parts: usize,
    held: Vec<Held>,
    steps: Vec<Step>,
}

/// The most kinds of limit in a sequence, each with two limits: of more, each meter would have few claims.
const KINDS: usize = 8;

/// Generates the sequence of this seed, with limits drawn from these.
pub(super) fn steps(shape: Shape, mut drawn: Vec<Drawn>, seed: u64) -> CaseResult<Vec<Step>> {
    let mut random = Random::new(seed);
    while drawn.len() > KINDS {
        drawn.swap_remove(random.place(drawn.len()));
    }
    let mut slots = Vec::new();
    for kind in drawn {
        for name in ["a", "b"] {
            let micros = random.between(shape.periods.0 / 4, shape.periods.1 / 4) * 4;
            let period = Duration::from_micros(micros);
            slots.push((kind, period, random_limit(&mut random, kind, period, name, &shape)?));
        }
    }
    let now = START + Duration::from_nanos(random.below(shape.periods.1 * 1_000));
    let author = Author {
        shape,
        random,
        model: Model::default(),
        keys: (0..KEYS).map(|key| vec![u8::try_from(key).unwrap_or(0)]).collect(),
        slots,
        now,
        newest: now,
        floor: Timestamp::EPOCH,
        parts: 0,
        held: Vec::new(),
        steps: Vec::new(),
    };
    author.write()
}

impl Author {
    fn write(mut self) -> CaseResult<Vec<Step>> {
        for _ in 0..self.shape.steps {
            self.move_clock();
            match self.random.below(100) {
                0..6 => self.refund(),
                6..8 => self.reset()?,
                8..14 if self.shape.changes => self.change()?,
                _ => self.claim()?,
            }
        }
        Ok(self.steps)
    }

    fn move_clock(&mut self) {
        let period = self.shape.periods.1.saturating_mul(1_000);
        let step = match self.random.below(20) {
            0..6 => 0,
            6..8 => self.random.between(1, 3),
            8..13 => self.random.below(period / 50 + 2),
            13..17 => self.random.below(self.shape.periods.0 * 1_000),
            17 => self.random.below(period * 3),
            // To the exact end of a segment, which is a multiple of a microsecond.
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

    fn claim(&mut self) -> CaseResult {
        let slice = self.slice();
        let claims = slice.claims(&self.keys);
        let answer = self.model.claim(&Claims::new(slice.now, slice.mode, &claims)?);
        self.hold(&slice, &answer);
        self.steps.push(Step::Claim(slice));
        Ok(())
    }

    fn slice(&mut self) -> Slice {
        let mode = match self.random.below(10) {
            0 => Mode::Peek,
            1 => Mode::Force,
            _ => Mode::Charge,
        };
        let limits = self.random.between(1, self.shape.slice.0 as u64);
        let keys = self.random.between(1, self.shape.slice.1 as u64);
        let mut parts: Vec<Part> = Vec::new();
        for _ in 0..limits * keys {
            let limit = self.slots[self.random.place(self.slots.len())].2.clone();
            let key = self.random.place(KEYS);
            if !parts.iter().any(|other| other.limit.scope() == limit.scope() && other.key == key) {
                let cost = self.cost(&limit);
                self.parts += 1;
                parts.push(Part { number: self.parts, limit, key, cost });
            }
        }
        Slice { now: self.now, mode, parts }
    }

    fn cost(&mut self, limit: &Limit) -> u64 {
        if let Algorithm::Ban { duration, .. } = limit.algorithm() {
            let most = u64::try_from(duration.as_micros()).unwrap_or(1);
            return if self.random.chance(80) { 0 } else { self.random.between(1, most) };
        }
        let most = limit.burst();
        match self.random.below(20) {
            0 => 0,
            1 => most.saturating_add(1).min(MAX_UNITS),
            2 => most,
            3..8 => self.random.between(1, most),
            8..12 => self.random.between(1, most / 8 + 1),
            _ => 1,
        }
    }

    fn hold(&mut self, slice: &Slice, answer: &Answer) {
        if answer.charged {
            self.held.extend(slice.held(answer));
        }
    }

    fn refund(&mut self) {
        let number = if self.random.chance(50) { 1 } else { self.random.between(2, 4) };
        let charges: Vec<(Held, u64)> = (0..number).filter_map(|_| self.charge_to_refund()).collect();
        if charges.is_empty() {
            return;
        }
        let refunds: Vec<_> = charges.iter().map(|(held, cost)| held.refund(*cost, &self.keys)).collect();
        if self.model.refund(self.now, &refunds) {
            self.floor = self.newest;
        }
        let of = charges.iter().map(|(held, cost)| (held.part.number, *cost)).collect();
        self.steps.push(Step::Refund { now: self.now, of });
    }

    /// A charge, and how many units of it are refunded.
    fn charge_to_refund(&mut self) -> Option<(Held, u64)> {
        if self.held.is_empty() {
            return None;
        }
        // Mostly recent charges, sometimes charges that may have expired.
        let recent = self.held.len().saturating_sub(1 + self.random.place(4));
        let place = if self.random.chance(80) { recent } else { self.random.place(self.held.len()) };
        let held = self.held.swap_remove(place);
        let most = held.part.cost;
        let cost = if self.random.chance(70) { most } else { self.random.between(1, most) };
        Some((held, cost))
    }

    fn reset(&mut self) -> CaseResult {
        let limit = self.slots[self.random.place(self.slots.len())].2.clone();
        let key = self.random.place(KEYS);
        let claims = [claim_on(&limit, &self.keys[key], 0)];
        self.model.reset(Claims::new(self.now, Mode::Charge, &claims)?);
        self.steps.push(Step::Reset { now: self.now, limit: Box::new(limit), key });
        Ok(())
    }

    fn change(&mut self) -> CaseResult {
        let place = self.random.place(self.slots.len());
        let (kind, period, ref old) = self.slots[place];
        let name = old.name().unwrap_or("a").to_owned();
        let times = u32::try_from(self.random.between(1, 3)).unwrap_or(1);
        let period = match kind {
            // A bucket keeps its count when its rate changes. A window of another length is another window.
            Drawn::Kind(kind) if kind.has_burst() => period * times,
            // Leases only become shorter: a store may have forgotten units that a longer one would still count.
            Drawn::Kind(Kind::Permits) => (old.period() / times).max(Duration::from_micros(1)),
            _ => period,
        };
        self.slots[place].2 = random_limit(&mut self.random, kind, period, &name, &self.shape)?;
        Ok(())
    }
}

/// A random limit of this kind.
fn random_limit(
    random: &mut Random,
    drawn: Drawn,
    period: Duration,
    name: &str,
    shape: &Shape,
) -> CaseResult<Limit> {
    let quota = random.between(1, shape.quota);
    let Drawn::Kind(kind) = drawn else {
        // The length decides; the refusals are counted by a log of their own.
        return Ok(Limit::ban(quota.min(1_000), period, period).name(name).build()?);
    };
    let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
    let mut builder = match kind {
        Kind::Log | Kind::Permits => kind.builder(quota.min(1_000), period),
        // An interval between units of at least a nanosecond.
        Kind::First => kind.builder(quota.min(micros).max(1), period),
        _ if kind.has_burst() => {
            // The same, and a bucket that drains within its maximum of years.
            let quota = quota.min(micros).max(1);
            let interval = micros * 1_000 / quota;
            let most = ((1_u64 << 61) / interval.max(1) / 8).clamp(1, shape.quota);
            // A step may have as many units as the quota, and the burst has at least those of a step.
            let least = if kind == Kind::Steps { quota } else { 1 };
            kind.builder(quota, period).burst(random.between(least, most.max(least)))
        }
        _ => kind.builder(quota, period),
    };
    if kind.is_window() && random.chance(25) {
        builder = builder.staggered();
    }
    Ok(builder.name(name).build()?)
}
