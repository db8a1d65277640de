//! Proposes limits: finds a quota that refuses at most a share of the requests, or of the keys.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::Context as _;
use ratelimit_core::meter::{MAX_LOG_UNITS, MAX_UNITS};
use ratelimit_core::{Algorithm, Decision, Limit, LimitBuilder, LimitError, RateLimiter, Request, Timestamp};
use ratelimit_memory::{MemoryConfig, MemoryStore};
use serde::{Deserialize, Serialize};

use crate::engine::{KeyCounts, KeyOutcome, ReplayClock, Trace, TracedKey, share};

/// How much a limit may refuse, parsed from text such as `1%`, `0.5% of requests` or `5% of keys`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The share in millionths.
    millionths: u64,
    of_keys: bool,
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write a share as '1%' or '0.5% of requests', or as '5% of keys'".to_owned();
        let (number, of) = text.split_once('%').ok_or_else(wrong)?;
        let of_keys = match of.trim().strip_prefix("of").unwrap_or(of).trim() {
            "" | "requests" => false,
            "keys" => true,
            _ => return Err(wrong()),
        };
        let (whole, fraction) = number.trim().split_once('.').unwrap_or((number.trim(), ""));
        if whole.is_empty() || fraction.len() > 4 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let whole: u64 = whole.parse().map_err(|_| wrong())?;
        let fraction: u64 = format!("{fraction:0<4}").parse().map_err(|_| wrong())?;
        let millionths =
            whole.checked_mul(10_000).and_then(|whole| whole.checked_add(fraction)).ok_or_else(wrong)?;
        if millionths >= 1_000_000 {
            return Err("a share is below 100%".to_owned());
        }
        Ok(Self { millionths, of_keys })
    }
}

impl Share {
    /// The share of the requests that are refused, or of the keys if this is a share of keys, from 0 to 1.
    pub(crate) fn refused(self, refused: Refusals, requests: u64, keys: u64) -> f64 {
        if self.of_keys { share(refused.keys, keys) } else { share(refused.requests, requests) }
    }

    /// This share as a number from 0 to 1.
    pub(crate) fn part(self) -> f64 {
        share(self.millionths, 1_000_000)
    }

    /// What this is a share of: `keys` or `requests`.
    pub(crate) fn of(self) -> &'static str {
        if self.of_keys { "keys" } else { "requests" }
    }
}

impl fmt::Display for Share {
    #[allow(clippy::cast_precision_loss)] // at most a million
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}% of {}", self.millionths as f64 / 10_000.0, self.of())
    }
}

/// A proposed limit, which refuses at most a share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Suggestion {
    /// The limit.
    pub limit: String,
    /// What it counts by.
    pub by: String,
    /// The share that it may refuse.
    pub share: String,
    /// What it refuses.
    pub refused: Refusals,
    /// What it would refuse if its quota were one less; `None` if its quota is one.
    pub refused_by_one_less: Option<Refusals>,
    /// The quotas that were tried in the search, in ascending order, and what they refuse.
    pub tried: Vec<Tried>,
    /// The number of all requests.
    pub requests: u64,
    /// The number of all keys.
    pub keys: u64,
    /// The keys that it would refuse most.
    pub top: Vec<KeyOutcome>,
}

/// A quota that was tried in a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    /// The quota.
    pub quota: u64,
    /// What it refuses.
    pub refused: Refusals,
}

/// The numbers of refused requests and of their keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusals {
    /// Refused requests.
    pub requests: u64,
    /// Keys with a refusal.
    pub keys: u64,
}

