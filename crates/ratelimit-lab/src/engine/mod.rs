//! Replays requests: each column decides all of them, as a service with its limits would have done.

mod body;
mod clock;
mod column;
mod decided;
mod decider;
mod durations;
mod ends;
mod key_counts;
mod keys;
mod layer;
mod limits;
mod outcome;
mod policies;
mod provided;
mod reorder;
mod series;
mod spread;
mod texts;
mod trace;
mod waits;
mod who;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use ratelimit_core::{Limits, Timestamp};
use ratelimit_tower::config::ConfigFile;
use serde::Serialize;

use crate::by::{By, KeyMaker};
use crate::clients::Clients;
use crate::field::Field;
use crate::record::{Record, Wanted};
use column::Column;
use decider::Decider;
use durations::Durations;
use keys::Keys;
use layer::{Layered, RequestMaker};
use limits::shortest;
use provided::ProvidedKeys;
use reorder::Reorder;
use spread::Spread;
use texts::Place;
use who::Who;

pub(crate) use clock::ReplayClock;
pub use durations::{TimeIs, Unit};
pub(crate) use key_counts::KeyCounts;
pub(crate) use outcome::share;
pub use outcome::{KeyOutcome, Mostly, Outcome};
pub use policies::PolicyOutcome;
pub(crate) use reorder::MOST as MOST_WAITING;
pub use series::{Bucket, Series};
pub use trace::Trace;
pub(crate) use trace::TracedKey;
pub(crate) use waits::Waits;

/// What to replay requests against.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The limits to try. Each element is a column for each of `by`.
    pub limits: Vec<Limits>,
    /// What to count by: at most [`MOST_BY`] elements. If it is empty, requests are counted by `ip`.
    pub by: Vec<By>,
    /// The networks of proxies that are believed what they report about clients, for `by`; policies name their own.
    pub trusted_proxies: Vec<String>,
    /// The field with what they report, a list of addresses as in `X-Forwarded-For`.
    pub forwarded_field: Option<String>,
    /// The configuration file of an HTTP layer, as one more column.
    pub policies: Option<PathBuf>,
    /// Whether policies in shadow refuse, too.
    pub enforce_shadow: bool,
    /// Header fields of requests, `NAME=FIELD`, for these policies.
    pub headers: Vec<String>,
    /// Kinds of keys that the program provides for these policies, `NAME=FIELD`.
    pub provided_keys: Vec<String>,
    /// The field that names the plan of a request, for these policies.
    pub plan_field: Option<String>,
    /// The field that has the cost of a request for `limits`; the policies have costs of their own. A request in which it
    /// is not a whole number costs one, and is [counted](Replayed::without_cost).
    pub cost_field: Option<String>,
    /// Whether to leave requests out of a column of `limits` if they do not have what it counts by. Otherwise they are
    /// counted together.
    pub skip_missing: bool,
    /// How far requests may be out of order. Those that are more are decided at the latest time until then, and
    /// [counted](Replayed::too_late).
    pub out_of_order: Duration,
    /// Whether requests whose times are whole seconds are decided at the beginning of the second. Otherwise those of each second
    /// are spread evenly over it, since they did not come all at once.
    pub keep_seconds: bool,
    /// The field with the true cost of a request, for policies that settle by their handler.
    pub settle_field: Option<String>,
    /// The unit of durations that do not say it. Without one, it follows from the name of the field and from the number.
    pub duration_unit: Option<Unit>,
    /// What the times of the log are the times of. Without this, it follows from the format.
    pub time_is: Option<TimeIs>,
    /// Whether to tell of each key which path and agent most of its refused requests have: [`KeyOutcome::path`].
    pub who: bool,
    /// Whether to keep the times, keys and costs of all requests: [`Engine::finish`] returns a [`Trace`] for each of `by`.
    pub keep_trace: bool,
}

/// The maximum number of elements of [`Plan::by`].
pub const MOST_BY: usize = 4;

/// A replay in progress.
pub struct Engine {
    makers: Vec<(By, KeyMaker, Keys)>,
    requests: Option<RequestMaker>,
    cost: Option<usize>,
    skip_missing: bool,
    columns: Vec<Column>,
    clock: ReplayClock,
    reorder: Reorder<Waiting>,
    spread: Spread<Waiting>,
    traces: Vec<Trace>,
    /// Whether a policy settles.
    settles: bool,
    /// What is not replayed at all, as text for people.
    skipped: Vec<String>,
    /// How long requests took, if anything depends on that.
    durations: Option<Durations>,
    first: Option<Timestamp>,
    last: Timestamp,
    has_fractions: bool,
    /// For each of [`Plan::by`] the requests that do not have all that it counts by.
    unidentified: [u64; MOST_BY],
    without_cost: u64,
    who: Option<Who>,
    key: Vec<u8>,
}

