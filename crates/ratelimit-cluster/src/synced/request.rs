//! The requests to the shared store for a usage, and what their answers mean.

use std::ops::Range;
use std::time::Duration;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, Log, MAX_PERIOD_NANOS, MAX_UNITS, Meter, Window};
use ratelimit_core::store::{CLOCK_SLACK, Claim, MeterId, Mode, Receipt, Verdict};

use crate::ledger::{BucketReading, Ledger, Reading, Units, Usage, largest, whole_units};

/// A meter of the shared store, without an effective limit, so that the answer says how many units there are. A window has one
/// meter for each segment, so that the answer gives the total of the segment, and late units are added to their own segment.
pub(super) struct Scope {
    text: String,
    pub(super) meter: Meter,
    /// The first and the last instant at which requests may be made.
    instants: (Timestamp, Timestamp),
}

/// One claim on a meter of the shared store, which charges units or only reads.
pub(super) struct Request {
    /// The index of the usage.
    pub(super) usage: usize,
    pub(super) scope: Scope,
    pub(super) cost: u64,
    pub(super) mode: Mode,
    pub(super) at: Timestamp,
    now: Timestamp,
    segment: u64,
    is_newest: bool,
    /// Whether all known units of the bucket drain at the requested rate.
    has_one_rate: bool,
}

/// Units to refund to a meter of the shared store.
pub(super) struct Return {
    /// The indices of the usages: one, or several of one meter.
    pub(super) usages: Range<usize>,
    pub(super) scope: Scope,
    pub(super) cost: u64,
    receipt: Timestamp,
    /// When the units of a bucket at one rate began to drain.
    began: Option<Timestamp>,
    /// Of a partly drained unit of such a bucket.
    part: Option<PartialUnit>,
}

/// What is left of a partly drained unit.
#[derive(Clone, Copy)]
struct PartialUnit {
    /// How long it takes to drain.
    length: u64,
    /// When the store last charged the bucket, as far as this node knows.
    charged_at: Timestamp,
}

impl Return {
    /// Whether both refund units of a log that the store has charged at once.
    pub(super) fn is_of_same_charge(&self, other: &Self) -> bool {
        let is_log = matches!(self.scope.meter, Meter::Log(_));
        is_log && (self.scope.meter, self.receipt) == (other.scope.meter, other.receipt)
    }

    /// Whether its receipt was calculated for a refund as of now.
    pub(super) fn is_as_of_now(&self) -> bool {
        matches!(self.scope.meter, Meter::Bucket(_)) && self.began.is_none()
    }

    /// The time of the refund: units do not count as drained because they are refunded late.
    pub(super) fn as_of(&self, now: Timestamp) -> Timestamp {
        self.began.map_or(now, |began| now.min(began))
    }

    /// The receipt by which the store refunds these units and no part of others, if it refunds them as of `now`.
    pub(super) fn receipt(&self, now: Timestamp) -> Timestamp {
        // Units drain in order: those that are left are before the receipt.
        self.part.map_or(self.receipt, |PartialUnit { length, charged_at }| {
            let end = now.max(charged_at).as_nanos().saturating_add(length);
            self.receipt.min(Timestamp::derived(end))
        })
    }
}

impl Scope {
    /// A bucket or a log.
    pub(super) fn whole(id: &MeterId<'_>, meter: Meter) -> Self {
        Self { text: id.scope.to_owned(), meter, instants: (Timestamp::EPOCH, Timestamp::MAX) }
    }

    /// A bucket without an effective limit, in which nobody waits: turns are assigned by the nodes.
    fn of_bucket(id: &MeterId<'_>, bucket: &Bucket) -> Self {
        Self::whole(id, Meter::Bucket(*bucket).widest())
    }

    /// A log without an effective limit, so that no charge removes units of other nodes.
    fn of_log(id: &MeterId<'_>, log: &Log) -> Self {
        Self::whole(id, largest(log))
    }

