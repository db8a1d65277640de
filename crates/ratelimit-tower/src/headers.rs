//! The fields that report to clients how the limits stand.

use std::time::Duration;

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use ratelimit_core::{Algorithm, Decision, LimitStatus};

use crate::Plan;
use crate::field::{self, Field};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Which fields report to clients how the limits stand.
///
/// The default is the latest draft of the IETF,
/// [draft-ietf-httpapi-ratelimit-headers-11](https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-11.html),
/// on every response:
///
/// ```text
/// RateLimit-Policy: "free";q=100;w=60
/// RateLimit: "free";r=99;t=60
/// ```
///
/// A limit admits `q` units in `w` seconds; `r` of them remain. If the request is admitted, the limit is as good as new in
/// `t` seconds. If it is refused, `RateLimit` lists only the limits that refused, and the same request will fit in `t`
/// seconds. Numbers above 999,999,999,999,999 are written as this number.
///
/// - `w` is omitted if the period is not a whole number of seconds, is one of the calendar, or does not exist.
/// - `t` is omitted if waiting will never help, and so is `-Reset` of the older families.
/// - A sliding log frees its units a nanosecond after `t`, so that `t` is never more than `w`. `Retry-After` is then longer.
/// - A bucket or queue has `burst-units` if its burst differs from `q`.
/// - A concurrency limit has `qu="concurrent-requests"` instead of `w`.
/// - A [ban](ratelimit_core::Algorithm::Ban) is listed in `RateLimit` if it refuses, and never in `RateLimit-Policy`.
///
/// A refusal also has `Retry-After`: seconds, rounded up, at least 1, until the same request fits; omitted if waiting will
/// never help. The `t` of a concurrency limit counts as at most 1 for this, because units may be released at any moment.
/// If a policy refuses that charges [by the outcome](crate::Charge::only_if), the policies that charge before the request is
/// served are not asked, and may refuse after this time.
/// A refusal also has `Cache-Control: no-store`. gRPC responses that refuse have none of these fields, but the same
/// information in their `RetryInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Headers {
    /// Which families of fields to send. If empty, only refusals have fields: `Retry-After` and `Cache-Control`.
    pub families: Vec<Family>,
    /// The meaning of the `-Reset` field of the older families.
    pub reset: Reset,
    /// Whether responses to admitted requests have the fields as well.
    pub on_admitted: bool,
}

/// A family of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "config", derive(serde::Deserialize), serde(rename_all = "lowercase"))]
#[non_exhaustive]
pub enum Family {
    /// `RateLimit` and `RateLimit-Policy` of draft 11: lists with one item per limit. Named after the draft, because later
    /// ones may change the fields.
    #[cfg_attr(feature = "config", serde(rename = "draft-11"))]
    Draft11,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset` of the drafts up to 06: the limit that decided. If it is a ban,
    /// `-Limit` is the smallest other limit of the plan, and `-Reset` the end of the ban.
    RateLimit,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`: the same.
    #[cfg_attr(feature = "config", serde(rename = "x-ratelimit"))]
    XRateLimit,
}

/// The meaning of a `-Reset` field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "config", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Reset {
    /// Seconds from now, rounded up.
    #[default]
    Seconds,
    /// Milliseconds from now, rounded up.
    Milliseconds,
    /// The instant, in whole seconds since 1970, rounded up.
    UnixSeconds,
}

impl Default for Headers {
    fn default() -> Self {
        Self { families: vec![Family::Draft11], reset: Reset::default(), on_admitted: true }
    }
}

impl Headers {
    /// Sends these families, with the other settings at their defaults.
    pub fn of(families: impl IntoIterator<Item = Family>) -> Self {
        Self { families: families.into_iter().collect(), ..Self::default() }
    }

    /// Sets the meaning of `-Reset`.
    #[must_use]
    pub fn with_reset(mut self, reset: Reset) -> Self {
        self.reset = reset;
        self
    }

    /// Sends the fields only with refusals.
    #[must_use]
    pub fn only_refusals(mut self) -> Self {
        self.on_admitted = false;
        self
    }

    /// The fields for a request with these decisions.
    #[inline]
    pub(crate) fn lines(&self, standings: &[PlanStatus<'_>]) -> Lines {
        if self.families.is_empty() || standings.is_empty() {
            Lines::default()
        } else {
            self.some_lines(standings)
        }
    }

    #[inline(never)]
    fn some_lines(&self, standings: &[PlanStatus<'_>]) -> Lines {
        let mut fields = Box::<Fields>::default();
        for family in &self.families {
            match family {
                Family::Draft11 => fields.draft(standings),
                Family::RateLimit => fields.three(standings, self.reset, &THREE),
                Family::XRateLimit => fields.three(standings, self.reset, &X_THREE),
            }
        }
        Lines(Some(fields))
    }
}

/// The status of one plan's limits after a decision on all of them.
pub(crate) struct PlanStatus<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) decision: &'a Decision<'a>,
    /// The index of the plan's first limit in the decision.
    pub(crate) first: usize,
}

