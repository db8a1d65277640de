//! What random sequences are made of.

use std::time::Duration;

use ratelimit_core::{Answer, Claim, Claims, Limit, Meter, MeterId, Mode, Refund, Timestamp};

use super::sequence::Shape;
use crate::describe::instant;
use crate::failure::CaseResult;
use crate::kind::Kind;
use crate::random::Random;

/// One call to a store.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Claims of one slice.
    Claim(Slice),
    /// Gives back units of the claim with this number, if it was charged.
    Refund { now: Timestamp, of: usize, cost: u64 },
    /// Forgets a meter.
    Reset { now: Timestamp, limit: Limit, key: usize },
}

/// Claims that are decided together.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    pub(super) now: Timestamp,
    pub(super) mode: Mode,
    pub(super) parts: Vec<Part>,
}

/// One claim of a slice.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// No other claim of the sequence has it.
    pub(super) number: usize,
    pub(super) limit: Limit,
    /// Which of the sequence's keys.
    pub(super) key: usize,
    pub(super) cost: u64,
}

/// Units that were charged and may be given back.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) part: Part,
    pub(super) receipt: Timestamp,
}

impl Step {
    /// The instant at which it happens.
    pub(super) fn now(&self) -> Timestamp {
        match self {
            Self::Claim(slice) => slice.now,
            Self::Refund { now, .. } | Self::Reset { now, .. } => *now,
        }
    }
}

impl Slice {
    /// The claims of the slice, on these keys.
    pub(super) fn claims<'a>(&'a self, keys: &'a [Vec<u8>]) -> Vec<Claim<'a>> {
        self.parts.iter().map(|part| claim_on(&part.limit, &keys[part.key], part.cost)).collect()
    }

    /// What may be given back after this answer, which charged it.
    pub(super) fn held(&self, answer: &Answer) -> Vec<Held> {
        let parts = self.parts.iter().zip(&answer.verdicts).filter(|(part, _)| part.cost > 0);
        parts.map(|(part, verdict)| Held { part: part.clone(), receipt: verdict.receipt }).collect()
    }

    /// The slice in words.
    pub(super) fn describe(&self) -> String {
        let verb = match self.mode {
            Mode::Charge => "take",
            Mode::Peek => "peek at",
            Mode::Force => "force",
        };
        let parts: Vec<String> =
            self.parts.iter().map(|part| format!("{} of {}", part.cost, part.name())).collect();
        format!("{} {verb} {}", instant(self.now), parts.join(" and "))
    }
}

impl Part {
    /// Limit and key.
    pub(super) fn name(&self) -> String {
        name(&self.limit, self.key)
    }
}

impl Held {
    /// The refund of so many of the units.
    pub(super) fn refund<'a>(&'a self, cost: u64, keys: &'a [Vec<u8>]) -> Refund<'a> {
        let Claim { id, meter, cost } = claim_on(&self.part.limit, &keys[self.part.key], cost);
        Refund { id, cost, meter, receipt: self.receipt }
    }
}

/// A meter in words.
pub(super) fn name(limit: &Limit, key: usize) -> String {
    format!("`{limit}` on key {key}")
}

/// A claim under this limit on this key.
pub(super) fn claim_on<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Claim<'a> {
    let id = MeterId { namespace: "sequence", scope: limit.scope(), key };
    Claim { id, cost, meter: limit.meter_for(key) }
}

/// A limit of this kind at random, that can be built.
pub(super) fn random_limit(
    random: &mut Random,
    kind: Kind,
    period: Duration,
    name: &str,
    shape: &Shape,
) -> CaseResult<Limit> {
    let mut quota = random.between(1, shape.quota);
    if kind == Kind::Log {
        quota = quota.min(1_000);
    }
    let micros = u64::try_from(period.as_micros()).unwrap_or(u64::MAX);
    let mut builder = if kind.has_burst() {
        // What whole nanoseconds can keep, and drains within the years that a bucket may take.
        quota = quota.min(micros).max(1);
        let interval = micros * 1_000 / quota;
        let most = ((1_u64 << 61) / interval.max(1) / 8).clamp(1, shape.quota);
        kind.builder(quota, period).burst(random.between(1, most))
    } else {
        kind.builder(quota, period)
    };
    if !kind.has_burst() && kind != Kind::Log && random.chance(25) {
        builder = builder.staggered();
        return Ok(builder.name(name).build()?);
    }
    Ok(builder.name(name).build()?)
}

/// Whether two answers differ only in what a conservative store may say: that less remains than does, and another receipt by
/// which a refund gives back the same.
pub(super) fn is_conservative(claims: &Claims<'_>, expected: &Answer, found: &Answer) -> bool {
    let mut raised = found.clone();
    for ((claim, verdict), expected) in claims.iter().zip(&mut raised.verdicts).zip(&expected.verdicts) {
        verdict.remaining = verdict.remaining.max(expected.remaining);
        if let Meter::Window(window) = &claim.meter
            && window.place(verdict.receipt).0 == window.place(expected.receipt).0
        {
            verdict.receipt = expected.receipt;
        }
    }
    found.admitted && raised == *expected
}