/// A request that waits for earlier ones.
struct Waiting {
    cost: u64,
    /// How long it took, in nanoseconds.
    duration: u64,
    /// For each of [`Plan::by`] the number of the key, and whether the request has all that the key is made of.
    keys: [(u32, bool); MOST_BY],
    /// Where its path and its agent are; `None` if these are not told.
    place: Option<Place>,
    /// The record from which the HTTP request for the policies is made. Boxed, since most replays have no policies.
    record: Option<Box<Record>>,
}

/// The results of a replay.
#[derive(Clone, Debug, Serialize)]
pub struct Replayed {
    /// The time of the first request, in nanoseconds since 1970.
    pub first: Option<u64>,
    /// The time of the last request, in nanoseconds since 1970.
    pub last: Option<u64>,
    /// Requests that came after a later one had been decided. They were decided at the latest time until then.
    pub too_late: u64,
    /// Those of them that were not more out of order than [`Plan::out_of_order`]: a later one had been decided because
    /// 1,048,576 others waited.
    pub crowded_out: u64,
    /// By how many nanoseconds the latest request was late: an [`out_of_order`](Plan::out_of_order) of this length suffices.
    pub late_by: u64,
    /// Requests that do not have a whole number in the field for the cost. Each of them has cost one.
    pub without_cost: u64,
    /// For each of [`Plan::by`], as text, the requests that do not have all that it counts by.
    pub unidentified: BTreeMap<String, u64>,
    /// Whether these were left out: [`Plan::skip_missing`].
    pub skip_missing: bool,
    /// Requests without a status that is known, for the policies of a configuration file. They are decided as if it were 200.
    pub without_status: u64,
    /// The same without a method. They are decided as if it were GET.
    pub without_method: u64,
    /// The same without a path. They are decided as if it were `/`.
    pub without_path: u64,
    /// The same without the size of the response, if a policy settles. They are decided as if it were 0.
    pub without_size: u64,
    /// Requests with the name of a plan that is not in the configuration file. They are decided without a plan.
    pub without_plan: u64,
    /// The options for policies, as text, that name a field in which none of the requests has a value.
    pub fields_without_values: Vec<String>,
    /// Requests without a duration, if anything depends on it. They are taken to end when they begin.
    pub without_duration: u64,
    /// Limits that are not among the columns, and why, as text for people.
    pub skipped: Vec<String>,
    /// Whether there are requests, and all of them have times in whole seconds, as in the combined log format.
    pub whole_seconds: bool,
    /// Whether requests of the same whole second were spread over it.
    pub spread: bool,
    /// The columns.
    pub columns: Vec<Outcome>,
}

