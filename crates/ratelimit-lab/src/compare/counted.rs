//! Judges the estimates of algorithms that count every request, including those above the limit.

use std::collections::VecDeque;
use std::time::Duration;

use ratelimit_core::meter::{MAX_UNITS, Meter, State};
use ratelimit_core::store::Mode;
use ratelimit_core::{Limit, LimitBuilder, Timestamp};
use serde::Serialize;

use super::judge::relative;
use super::mean;

/// The cost of a request, so that an estimate has a resolution of a thousandth of a request.
const UNIT: u64 = 1_000;
/// The quota of the meters. It is never reached, since the estimate of a meter cannot be above its quota.
const NEVER: u64 = MAX_UNITS;

/// Counts every request of a source exactly, however many there are in a period.
pub(super) struct Truth {
    period: Duration,
    /// The times of the requests in the period that ends with the last one.
    within: VecDeque<Timestamp>,
}

impl Truth {
    pub(super) fn new(limit: &Limit) -> Self {
        Self { period: limit.period(), within: VecDeque::new() }
    }

    /// Counts a request, and returns the number of requests in the period that ends with it, including this one.
    pub(super) fn count(&mut self, time: Timestamp) -> u64 {
        self.within.push_back(time);
        while self.within.front().is_some_and(|first| *first + self.period < time) {
            self.within.pop_front();
        }
        self.within.len() as u64
    }

    pub(super) fn end(&mut self) {
        self.within.clear();
    }
}

/// An algorithm that counts every request, and how exact its estimates are.
pub(super) struct Counter {
    meter: Meter,
    state: State,
    quota: u64,
    /// Whether the current source was above the limit at some time; the next two fields are about this source, too.
    was_above: bool,
    was_limited: bool,
    most: u64,
    /// The sum of the differences, and the most requests in a period of a source that was let through.
    differences: f64,
    most_let_through: u64,
    /// The result, except for what [`result`](Self::result) computes from the two fields above.
    counted: Counted,
}

/// How exact an algorithm is if it counts every request.
///
/// A request is above the limit if it and the requests of the same source in the period before it are more than the
/// quota. The algorithm would limit a request if its estimate of this number is above the quota.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Counted {
    /// The limit.
    pub limit: String,
    /// All requests.
    pub requests: u64,
    /// Requests that are above the limit.
    pub above: u64,
    /// Requests that it would admit although they are above the limit.
    pub wrongly_admitted: u64,
    /// Requests that it would limit although they are not above the limit.
    pub wrongly_limited: u64,
    /// The mean over all requests of |estimate - truth| / truth. Estimates have a resolution of a thousandth of a
    /// request.
    pub mean_difference: f64,
    /// All sources.
    pub sources: u64,
    /// Sources that were above the limit at some time.
    pub sources_above: u64,
    /// Sources among these that it would never have limited.
    pub let_through: u64,
    /// How far above the limit those sources were at most, as a part of the quota: 0.1 for 110 requests in a period where
    /// 100 are allowed.
    pub let_through_by: f64,
    /// Sources that it would have limited although they never were above the limit.
    pub limited_below: u64,
}

impl Counter {
    /// A counter named like `limit`. `builder` has the same algorithm and period, but the quota [`NEVER`].
    fn new(limit: &Limit, builder: LimitBuilder) -> anyhow::Result<Self> {
        let meter = builder.build()?.meter_for(b"");
        Ok(Self {
            state: meter.fresh(),
            meter,
            quota: limit.quota(),
            was_above: false,
            was_limited: false,
            most: 0,
            differences: 0.0,
            most_let_through: 0,
            counted: Counted { limit: limit.to_string(), ..Counted::default() },
        })
    }

    /// A counter for each kind of window with the quota and the period of `limit`.
    pub(super) fn all(limit: &Limit) -> anyhow::Result<Vec<Self>> {
        let (quota, period) = (limit.quota(), limit.period());
        let part = period / 10;
        let each: [fn(u64, Duration, Duration) -> LimitBuilder; 4] = [
            |quota, period, _| Limit::sliding_window(quota, period),
            |quota, period, _| Limit::fixed_window(quota, period),
            |quota, period, part| Limit::segmented_window(quota, period, part),
            |quota, period, part| Limit::segmented_window(quota, period, part).strict(),
        ];
        each.into_iter()
            .map(|builder| Self::new(&builder(quota, period, part).build()?, builder(NEVER, period, part)))
            .collect()
    }

    /// Counts a request. `truth` is the number of requests in the period that ends with it, including this one.
    pub(super) fn count(&mut self, time: Timestamp, truth: u64) {
        let (_, verdict) = self.meter.claim(&mut self.state, UNIT, time, Mode::Force);
        let estimate = verdict.limit - verdict.remaining;
        let (is_above, is_limited) = (truth > self.quota, estimate > self.quota * UNIT);
        let counted = &mut self.counted;
        counted.requests += 1;
        counted.above += u64::from(is_above);
        counted.wrongly_admitted += u64::from(is_above && !is_limited);
        counted.wrongly_limited += u64::from(is_limited && !is_above);
        self.differences += relative(estimate, truth * UNIT);
        self.was_above |= is_above;
        self.was_limited |= is_limited;
        self.most = self.most.max(truth);
    }

    /// Ends a source: its state is forgotten.
    pub(super) fn end(&mut self) {
        let counted = &mut self.counted;
        counted.sources += 1;
        counted.sources_above += u64::from(self.was_above);
        if self.was_above && !self.was_limited {
            counted.let_through += 1;
            self.most_let_through = self.most_let_through.max(self.most);
        }
        counted.limited_below += u64::from(self.was_limited && !self.was_above);
        self.state = self.meter.fresh();
        (self.was_above, self.was_limited, self.most) = (false, false, 0);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.differences += other.differences;
        self.most_let_through = self.most_let_through.max(other.most_let_through);
        let (counted, other) = (&mut self.counted, &other.counted);
        counted.requests += other.requests;
        counted.above += other.above;
        counted.wrongly_admitted += other.wrongly_admitted;
        counted.wrongly_limited += other.wrongly_limited;
        counted.sources += other.sources;
        counted.sources_above += other.sources_above;
        counted.let_through += other.let_through;
        counted.limited_below += other.limited_below;
    }

    pub(super) fn result(&self) -> Counted {
        let above = self.most_let_through.saturating_sub(self.quota);
        Counted {
            mean_difference: mean(self.differences, self.counted.requests),
            let_through_by: crate::engine::share(above, self.quota),
            ..self.counted.clone()
        }
    }
}