impl PlanStatus<'_> {
    /// The indices of limits in the plan, and their status. On a refusal, only the limits that refused; a ban only if it
    /// refuses.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, LimitStatus<'_>)> {
        let refused = !self.decision.allowed();
        let all = self.all().enumerate();
        all.filter(move |(_, status)| !status.allowed() || !(refused || status.rule().is_ban()))
    }

    /// The status of each limit in the plan.
    fn all(&self) -> impl Iterator<Item = LimitStatus<'_>> {
        self.decision.each().skip(self.first).take(self.plan.limits().len())
    }

    /// The smallest of the plan's limits. A ban is no number of units.
    fn smallest_limit(&self) -> u64 {
        let limits = self.all().filter(|status| !status.rule().is_ban());
        limits.map(|status| status.limit()).min().unwrap_or(0)
    }
}

/// Fields to add to a response's head. Boxed, because futures carry them and are moved.
#[derive(Default)]
pub(crate) struct Lines(Option<Box<Fields>>);

#[derive(Default)]
struct Fields {
    /// `RateLimit-Policy` and `RateLimit`.
    draft: Option<(HeaderValue, HeaderValue)>,
    others: Vec<(HeaderName, HeaderValue)>,
}

const THREE: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const X_THREE: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

impl Fields {
    fn draft(&mut self, standings: &[PlanStatus<'_>]) {
        let policy = match standings {
            [one] => one.plan.field().cloned(),
            several => {
                let fields = several.iter().filter_map(|standing| standing.plan.field());
                let fields: Vec<&[u8]> = fields.map(HeaderValue::as_bytes).collect();
                if fields.is_empty() { None } else { field::value(&fields.join(&b", "[..])) }
            }
        };
        let mut state = Field::new();
        for standing in standings {
            for (place, status) in standing.each() {
                if !state.is_empty() {
                    state.extend_from_slice(b", ");
                }
                state.extend_from_slice(standing.plan.remains(place));
                field::integer(&mut state, status.remaining());
                if let Some(wait) = window(&status) {
                    state.extend_from_slice(b";t=");
                    field::integer(&mut state, whole_seconds(wait));
                }
            }
        }
        // Both or neither: what remains means little without the policy.
        self.draft = policy.zip(field::value(&state));
    }

    fn three(&mut self, standings: &[PlanStatus<'_>], reset: Reset, names: &[HeaderName; 3]) {
        // The limit that refuses longest, or has the least remaining.
        let rank = |(standing, status): &(&PlanStatus<'_>, LimitStatus<'_>)| {
            let wait =
                if status.allowed() { Duration::ZERO } else { window(status).unwrap_or(Duration::MAX) };
            (std::cmp::Reverse((!status.allowed(), wait)), status.remaining(), standing.decision.now())
        };
        let each =
            standings.iter().flat_map(|standing| standing.each().map(move |(_, status)| (standing, status)));
        let Some((standing, status)) = each.min_by_key(rank) else { return };
        let now = standing.decision.now();
        let reset = window(&status).map(|wait| match reset {
            Reset::Seconds => whole_seconds(wait),
            Reset::Milliseconds => rounded_up(wait.as_nanos(), 1_000_000),
            Reset::UnixSeconds => rounded_up(u128::from((now + wait).as_nanos()), 1_000_000_000),
        });
        let limit = if status.rule().is_ban() { standing.smallest_limit() } else { status.limit() };
        let numbers = [Some(limit), Some(status.remaining()), reset];
        let fields = names.iter().cloned().zip(numbers);
        self.others.extend(fields.filter_map(|(name, number)| Some((name, field::number(number?)))));
    }

    #[inline(never)]
    fn write(self, headers: &mut HeaderMap) {
        if let Some((policy, state)) = self.draft {
            headers.append(RATELIMIT_POLICY, policy);
            headers.append(RATELIMIT, state);
        }
        for (name, value) in self.others {
            headers.entry(name).or_insert(value);
        }
    }
}

impl Lines {
    /// Appends to list fields, and sets single-value fields unless an inner layer has set them.
    #[inline]
    pub(crate) fn write(&mut self, headers: &mut HeaderMap) {
        if let Some(fields) = self.0.take() {
            fields.write(headers);
        }
    }
}

/// The time for which the remaining units have to last. After a refusal, until the same request fits; otherwise until the
/// limit is as good as new. `None` if that never happens.
fn window(status: &LimitStatus<'_>) -> Option<Duration> {
    let algorithm = status.rule().algorithm();
    let wait = match status.allowed() {
        false => status.retry_after()?,
        true if algorithm == Algorithm::Total => return None,
        true => status.reset_after(),
    };
    // A log's units count through the end of its period, and leave a nanosecond later.
    Some(if algorithm == Algorithm::SlidingLog {
        wait.saturating_sub(TICK).max(TICK.min(wait))
    } else {
        wait
    })
}

const TICK: Duration = Duration::from_nanos(1);

/// Adds what a refusal also has: when to retry, and that the response must not be cached.
pub(crate) fn refusal(headers: &mut HeaderMap, retry_after: Option<Duration>) {
    if let Some(wait) = retry_after {
        headers.entry(RETRY_AFTER).or_insert_with(|| field::number(whole_seconds(wait).max(1)));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Seconds, rounded up, so that waiting for them is always long enough.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn rounded_up(nanos: u128, unit: u128) -> u64 {
    u64::try_from(nanos.div_ceil(unit)).unwrap_or(u64::MAX)
}