/// Proposes a limit like `limit` with another quota, which refuses at most the share, while a quota of one less refuses
/// more. A burst and immediate units are changed in proportion to the quota. The proposal has at most `top` keys.
///
/// The search halves an interval of quotas whose lower end refuses more than the share and whose upper end does not, and
/// decides all requests anew for each quota that it tries. So the quota is the smallest that refuses at most the share,
/// unless a greater quota can refuse more than a smaller one, which can happen if requests differ in cost.
///
/// # Errors
/// If there is no search for limits of this kind, or if no quota that such a limit can have refuses so little.
pub fn suggest(trace: &Trace, limit: &Limit, share: Share, top: usize) -> anyhow::Result<Suggestion> {
    anyhow::ensure!(trace.requests() > 0, "{limit}: there are no requests to search with");
    let (keys, most) = trace.each().fold((0, 1), |(keys, most), key| (keys + 1, key.cost().max(most)));
    let of = if share.of_keys { keys } else { trace.requests() };
    let allowed = u128::from(of) * u128::from(share.millionths) / 1_000_000;
    let is_low = |refused: &Refusals| {
        u128::from(if share.of_keys { refused.keys } else { refused.requests }) <= allowed
    };
    let greatest = match limit.algorithm() {
        Algorithm::SlidingLog => MAX_LOG_UNITS,
        // One unit drains in a nanosecond at least.
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue => {
            nanos(limit.period()).min(MAX_UNITS)
        }
        _ => MAX_UNITS,
    };
    let mut tried = BTreeMap::new();
    let mut is_enough = |quota| {
        let refused = refusals(trace, &with_quota(limit, quota)?)?;
        tried.insert(quota, refused);
        anyhow::Ok(is_low(&refused))
    };
    // `below` is a quota that refuses too much: at first zero, which would refuse all, although no limit can have it.
    let mut below = 0;
    let mut quota = most.min(greatest);
    // The cost of all requests of the busiest key is not enough if the burst is below the quota.
    while !is_enough(quota)? {
        anyhow::ensure!(quota < greatest, "{limit}: no quota up to {greatest} refuses so little");
        (below, quota) = (quota, quota.saturating_mul(8).min(greatest));
    }
    while quota - below > 1 {
        let middle = below + (quota - below) / 2;
        match is_enough(middle)? {
            true => quota = middle,
            false => below = middle,
        }
    }
    let limit = with_quota(limit, quota)?;
    let top = hit(trace, &limit, top)?;
    Ok(Suggestion {
        limit: limit.to_string(),
        by: trace.by().to_owned(),
        share: share.to_string(),
        refused: tried.get(&quota).copied().unwrap_or_default(),
        refused_by_one_less: tried.get(&below).copied(),
        tried: tried.into_iter().map(|(quota, refused)| Tried { quota, refused }).collect(),
        requests: trace.requests(),
        keys,
        top,
    })
}

/// Checks that another quota can be proposed for a limit.
///
/// # Errors
/// If there is no search for limits of this kind.
pub(crate) fn can_be_searched(limit: &Limit) -> anyhow::Result<()> {
    with_quota(limit, limit.quota()).map(drop)
}

/// The same limit with another quota, and with a burst and immediate units in proportion.
///
/// A unit of a bucket drains in whole nanoseconds. If these are too coarse for a quota, it is the next greater one that a
/// bucket can have.
fn with_quota(limit: &Limit, quota: u64) -> anyhow::Result<Limit> {
    let period = limit.period();
    let in_proportion = |units: u64| {
        let units = u128::from(units) * u128::from(quota);
        let units = units.div_ceil(u128::from(limit.quota()).max(1)).max(1);
        u64::try_from(units).unwrap_or(MAX_UNITS).min(MAX_UNITS)
    };
    let bucket = |builder: LimitBuilder| builder.burst(in_proportion(limit.burst()));
    let mut builder = match limit.algorithm() {
        Algorithm::FixedWindow => Limit::fixed_window(quota, period),
        Algorithm::SlidingWindow => Limit::sliding_window(quota, period),
        Algorithm::SegmentedWindow { precision, strict: false } => {
            Limit::segmented_window(quota, period, precision)
        }
        Algorithm::SegmentedWindow { precision, strict: true } => {
            Limit::segmented_window(quota, period, precision).strict()
        }
        Algorithm::SlidingLog => Limit::sliding_log(quota, period),
        Algorithm::TokenBucket if limit.step().is_none() => bucket(Limit::token_bucket(quota, period)),
        Algorithm::LeakyBucket => bucket(Limit::leaky_bucket(quota, period)),
        Algorithm::LeakyQueue => {
            let queue = bucket(Limit::leaky_queue(quota, period));
            match limit.immediate() {
                Some(units) => queue.immediate(in_proportion(units)),
                None => queue,
            }
        }
        _ => anyhow::bail!("{limit}: there is no search for limits of this kind"),
    };
    if limit.alignment() == ratelimit_core::Alignment::Calendar {
        anyhow::bail!("{limit}: there is no search for limits of the calendar");
    }
    builder = builder.alignment(limit.alignment());
    if let Some(name) = limit.name() {
        builder = builder.name(name);
    }
    let nanos = nanos(period);
    let rounded = nanos.div_ceil((nanos / quota.max(1)).max(1));
    match builder.build() {
        Err(LimitError::RateTooHigh) if rounded > quota => with_quota(limit, rounded),
        built => built.with_context(|| format!("{limit} with a quota of {quota}")),
    }
}