impl Engine {
    /// A replay of this plan. The fields that it needs of each line are added to `wanted`.
    ///
    /// # Errors
    /// If the configuration file cannot be read or has errors, if a header field or a provided
    /// key is not `NAME=FIELD`, or if there are more than [`MOST_BY`] things to count by.
    pub fn new(plan: &Plan, wanted: &mut Wanted) -> anyhow::Result<Self> {
        anyhow::ensure!(
            plan.by.len() <= MOST_BY,
            "at most {MOST_BY} things can be counted by at once, not {}",
            plan.by.len()
        );
        let clock = ReplayClock::default();
        let by = if plan.by.is_empty() { vec![By::default()] } else { plan.by.clone() };
        let clients = Clients::new(wanted, &plan.trusted_proxies, plan.forwarded_field.as_deref())?;
        let makers = by.into_iter().map(|by| {
            let maker = KeyMaker::new(&by, clients.clone(), wanted);
            (by, maker, Keys::default())
        });
        let makers: Vec<_> = makers.collect();
        let mut columns = Vec::new();
        for by in 0..makers.len() {
            for limits in &plan.limits {
                let decider = Decider::limiter(limits.clone(), clock.clone());
                let period = limits.iter().next().map_or(Duration::ZERO, |limit| limit.period());
                columns.push(Column::new(limits.to_string(), by, decider, period, shortest(limits.iter())));
            }
        }
        let mut needs_ends = columns.iter().any(|column: &Column| column.decider.holds());
        let (mut requests, mut settles, mut skipped) = (None, false, Vec::new());
        if let Some(path) = &plan.policies {
            let provided = ProvidedKeys::new(wanted, &plan.provided_keys)?;
            let config = ConfigFile::open_with(path, provided.provided()).map_err(|error| {
                let hint = match error.is_unknown_key() {
                    true => ": name it, and the log's field that has it, with --provided-key",
                    false => "",
                };
                anyhow::anyhow!("{error}{hint}")
            })?;
            let config = config.config();
            let (plan_field, settle_field) = (plan.plan_field.as_deref(), plan.settle_field.as_deref());
            let (layer, not_replayed) = Layered::new(&config, plan.enforce_shadow, clock.clone())
                .with_context(|| path.display().to_string())?;
            if let Some(layer) = layer {
                let maker =
                    RequestMaker::new(wanted, &plan.headers, plan_field, settle_field, provided, &config)?;
                requests = Some(maker);
                (needs_ends, settles) = (needs_ends || layer.needs_ends, layer.settles);
                let shortest = layer.shortest;
                let decider = Decider::Layer(Box::new(layer));
                let column =
                    Column::new(path.display().to_string(), 0, decider, Duration::from_secs(60), shortest);
                columns.push(column.without(not_replayed));
            } else {
                skipped.extend(not_replayed.into_iter().map(|what| format!("{}: {what}", path.display())));
            }
        }
        let traces =
            if plan.keep_trace { makers.iter().map(|_| Trace::default()).collect() } else { Vec::new() };
        let (unit, time_is) = (plan.duration_unit, plan.time_is);
        Ok(Self {
            durations: needs_ends.then(|| Durations::new(wanted, unit, time_is, plan.keep_seconds)),
            requests,
            settles,
            skipped,
            cost: plan.cost_field.as_ref().map(|name| wanted.add(Field::of_name(name))),
            skip_missing: plan.skip_missing,
            columns,
            clock,
            reorder: Reorder::new(plan.out_of_order),
            spread: Spread::new(plan.keep_seconds),
            traces,
            makers,
            first: None,
            last: Timestamp::EPOCH,
            has_fractions: false,
            unidentified: [0; MOST_BY],
            without_cost: 0,
            who: plan.who.then(|| Who::new(wanted)), // the last: its fields are not read of each line
            key: Vec::new(),
        })
    }

    /// Adds a request. It is decided when no earlier request can come.
    ///
    /// # Errors
    /// If there are more than four billion different keys, or if a decision fails.
    pub fn add(&mut self, record: &Record) -> anyhow::Result<()> {
        let mut keys = [(0, false); MOST_BY];
        let keyed = self.makers.iter_mut().zip(&mut keys).zip(&mut self.unidentified);
        for (((_, maker, numbers), key), unidentified) in keyed {
            if let Some(number) = maker.only_value(record).and_then(|value| numbers.find(value)) {
                *key = (number, true); // as nearly all are
                continue;
            }
            let is_complete = maker.make(record, &mut self.key);
            *unidentified += u64::from(!is_complete);
            *key = (numbers.number(&self.key)?, is_complete);
        }
        let cost = self.cost.map_or(Some(1), |index| cost_of(record.get(index)?));
        self.without_cost += u64::from(cost.is_none());
        let cost = cost.unwrap_or(1);
        // The HTTP request is made when it is decided, not here: it has many allocations, which are slow if they live long.
        let kept = self.requests.is_some().then(|| Box::new(record.clone()));
        let place = self.who.as_mut().filter(|_| record.is_whole).and_then(|who| who.keep(record));
        let (time, duration) = match &mut self.durations {
            Some(durations) => durations.of(record),
            None => (record.time, 0),
        };
        self.reorder.push(time, Waiting { cost, duration, keys, place, record: kept });
        while let Some((time, request)) = self.reorder.next() {
            self.put_in_order(time, request)?;
        }
        Ok(())
    }

    /// Takes a request in the order of their times.
    fn put_in_order(&mut self, time: Timestamp, request: Waiting) -> anyhow::Result<()> {
        self.has_fractions |= !time.as_nanos().is_multiple_of(1_000_000_000);
        self.spread.push(time, request);
        while let Some((time, request)) = self.spread.next() {
            self.decide(time, &request)?;
        }
        Ok(())
    }