    /// A segment of a window: a fixed window without an effective limit, which begins with the segment and lasts until its units
    /// have left.
    pub(super) fn of_segment(id: &MeterId<'_>, window: &Window, segment: u64) -> Self {
        let length = window.segment().saturating_mul(u64::from(window.carried()) + 3);
        let length = length.min(MAX_PERIOD_NANOS); // still no shorter than the segment
        let begin = window.instant(segment, 0).as_nanos();
        let offset = (length - begin % length) % length;
        let meter =
            Window::new(MAX_UNITS, length, 0, true, offset).map_or(Meter::Window(*window), Meter::Window);
        let last = begin.saturating_add(length - 1);
        // The scope of a limit never has this sign after its period.
        let text = format!("{}#{segment}", id.scope);
        Self { text, meter, instants: (Timestamp::from_nanos(begin), Timestamp::from_nanos(last)) }
    }

    pub(super) fn id<'s>(&'s self, id: &MeterId<'s>) -> MeterId<'s> {
        MeterId { scope: &self.text, ..*id }
    }

    pub(super) fn claim<'s>(&'s self, id: &MeterId<'s>, cost: u64) -> Claim<'s> {
        Claim { id: self.id(id), cost, meter: self.meter }
    }

    /// The instant at which the store may drop the meter.
    pub(super) fn forgotten_at(&self) -> Timestamp {
        Timestamp::derived(self.instants.1.as_nanos().saturating_add(1))
    }

    fn within(&self, now: Timestamp) -> Timestamp {
        now.clamp(self.instants.0, self.instants.1)
    }
}

/// Adds the requests that send a usage and read the units of the other nodes.
pub(super) fn requests(
    ledger: &Ledger,
    nth: usize,
    usage: &Usage,
    now: Timestamp,
    requests: &mut Vec<Request>,
    returns: &mut Vec<Return>,
) {
    let id = usage.name.id();
    let has_one_rate = match &usage.meter {
        Meter::Bucket(bucket) => ledger.has_one_rate(&id, bucket.interval()),
        _ => true,
    };
    let request = |scope: Scope, cost: u64, at: Timestamp| {
        let at = scope.within(at);
        Request {
            usage: nth,
            scope,
            cost: cost.min(MAX_UNITS),
            mode: Mode::Force,
            at,
            now,
            segment: 0,
            is_newest: false,
            has_one_rate,
        }
    };
    let refund = |scope: Scope, cost: u64, receipt: Timestamp| {
        let receipt = if matches!(scope.meter, Meter::Window(_)) { scope.within(receipt) } else { receipt };
        Return { usages: nth..nth + 1, scope, cost: cost.min(MAX_UNITS), receipt, began: None, part: None }
    };
    match (&usage.meter, usage.units) {
        (Meter::Window(window), Units::Window { segment: own_segment, units }) => {
            if units < 0 {
                returns.push(refund(Scope::of_segment(&id, window, own_segment), units.unsigned_abs(), now));
            }
            let charged = u64::try_from(units).unwrap_or(0);
            let read = ledger.segments(usage, now);
            let newest = read.as_ref().and_then(|read| read.last().copied());
            let others = read.into_iter().flatten().filter(|segment| *segment != own_segment);
            // The newest segment comes last: after it all are known.
            let own_too = (!usage.units.is_reading()).then_some(own_segment);
            let mut segments: Vec<u64> = others.chain(own_too).collect();
            segments.sort_unstable();
            for segment in segments {
                let cost = if segment == own_segment { charged } else { 0 };
                let request = request(Scope::of_segment(&id, window, segment), cost, now);
                requests.push(Request { segment, is_newest: newest == Some(segment), ..request });
            }
        }
        (Meter::Bucket(bucket), Units::Bucket { drain, floor }) => {
            // Not before its newest charge: the store decides as of that, and the reading has to be of the same instant.
            let now = ledger.newest(&id, now);
            // The charge is made as of the instant at which it would have begun in an empty bucket. In an empty bucket it leads
            // to `floor`, in another one it adds `drain` to the TAT, rounded up to whole units.
            let length = drain.unsigned_abs();
            if drain == 0 {
                requests.push(request(Scope::of_bucket(&id, bucket), 0, now));
            } else if drain < 0 && has_one_rate {
                // The store does not refund what of them had drained when it was last charged.
                let (whole, part) = (length / bucket.interval(), length % bucket.interval());
                let began = Some(Timestamp::derived(floor.as_nanos().saturating_sub(length)));
                if whole > 0 {
                    returns.push(Return { began, ..refund(Scope::of_bucket(&id, bucket), whole, floor) });
                }
                if part > 0 {
                    let receipt = floor.as_nanos().saturating_sub(length - part);
                    let refund = refund(Scope::of_bucket(&id, bucket), 1, Timestamp::derived(receipt));
                    let part = Some(PartialUnit { length: part, charged_at: ledger.charged_at(&id) });
                    returns.push(Return { began, part, ..refund });
                }
                requests.push(request(Scope::of_bucket(&id, bucket), 0, now));
            } else if drain < 0 {
                // With several rates, units may drain later than that.
                let length = length.min(floor.as_nanos().saturating_sub(now.as_nanos()));
                let (units, whole) = (length.div_ceil(bucket.interval()), length / bucket.interval());
                let latest = Timestamp::derived(now.as_nanos().saturating_add(length));
                let (units, receipt) = match ledger.receipt(&id, bucket.interval(), length, now) {
                    Some(receipt) => (units, receipt),
                    // Then nothing of a partly drained unit is refunded.
                    None => (whole, latest),
                };
                returns.push(refund(Scope::of_bucket(&id, bucket), units, receipt));
                requests.push(request(Scope::of_bucket(&id, bucket), 0, now));
            } else {
                let (units, began) = whole_units(bucket, length, floor);
                requests.push(request(Scope::of_bucket(&id, bucket), units, began));
                if !has_one_rate {
                    // Read the units of all rates as of now.
                    requests.push(request(Scope::of_bucket(&id, bucket), 0, now));
                }
            }
        }
        (Meter::Log(log), Units::Log { newest, units }) => {
            if units < 0 {
                let sent_at = ledger.sent_at(usage, newest);
                returns.push(refund(Scope::of_log(&id, log), units.unsigned_abs(), sent_at));
            } else if units > 0 {
                requests.push(request(Scope::of_log(&id, log), units.unsigned_abs(), newest));
            }
            // As of now: the store may have dropped what had expired when the refunded units were charged.
            requests
                .push(Request { mode: Mode::Peek, ..request(Scope::of_log(&id, log), 0, now.max(newest)) });
        }
        _ => {} // units always match the usage's meter
    }
}

