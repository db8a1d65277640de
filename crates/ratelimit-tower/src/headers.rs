//! The fields that tell clients how they stand.

use std::time::Duration;

use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue};
use ratelimit_core::{Decision, LimitStatus, Timestamp};

use crate::Plan;
use crate::field::{self, Field};

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");

/// Which fields tell clients how they stand.
///
/// The default is the newest draft of the IETF,
/// [draft-ietf-httpapi-ratelimit-headers-11](https://www.ietf.org/archive/id/draft-ietf-httpapi-ratelimit-headers-11.html),
/// on every answer:
///
/// ```text
/// RateLimit-Policy: "free";q=100;w=60
/// RateLimit: "free";r=99;t=60
/// ```
///
/// `q` units in `w` seconds (left out if the period is no whole number of seconds; `burst-units` where a bucket holds
/// another number than `q`); `r` of them remain. While a request is admitted, `t` is in how many seconds the limit is as
/// good as new. On a refusal only the limits that refused are listed, and `t` is in how many seconds the same request will
/// fit. Numbers beyond 999,999,999,999,999 are written as this.
///
/// A refusal has `Retry-After` besides: seconds, rounded up, at least 1, the longest `t` of all; no such field if waiting
/// will never help. And `Cache-Control: no-store`. Answers of gRPC that refuse carry none of these fields, but the same in
/// their `RetryInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Headers {
    /// Which families of fields; none means that there is only `Retry-After`.
    pub families: Vec<Family>,
    /// What the field `-Reset` of the older families means.
    pub reset: Reset,
    /// Whether admitted answers have them, too.
    pub on_admitted: bool,
}