    fn decide(&mut self, time: Timestamp, request: &Waiting) -> anyhow::Result<()> {
        self.clock.set(time);
        self.first.get_or_insert(time);
        self.last = time;
        for (trace, (number, is_complete)) in self.traces.iter_mut().zip(request.keys) {
            if is_complete || !self.skip_missing {
                trace.add(time, number, request.cost);
            }
        }
        let duration = Duration::from_nanos(request.duration);
        for column in &mut self.columns {
            let Some((number, is_complete)) = request.keys.get(column.by).copied() else { continue };
            if !is_complete && self.skip_missing && !matches!(column.decider, Decider::Layer(_)) {
                continue;
            }
            let key = self.makers.get(column.by).map(|(_, _, keys)| keys.get(number)).unwrap_or_default();
            let http = match (&column.decider, &mut self.requests, &request.record) {
                (Decider::Layer(_), Some(maker), Some(record)) => Some(maker.make(record)),
                _ => None,
            };
            let who = self.who.as_mut().zip(request.place);
            column.decide((time, duration), number, key, request.cost, http, who)?;
        }
        if let Some((who, place)) = self.who.as_mut().zip(request.place) {
            who.forget(place);
        }
        Ok(())
    }

    /// Decides the requests that are left. Returns the results, with at most `top` keys for each column, and a trace for
    /// each of [`Plan::by`] if [`Plan::keep_trace`] is set.
    ///
    /// # Errors
    /// Like [`add`](Self::add).
    pub fn finish(mut self, top: usize) -> anyhow::Result<(Replayed, Vec<Trace>)> {
        while let Some((time, request)) = self.reorder.take() {
            self.put_in_order(time, request)?;
        }
        self.spread.end();
        while let Some((time, request)) = self.spread.next() {
            self.decide(time, &request)?;
        }
        let durations = self.durations.as_ref();
        // Without durations, no request would be in progress when another one comes.
        let are_unknown = durations.is_some_and(|durations| durations.with == 0 && durations.without > 0);
        let mut skipped = self.skipped;
        if are_unknown {
            self.columns.retain_mut(|column| {
                skipped.extend(column.without_durations());
                !column.decider.holds()
            });
        }
        let outcomes = self.columns.into_iter().filter_map(|column| {
            let (by, _, keys) = self.makers.get(column.by)?;
            let unidentified = self.unidentified.get(column.by).copied()?;
            Some(column.outcome(by.to_string(), unidentified, keys, self.who.as_ref(), top))
        });
        let unidentified = self.makers.iter().map(|(by, ..)| by.to_string()).zip(self.unidentified);
        let settles = self.settles;
        let assumed = self.requests.as_ref().map(|maker| maker.assumed).unwrap_or_default();
        let maker = self.requests.as_ref().filter(|_| self.first.is_some());
        let fields_without_values = maker.map(RequestMaker::fields_without_values).unwrap_or_default();
        let replayed = Replayed {
            first: self.first.map(Timestamp::as_nanos),
            last: self.first.map(|_| self.last.as_nanos()),
            too_late: self.reorder.too_late,
            crowded_out: self.reorder.crowded_out,
            late_by: self.reorder.late_by,
            without_cost: self.without_cost,
            without_duration: durations.map_or(0, |durations| durations.without),
            skipped,
            unidentified: unidentified.collect(),
            skip_missing: self.skip_missing,
            without_status: assumed.statuses,
            without_method: assumed.methods,
            without_path: assumed.paths,
            without_size: if settles { assumed.sizes } else { 0 },
            without_plan: assumed.plans,
            fields_without_values,
            whole_seconds: self.first.is_some()
                && !durations.map_or(self.has_fractions, |durations| durations.has_fractions),
            spread: self.spread.has_moved || durations.is_some_and(|durations| durations.has_moved),
            columns: outcomes.collect(),
        };
        let keys = self.makers.into_iter().map(|(by, _, keys)| (by.to_string(), keys));
        let traces =
            self.traces.into_iter().zip(keys).map(|(trace, (by, keys))| trace.with_keys(by, keys)).collect();
        Ok((replayed, traces))
    }
}

/// Reads a cost, a whole number. One that does not fit into 64 bits is the greatest that does.
fn cost_of(text: &[u8]) -> Option<u64> {
    let text =
        std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    Some(text.parse().unwrap_or(u64::MAX))
}
