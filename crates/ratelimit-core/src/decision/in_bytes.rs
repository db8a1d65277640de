//! What a decision has charged, as bytes: to give it back where the decision itself is not.

use std::borrow::Cow;

use super::{AskedKey, Decision};
use crate::{Answer, Limit, Limits, MAX_CLAIMS, Receipt, Timestamp, Verdict, Verdicts};

/// The first byte: which format follows.
const FORMAT: u8 = 1;

/// How far the clock that has decided may be from the one that has chosen the period of a calendar, in seconds.
const CLOCKS_APART: u64 = 3_600;

impl Decision<'_> {
    /// Returns what the check has charged as bytes, for [`from_bytes`](Self::from_bytes) in another process, or later. `None`
    /// if it has charged nothing.
    ///
    /// They contain the keys, in readable form, and nobody may change them: sign them before you give them away.
    ///
    /// What was given back by this decision or its clones is not taken into account, and the bytes can be read any number of
    /// times: it is up to you that what was charged is given back once.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        if !self.charged {
            return None;
        }
        let keys = self.charged_keys();
        let mut bytes = vec![FORMAT];
        part(&mut bytes, self.parts.namespace().as_bytes());
        bytes.extend(self.now.as_nanos().to_le_bytes());
        for (index, key) in keys.iter().enumerate() {
            let limits = || self.each().filter(move |status| status.key_index() == index);
            part(&mut bytes, key);
            let cost = limits().map(|status| self.parts.asked_limit(status.index()).cost).next().unwrap_or(0);
            bytes.extend(cost.to_le_bytes());
            bytes.push(u8::try_from(limits().count()).unwrap_or(u8::MAX));
            for status in limits() {
                part(&mut bytes, status.rule().to_string().as_bytes());
                part(&mut bytes, status.rule().scope().as_bytes());
                bytes.extend(status.verdict.receipt.to_bits().to_le_bytes());
            }
        }
        Some(bytes)
    }
}

impl Decision<'static> {
    /// Reads back what [`to_bytes`](Self::to_bytes) has returned; `None` if it is something else. You can give back and settle
    /// what it has charged, on a limiter on the same store. Its figures are those of fresh limits.
    ///
    /// ```
    /// # use ratelimit_core::{CounterStore, Decision, RateLimiter};
    /// # async fn example(limiter: RateLimiter<impl CounterStore>) -> Result<(), Box<dyn std::error::Error>> {
    /// let decision = limiter.check("user:7").await?;
    /// if let Some(receipt) = decision.to_bytes() {
    ///     // In another process:
    ///     let decision = Decision::from_bytes(&receipt).ok_or("not a receipt")?;
    ///     limiter.refund(&decision).await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes.strip_prefix(&[FORMAT])?;
        let namespace = str::from_utf8(split_part(&mut rest)?).ok()?;
        let now = instant(&mut rest)?;
        let (mut keys, mut verdicts) = (Vec::new(), Verdicts::new());
        while !rest.is_empty() {
            let key = split_part(&mut rest)?;
            let cost = number(&mut rest)?;
            let mut limits = Vec::new();
            for _ in 0..*rest.split_off_first()? {
                let (limit, receipt) = limit(&mut rest, now)?;
                verdicts.push(fresh(&limit, now, receipt));
                limits.push(limit);
            }
            if verdicts.len() > MAX_CLAIMS {
                return None;
            }
            keys.push(AskedKey { bytes: key, cost, limits: Cow::Owned(Limits::new(limits).ok()?) });
        }
        let answer = Answer { admitted: true, charged: true, now, verdicts };
        let decision = Decision::new(answer, namespace, keys.into_iter()).ok()?;
        (decision.parts.count() > 0).then(|| decision.into_owned())
    }
}

/// Reads a limit, as it was when it was charged, and the receipt of its charge.
fn limit(rest: &mut &[u8], now: Timestamp) -> Option<(Limit, Receipt)> {
    let limit: Limit = str::from_utf8(split_part(rest)?).ok()?.parse().ok()?;
    let scope = split_part(rest)?;
    let seconds = now.as_nanos() / 1_000_000_000;
    // The store's clock may have decided, and then be in another period of the calendar.
    let near = [seconds, seconds.saturating_sub(CLOCKS_APART), seconds.saturating_add(CLOCKS_APART)];
    let mut resolved = near.into_iter().map(|instant| limit.at(Timestamp::from_secs(instant)));
    let limit = resolved.find(|limit| limit.scope().as_bytes() == scope)?;
    Some((limit, Receipt::from_bits(number(rest)?)))
}

fn fresh(limit: &Limit, now: Timestamp, receipt: Receipt) -> Verdict {
    let units = limit.burst();
    Verdict {
        fits: true,
        limit: units,
        remaining: units,
        fits_at: Some(now),
        reset_at: now,
        ready_at: now,
        receipt,
    }
}

/// Appends a part with its length.
fn part(bytes: &mut Vec<u8>, part: &[u8]) {
    bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend(part);
}

fn split_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, after) = rest.split_first_chunk()?;
    *rest = after;
    rest.split_off(..usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let (number, after) = rest.split_first_chunk()?;
    *rest = after;
    Some(u64::from_le_bytes(*number))
}

/// An instant, which may have the [mark](crate::receipt) of a fallback.
fn instant(rest: &mut &[u8]) -> Option<Timestamp> {
    number(rest).map(Timestamp::derived)
}