fn nanos(period: Duration) -> u64 {
    u64::try_from(period.as_nanos()).unwrap_or(u64::MAX)
}

/// A limiter that decides the requests of one key after those of another, and forgets each key after its last request.
struct KeyByKey {
    limiter: RateLimiter<MemoryStore, ReplayClock>,
    clock: ReplayClock,
}

impl KeyByKey {
    fn new(limit: &Limit) -> Self {
        let clock = ReplayClock::default();
        let store = MemoryStore::with_config(MemoryConfig::default().shards(1));
        Self { limiter: RateLimiter::new(store, limit.clone()).with_clock(clock.clone()), clock }
    }

    /// Decides the requests of a key, and calls `each` with the time of each request and the decision on it.
    fn replay(
        &self,
        key: TracedKey<'_>,
        mut each: impl FnMut(Timestamp, &Decision<'_>),
    ) -> anyhow::Result<()> {
        for (time, cost) in key.requests() {
            self.clock.set(time);
            let decision = self.limiter.check_now(Request::new(key.key).cost(cost))?;
            each(time, &decision);
        }
        Ok(self.limiter.reset_now(key.key)?)
    }
}

fn refusals(trace: &Trace, limit: &Limit) -> anyhow::Result<Refusals> {
    let limiter = KeyByKey::new(limit);
    let mut all = Refusals::default();
    for key in trace.each().filter(|key| key.cost() > limit.burst()) {
        let before = all.requests;
        limiter.replay(key, |_, decision| all.requests += u64::from(!decision.allowed()))?;
        all.keys += u64::from(all.requests > before);
    }
    Ok(all)
}

/// The keys that a limit refuses most.
fn hit(trace: &Trace, limit: &Limit, top: usize) -> anyhow::Result<Vec<KeyOutcome>> {
    let limiter = KeyByKey::new(limit);
    let mut hit: Vec<KeyOutcome> = Vec::new();
    let length = nanos(limit.period());
    for key in trace.each().filter(|key| key.cost() > limit.burst()) {
        let mut counts = KeyCounts::default();
        limiter.replay(key, |time, decision| {
            counts.count(time, length);
            if !decision.allowed() {
                counts.refuse(decision.retry_after());
            }
        })?;
        if counts.refused == 0 || top == 0 {
            continue;
        }
        hit.push(counts.outcome(key.key));
        // Only the keys with the most refusals are kept, so that the memory does not grow with the number of keys.
        if hit.len() >= top.saturating_mul(2) {
            worst(&mut hit, top);
        }
    }
    worst(&mut hit, top);
    Ok(hit)
}

fn worst(hit: &mut Vec<KeyOutcome>, top: usize) {
    hit.sort_by_key(|key| Reverse(key.refused));
    hit.truncate(top);
}