impl Request {
    /// Whether the request charges units.
    pub(super) fn charges(&self) -> bool {
        self.mode == Mode::Force && self.cost > 0
    }

    /// The reading in an answer; `None` for a charge of a log.
    pub(super) fn reading(&self, verdict: &Verdict) -> Option<Reading> {
        Some(match self.scope.meter {
            Meter::Window(_) => Reading::Window {
                segment: self.segment,
                total: verdict.limit.saturating_sub(verdict.remaining),
                newest_at: self.is_newest.then_some(self.now),
            },
            Meter::Bucket(bucket) => {
                let units = verdict.limit.saturating_sub(verdict.remaining);
                let now = self.at.max(self.now);
                // If all units have one rate, the receipt of the newest is when they will have drained, and they drain in
                // the time that their number takes. Beyond the limit, the store does not tell the number.
                let longest = Duration::from_nanos(units.saturating_mul(bucket.interval())) + CLOCK_SLACK;
                let is_one_rate = match self.charges() {
                    true => verdict.receipt == Receipt::at(verdict.reset_at),
                    false => verdict.remaining == 0 || verdict.reset_at.since(now) <= longest,
                };
                Reading::Bucket(BucketReading {
                    units,
                    tat: verdict.reset_at,
                    at: self.at,
                    now,
                    has_one_rate: self.has_one_rate && is_one_rate,
                })
            }
            Meter::Log(_) if self.charges() => return None,
            Meter::Log(log) => {
                let newest = verdict.reset_at.as_nanos().saturating_sub(log.window() + 1);
                Reading::Log {
                    live: verdict.limit.saturating_sub(verdict.remaining),
                    // The store decided as of the newest unit if that is later.
                    at: verdict.receipt.instant().max(Timestamp::derived(newest)),
                }
            }
        })
    }
}
