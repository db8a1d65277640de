//! The status of a key: what it has used under its limits, and what remains.

use std::time::Duration;

use anyhow::anyhow;
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Verdict};
use ratelimit_core::{Algorithm, CheckError, Clock, CounterStore, Limit, LimitStatus, Request, Timestamp};
use serde::Serialize;

use crate::subject::{Key, Limiter};
use crate::time_text::rfc3339;

/// The status of a key. The README documents the fields of its JSON.
#[derive(Serialize)]
pub(crate) struct KeyStatus {
    pub(crate) key: String,
    /// The instant of this status, as text.
    pub(crate) time: String,
    pub(crate) limits: Vec<LimitRow>,
}

/// The status of a key under one limit.
#[derive(Serialize)]
pub(crate) struct LimitRow {
    pub(crate) limit: String,
    pub(crate) name: Option<String>,
    pub(crate) quota: u64,
    pub(crate) period_seconds: f64,
    /// Only of buckets and queues.
    pub(crate) burst: Option<u64>,
    pub(crate) used: u64,
    /// `None` under a ban that does not hold: it does not bound the units.
    pub(crate) remaining: Option<u64>,
    /// `None`: what was used stays used.
    pub(crate) reset_after_seconds: Option<f64>,
    pub(crate) reset_at: Option<String>,
    /// `None`: the cost is more than the limit can admit.
    pub(crate) retry_after_seconds: Option<f64>,
    pub(crate) retry_at: Option<String>,
    #[serde(skip)]
    pub(crate) reset_after: Option<Duration>,
    #[serde(skip)]
    pub(crate) retry_after: Option<Duration>,
}

impl KeyStatus {
    /// Reads the status without charging. `retry_after` is for a request of this cost.
    pub(crate) async fn of(limiter: &Limiter, key: &Key, cost: u64) -> Result<Self, CheckError> {
        let decision = limiter.would_allow(Request::new(&key.bytes).cost(cost)).await?;
        let now = decision.now();
        let mut limits: Vec<_> = decision.each().map(|status| LimitRow::new(status, now)).collect();
        if limits.iter().any(|row| row.remaining == Some(0)) {
            let used = used(limiter, key).await?;
            limits.iter_mut().zip(used).for_each(|(row, used)| row.used = row.used.max(used));
        }
        Ok(Self { key: key.shown.clone(), time: rfc3339(now), limits })
    }

    /// Whether nothing counts under any of the limits.
    pub(crate) fn is_unused(&self) -> bool {
        self.limits.iter().all(|row| row.used == 0 && row.reset_after == Some(Duration::ZERO))
    }

    /// Reads the status after a change. If that fails, the error says what was done, and leaves out the store's advice to
    /// try again: it is about the reading.
    pub(crate) async fn after(done: &str, limiter: &Limiter, key: &Key) -> anyhow::Result<Self> {
        Self::of(limiter, key, 1).await.map_err(|error| {
            let why = match &error {
                CheckError::Store(error) => {
                    let address = error.address().map(|address| format!(" at {address}")).unwrap_or_default();
                    format!("{}{address}: {}", error.store(), error.kind().as_str())
                }
                error => error.to_string(),
            };
            anyhow!("{done} {}, but its status cannot be read ({why})", key.shown)
        })
    }
}

/// What was used under each limit, also beyond it: by force, or before the limit was lowered. Zero for bans.
async fn used(limiter: &Limiter, key: &Key) -> Result<Vec<u64>, CheckError> {
    let now = limiter.clock().now();
    let limits: Vec<Limit> = limiter.limits().iter().map(|limit| limit.at(now)).collect();
    let claims = limits.iter().map(|limit| Claim {
        id: MeterId { namespace: limiter.namespace(), scope: limit.scope(), key: &key.bytes },
        cost: 0,
        meter: limit.meter_for(&key.bytes).widest(),
    });
    let claims: Vec<Claim<'_>> = claims.collect();
    let answer = limiter.store().claim(Claims::new(now, Mode::Peek, &claims)?).await?;
    let used = |(limit, verdict): (&Limit, &Verdict)| match limit.is_ban() {
        true => 0,
        false => verdict.limit - verdict.remaining.min(verdict.limit),
    };
    Ok(limits.iter().zip(&answer.verdicts).map(used).collect())
}

impl LimitRow {
    /// What remains, in a table.
    pub(crate) fn remaining_text(&self) -> String {
        self.remaining.map_or("-".to_owned(), |units| units.to_string())
    }

    fn new(status: LimitStatus<'_>, now: Timestamp) -> Self {
        let limit = status.rule();
        let reset_after = Some(status.reset_after()).filter(|wait| now + *wait < Timestamp::MAX);
        let has_burst = matches!(
            limit.algorithm(),
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue
        );
        Self {
            limit: limit.to_string(),
            name: status.name().map(str::to_owned),
            quota: limit.quota(),
            period_seconds: limit.period().as_secs_f64(),
            burst: has_burst.then(|| status.limit()),
            // A ban counts no units, and shows that none remain.
            used: if limit.is_ban() { 0 } else { status.limit() - status.remaining().min(status.limit()) },
            remaining: Some(status.remaining()).filter(|units| *units == 0 || !limit.is_ban()),
            reset_after_seconds: reset_after.map(|wait| wait.as_secs_f64()),
            reset_at: reset_after.map(|wait| rfc3339(now + wait)),
            retry_after_seconds: status.retry_after().map(|wait| wait.as_secs_f64()),
            retry_at: status.retry_after().map(|wait| rfc3339(now + wait)),
            reset_after,
            retry_after: status.retry_after(),
        }
    }
}
