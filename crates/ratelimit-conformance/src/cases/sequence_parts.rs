//! The parts of random sequences.

use ratelimit_core::meter::{Bucket, Meter};
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Receipt, Refund};
use ratelimit_core::{Limit, Timestamp};

use crate::describe::instant;
use crate::kind::Kind;

/// What limits are drawn from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drawn {
    /// Limits of this kind.
    Kind(Kind),
    /// Bans. A limiter claims nothing of the bucket of a ban with each request, which is refused while units are in it, and
    /// charges the length of a ban when it begins.
    Ban,
}

/// The parameters of a sequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// What limits are drawn from; `None` for everything that the store supports.
    pub(super) only: Option<Drawn>,
    /// The number of steps.
    pub(super) steps: u64,
    /// The shortest and the longest period, in microseconds.
    pub(super) periods: (u64, u64),
    /// The largest quota.
    pub(super) quota: u64,
    /// Whether quotas, bursts and rates change.
    pub(super) changes: bool,
    /// Whether the clock steps back.
    pub(super) steps_back: bool,
    /// The maximum number of limits and of keys of a slice.
    pub(super) slice: (usize, usize),
    /// The number of slices in a batch.
    pub(super) batch: usize,
    /// Whether some answers may be conservative.
    pub(super) conservative: bool,
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            only: None,
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

/// The number of keys of a sequence.
pub(super) const KEYS: usize = 3;

/// One call to a store.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Claims of one slice.
    Claim(Slice),
    /// A refund, in one call, of so many units to each of the claims with these numbers, if they were charged.
    Refund { now: Timestamp, of: Vec<(usize, u64)> },
    /// A reset of a meter.
    Reset { now: Timestamp, limit: Box<Limit>, key: usize },
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
    /// A unique number within the sequence.
    pub(super) number: usize,
    pub(super) limit: Limit,
    /// The index of the key.
    pub(super) key: usize,
    pub(super) cost: u64,
}

/// Charged units that can be refunded.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) part: Part,
    pub(super) receipt: Receipt,
}

impl Step {
    /// The instant of the step.
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

    /// The units that can be refunded after this answer, which charged them.
    pub(super) fn held(&self, answer: &Answer) -> Vec<Held> {
        // A ban is lifted by a reset, never refunded.
        let is_refundable = |part: &Part| part.cost > 0 && !part.limit.is_ban();
        let parts = self.parts.iter().zip(&answer.verdicts).filter(|(part, _)| is_refundable(part));
        parts.map(|(part, verdict)| Held { part: part.clone(), receipt: verdict.receipt }).collect()
    }

    /// Describes the slice.
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
    /// Names the limit and the key.
    pub(super) fn name(&self) -> String {
        name(&self.limit, self.key)
    }
}

impl Held {
    /// A refund of this number of units.
    pub(super) fn refund<'a>(&'a self, cost: u64, keys: &'a [Vec<u8>]) -> Refund<'a> {
        let Claim { id, meter, cost } = claim_on(&self.part.limit, &keys[self.part.key], cost);
        Refund { id, cost, meter, receipt: self.receipt }
    }
}

/// Names a meter.
pub(super) fn name(limit: &Limit, key: usize) -> String {
    format!("`{limit}` on key {key}")
}

/// A claim under this limit on this key. One of units of a ban begins a ban of so many microseconds, unless there is one.
pub(super) fn claim_on<'a>(limit: &'a Limit, key: &'a [u8], cost: u64) -> Claim<'a> {
    let id = MeterId { namespace: "sequence", scope: limit.scope(), key };
    let meter = match limit.meter_for(key) {
        Meter::Bucket(gate) if limit.is_ban() && cost > 0 => {
            Meter::Bucket(Bucket::with_interval(gate.interval(), cost).unwrap_or(gate))
        }
        meter => meter,
    };
    Claim { id, cost, meter }
}

/// Whether two answers differ only within the promise of a conservative store: a lower number of remaining units, and
/// another receipt with the same effect in a refund.
pub(super) fn is_conservative(claims: &Claims<'_>, expected: &Answer, found: &Answer) -> bool {
    let mut raised = found.clone();
    for ((claim, verdict), expected) in claims.iter().zip(&mut raised.verdicts).zip(&expected.verdicts) {
        verdict.remaining = verdict.remaining.max(expected.remaining);
        if let Meter::Window(window) = &claim.meter
            && window.place(verdict.receipt.instant()).0 == window.place(expected.receipt.instant()).0
        {
            verdict.receipt = expected.receipt;
        }
    }
    found.admitted && raised == *expected
}
