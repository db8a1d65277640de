//! What random sequences are made of: limits, slices, and how answers differ.

use std::time::Duration;

use ratelimit_core::{Answer, Claim, Claims, Limit, Meter, MeterId, Mode, Timestamp};

use super::sequence::Shape;
use crate::failure::CaseResult;
use crate::kind::Kind;
use crate::random::Random;

/// A slice that outlives the call.
#[derive(Clone, Debug)]
pub(super) struct Owned {
    pub(super) now: Timestamp,
    pub(super) mode: Mode,
    pub(super) parts: Vec<(Limit, Vec<u8>, u64)>,
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

impl Owned {
    /// The claims of the slice.
    pub(super) fn claims(&self) -> Vec<Claim<'_>> {
        let claim = |(limit, key, cost): &(Limit, Vec<u8>, u64)| (limit.meter_for(key), *cost);
        let part = |part| {
            let (limit, key, _): &(Limit, Vec<u8>, u64) = part;
            let (meter, cost) = claim(part);
            Claim { id: MeterId { namespace: "sequence", scope: limit.scope(), key }, cost, meter }
        };
        self.parts.iter().map(part).collect()
    }

    /// The slice in words.
    pub(super) fn describe(&self) -> String {
        let part = |(limit, key, cost): &(Limit, Vec<u8>, u64)| {
            let key = String::from_utf8_lossy(key);
            format!("{cost} of {limit} for {}", key.rsplit(':').next().unwrap_or_default())
        };
        let parts: Vec<String> = self.parts.iter().map(part).collect();
        format!("at {:?} {:?} {}", self.now, self.mode, parts.join(" + "))
    }
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

/// Where two answers differ.
pub(super) fn describe(expected: &Answer, found: &Answer) -> String {
    let head = |answer: &Answer| (answer.admitted, answer.charged, answer.now);
    if head(expected) != head(found) || expected.verdicts.len() != found.verdicts.len() {
        return format!("expected {expected:?}, found {found:?}");
    }
    let pairs = expected.verdicts.iter().zip(&found.verdicts).enumerate();
    let different = pairs.filter(|(_, (expected, found))| expected != found);
    let lines = different
        .map(|(place, (expected, found))| format!("verdict {place}: expected {expected:?}, found {found:?}"));
    lines.collect::<Vec<_>>().join("; ")
}