/// A family of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Family {
    /// `RateLimit` and `RateLimit-Policy` of the drafts since 08: lists, one item for each limit.
    Draft,
    /// `RateLimit-Limit`, `-Remaining` and `-Reset` of the drafts up to 06: the limit that decided.
    RateLimit,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`: the same.
    XRateLimit,
}

/// What a field `-Reset` means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
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
        Self { families: vec![Family::Draft], reset: Reset::default(), on_admitted: true }
    }
}

impl Headers {
    /// These families, otherwise as by default.
    pub fn of(families: impl IntoIterator<Item = Family>) -> Self {
        Self { families: families.into_iter().collect(), ..Self::default() }
    }

    /// With this meaning of `-Reset`.
    #[must_use]
    pub fn with_reset(mut self, reset: Reset) -> Self {
        self.reset = reset;
        self
    }

    /// Only on refusals.
    #[must_use]
    pub fn only_refusals(mut self) -> Self {
        self.on_admitted = false;
        self
    }

    /// The fields for a request on which these decisions were made.
    #[inline]
    pub(crate) fn lines(&self, standings: &[Standing<'_>]) -> Lines {
        if self.families.is_empty() { Lines::default() } else { self.some_lines(standings) }
    }

    #[inline(never)]
    fn some_lines(&self, standings: &[Standing<'_>]) -> Lines {
        match (&self.families[..], standings) {
            (_, []) => Lines::default(),
            ([Family::Draft], [one]) => one.line().unwrap_or_else(|| self.all_lines(standings)),
            _ => self.all_lines(standings),
        }
    }

    fn all_lines(&self, standings: &[Standing<'_>]) -> Lines {
        let mut lines = Fields::default();
        for family in &self.families {
            match family {
                Family::Draft => lines.draft(standings),
                Family::RateLimit => lines.three(standings, self.reset, &THREE),
                Family::XRateLimit => lines.three(standings, self.reset, &X_THREE),
            }
        }
        Lines(Some(Box::new(Kind::All(lines))))
    }
}

/// How the limits of one plan stand after a decision on all of them.
pub(crate) struct Standing<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) decision: &'a Decision<'a>,
    /// The place of the plan's first limit in the decision.
    pub(crate) first: usize,
}

impl Standing<'_> {
    /// The limits' places in the plan, and how they stand; on a refusal only of those that refused.
    pub(crate) fn each(&self) -> impl Iterator<Item = (usize, LimitStatus<'_>)> {
        let refused = !self.decision.allowed();
        let own = self.decision.each().skip(self.first).take(self.plan.limits().len());
        own.enumerate().filter(move |(_, status)| !refused || !status.allowed())
    }

    /// What is to be written of a plan with one limit that has admitted.
    #[inline]
    fn line(&self) -> Option<Lines> {
        if self.plan.limits().len() != 1 || !self.decision.allowed() {
            return None;
        }
        let item = Item::of(&self.decision.each().nth(self.first)?);
        Some(Lines(Some(Box::new(Kind::One(self.plan.clone(), item)))))
    }
}

/// Fields that are added to an answer's head; in a box, for futures carry them and are moved about.
#[derive(Default)]
pub(crate) struct Lines(Option<Box<Kind>>);

enum Kind {
    /// Those of the draft for a plan with one limit, which are not written before they are needed.
    One(Plan, Item),
    All(Fields),
}

/// How a limit stands, as `RateLimit` says it.
struct Item {
    remaining: u64,
    /// In how many seconds more can be had, if ever.
    seconds: Option<u64>,
}

impl Item {
    #[inline]
    fn of(status: &LimitStatus<'_>) -> Self {
        Self { remaining: status.remaining(), seconds: window(status).map(whole_seconds) }
    }

    #[inline]
    fn append_to(&self, field: &mut Field, beginning: &[u8]) {
        field.append(beginning);
        field::integer(field, self.remaining);
        if let Some(seconds) = self.seconds {
            field.append(b";t=");
            field::integer(field, seconds);
        }
    }
}

#[derive(Default)]
struct Fields {
    /// `RateLimit-Policy` and `RateLimit`.
    draft: Option<[HeaderValue; 2]>,
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
    fn draft(&mut self, standings: &[Standing<'_>]) {
        let policy = match standings {
            [one] => one.plan.field().cloned(),
            several => {
                let fields = several.iter().filter_map(|standing| standing.plan.field());
                let fields: Vec<&[u8]> = fields.map(HeaderValue::as_bytes).collect();
                field::value(&fields.join(&b", "[..]))
            }
        };
        let mut state = Field::new();
        for standing in standings {
            for (place, status) in standing.each() {
                if !state.is_empty() {
                    state.append(b", ");
                }
                Item::of(&status).append_to(&mut state, standing.plan.remains(place));
            }
        }
        self.draft = both(policy, &state);
    }

    fn three(&mut self, standings: &[Standing<'_>], reset: Reset, names: &[HeaderName; 3]) {
        // That which refuses longest, or has the least left.
        let rank = |(now, status): &(Timestamp, LimitStatus<'_>)| {
            let wait =
                if status.allowed() { Duration::ZERO } else { window(status).unwrap_or(Duration::MAX) };
            (std::cmp::Reverse((!status.allowed(), wait)), status.remaining(), *now)
        };
        let each = standings
            .iter()
            .flat_map(|standing| standing.each().map(|(_, status)| (standing.decision.now(), status)));
        let Some((now, status)) = each.min_by_key(rank) else { return };
        let wait = window(&status).unwrap_or_else(|| status.reset_after());
        let reset = match reset {
            Reset::Seconds => whole_seconds(wait),
            Reset::Milliseconds => rounded_up(wait.as_nanos(), 1_000_000),
            Reset::UnixSeconds => rounded_up(u128::from((now + wait).as_nanos()), 1_000_000_000),
        };
        let numbers = [status.limit(), status.remaining(), reset].map(field::number);
        self.others.extend(names.iter().cloned().zip(numbers));
    }

    fn write(self, headers: &mut HeaderMap) {
        if let Some(values) = self.draft {
            append(headers, values);
        }
        for (name, value) in self.others {
            headers.entry(name).or_insert(value);
        }
    }
}

impl Lines {
    /// Appends lists, and sets what can be there once unless a layer further inside has set it.
    #[inline]
    pub(crate) fn write(&mut self, headers: &mut HeaderMap) {
        if self.0.is_some() {
            self.write_some(headers);
        }
    }

    #[inline(never)]
    fn write_some(&mut self, headers: &mut HeaderMap) {
        match self.0.take().map(|kind| *kind) {
            None => {}
            Some(Kind::One(plan, item)) => write_one(&plan, &item, headers),
            Some(Kind::All(fields)) => fields.write(headers),
        }
    }
}

fn write_one(plan: &Plan, item: &Item, headers: &mut HeaderMap) {
    let mut state = Field::new();
    item.append_to(&mut state, plan.remains(0));
    if let Some(values) = both(plan.field().cloned(), &state) {
        append(headers, values);
    }
}

/// Both or neither: what remains says little without the policy.
fn both(policy: Option<HeaderValue>, state: &Field) -> Option<[HeaderValue; 2]> {
    Some([policy?, field::value(state.as_bytes())?])
}

fn append(headers: &mut HeaderMap, [policy, state]: [HeaderValue; 2]) {
    headers.append(RATELIMIT_POLICY, policy);
    headers.append(RATELIMIT, state);
}

/// The time in which no more than what remains can be used: until the same request fits, or until all is as new.
fn window(status: &LimitStatus<'_>) -> Option<Duration> {
    if status.allowed() { Some(status.reset_after()) } else { status.retry_after() }
}

/// What a refusal says besides: when to come again, and that nobody may keep it.
pub(crate) fn refusal(headers: &mut HeaderMap, retry_after: Option<Duration>) {
    if let Some(wait) = retry_after {
        headers.entry(RETRY_AFTER).or_insert_with(|| field::number(whole_seconds(wait).max(1)));
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}

/// Seconds, rounded up: who waits so long has waited long enough.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0))
}

fn rounded_up(nanos: u128, unit: u128) -> u64 {
    u64::try_from(nanos.div_ceil(unit)).unwrap_or(u64::MAX)
}
