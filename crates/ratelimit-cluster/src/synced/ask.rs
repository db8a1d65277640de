//! What the shared store is asked: which meter stands for what, and what its answer means.

use ratelimit_core::{
    Bucket, Claim, MAX_PERIOD_NANOS, MAX_UNITS, Meter, MeterId, Mode, Timestamp, Verdict, Window,
};

use crate::ledger::{Ledger, Owed, Reading, Units, Usage};

/// A meter of the shared store. A bucket and a log are there as they are, a bucket without a limit to speak of, so that the
/// answer says how many units it owes; a window has a meter for each segment, so
/// that the total of a segment can be told from the answer, and late units find their own.
pub(super) struct Scope {
    text: String,
    pub(super) meter: Meter,
    /// The first and the last instant at which it may be spoken of.
    instants: (Timestamp, Timestamp),
}

/// One claim on a meter of the shared store: it charges, or it only reads.
pub(super) struct Ask {
    /// The number of the usage that it is for.
    pub(super) usage: usize,
    pub(super) scope: Scope,
    pub(super) cost: u64,
    pub(super) mode: Mode,
    pub(super) at: Timestamp,
    now: Timestamp,
    segment: u64,
    is_newest: bool,
    /// Whether all units of a bucket are of the rate that is asked for, as far as this node knows.
    has_one_rate: bool,
}

/// Units to give back to a meter of the shared store.
pub(super) struct Return {
    pub(super) usage: usize,
    pub(super) scope: Scope,
    pub(super) cost: u64,
    pub(super) receipt: Timestamp,
}

/// The longest that a full bucket may take to drain.
const LONGEST: u64 = 1 << 61;

impl Scope {
    /// A bucket or a log.
    pub(super) fn whole(id: &MeterId<'_>, meter: Meter) -> Self {
        Self { text: id.scope.to_owned(), meter, instants: (Timestamp::EPOCH, Timestamp::MAX) }
    }

    /// A bucket, without a limit to speak of.
    fn of_bucket(id: &MeterId<'_>, bucket: &Bucket) -> Self {
        let burst = (LONGEST / bucket.interval()).min(MAX_UNITS);
        let wide = Bucket::with_interval(bucket.interval(), burst, bucket.queue());
        Self::whole(id, Meter::Bucket(wide.unwrap_or(*bucket)))
    }

    /// A segment of a window: a fixed window without a limit to speak of, which begins with the segment, and lasts
    /// until its units have long left.
    pub(super) fn of_segment(id: &MeterId<'_>, window: &Window, segment: u64) -> Self {
        let length = window.segment().saturating_mul(u64::from(window.carried()) + 3);
        let length = length.min(MAX_PERIOD_NANOS); // still no shorter than the segment
        let begin = window.instant(segment, 0).as_nanos();
        let offset = (length - begin % length) % length;
        let meter =
            Window::new(MAX_UNITS, length, 0, true, offset).map_or(Meter::Window(*window), Meter::Window);
        let last = begin.saturating_add(length - 1);
        // No limit's scope has this sign after its period.
        let text = format!("{}#{segment}", id.scope);
        Self { text, meter, instants: (Timestamp::from_nanos(begin), Timestamp::from_nanos(last)) }
    }

    pub(super) fn id<'s>(&'s self, id: &MeterId<'s>) -> MeterId<'s> {
        MeterId { scope: &self.text, ..*id }
    }

    pub(super) fn claim<'s>(&'s self, id: &MeterId<'s>, cost: u64) -> Claim<'s> {
        Claim { id: self.id(id), cost, meter: self.meter }
    }

    /// From when on the store need not know of it any more.
    pub(super) fn forgotten_at(&self) -> Timestamp {
        Timestamp::derived(self.instants.1.as_nanos().saturating_add(1))
    }

    fn within(&self, now: Timestamp) -> Timestamp {
        now.clamp(self.instants.0, self.instants.1)
    }
}

/// What has to be asked to tell a usage, and to learn what the others have told.
pub(super) fn asks(
    ledger: &Ledger,
    nth: usize,
    usage: &Usage,
    now: Timestamp,
    asks: &mut Vec<Ask>,
    returns: &mut Vec<Return>,
) {
    let id = usage.name.id();
    let has_one_rate = match &usage.meter {
        Meter::Bucket(bucket) => ledger.has_one_rate(&id, bucket.interval()),
        _ => true,
    };
    let ask = |scope: Scope, cost: u64, at: Timestamp| {
        let at = scope.within(at);
        Ask {
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
    let give_back = |scope: Scope, cost: u64, receipt: Timestamp| {
        let receipt = if matches!(scope.meter, Meter::Window(_)) { scope.within(receipt) } else { receipt };
        Return { usage: nth, scope, cost: cost.min(MAX_UNITS), receipt }
    };
    match (&usage.meter, usage.units) {
        (Meter::Window(window), Units::Window { segment: own, units }) => {
            if units < 0 {
                returns.push(give_back(Scope::of_segment(&id, window, own), units.unsigned_abs(), now));
            }
            let charged = u64::try_from(units).unwrap_or(0);
            let read = ledger.segments(usage, now);
            let newest = read.as_ref().map(|read| *read.end());
            let others = read.into_iter().flatten().filter(|segment| *segment != own);
            // The newest comes last: with it all are known.
            let mut segments: Vec<u64> = others.chain([own]).collect();
            segments.sort_unstable();
            for segment in segments {
                let cost = if segment == own { charged } else { 0 };
                let ask = ask(Scope::of_segment(&id, window, segment), cost, now);
                asks.push(Ask { segment, is_newest: newest == Some(segment), now, ..ask });
            }
        }
        (Meter::Bucket(bucket), Units::Bucket { drain, floor }) => {
            // Charged as of the instant at which it would have begun in an empty bucket, it leads to `floor` from one,
            // and takes the TAT on by `drain` from another.
            let length = drain.unsigned_abs();
            let units = length.div_ceil(bucket.interval());
            if drain < 0 {
                // Units drain in their order: what of them is left lies before the receipt.
                let newest = ledger.newest(&id).map_or(now, |newest| now.max(newest));
                let receipt = Timestamp::derived(newest.as_nanos().saturating_add(length));
                let (units, receipt) = if has_one_rate {
                    (units, receipt)
                } else if let Some(receipt) = ledger.receipt(&id, bucket.interval(), length, now) {
                    (units, receipt)
                } else {
                    // At one of several rates they may drain later than that. Then of a unit of which a part has drained nothing
                    // is given back.
                    (length / bucket.interval(), receipt)
                };
                returns.push(give_back(Scope::of_bucket(&id, bucket), units, receipt));
                asks.push(ask(Scope::of_bucket(&id, bucket), 0, now));
            } else {
                let began = floor.as_nanos().saturating_sub(length);
                asks.push(ask(Scope::of_bucket(&id, bucket), units, Timestamp::from_nanos(began)));
                if !has_one_rate {
                    // How many units there are of all rates is wanted as of now.
                    asks.push(ask(Scope::of_bucket(&id, bucket), 0, now));
                }
            }
        }
        (meter @ Meter::Log(_), Units::Log { newest, units }) => {
            if units < 0 {
                let told_at = ledger.told_at(usage, newest);
                returns.push(give_back(Scope::whole(&id, *meter), units.unsigned_abs(), told_at));
            } else {
                asks.push(ask(Scope::whole(&id, *meter), units.unsigned_abs(), newest));
            }
            // Whether a further unit would fit says how many there are, and if it does not, which is the oldest.
            asks.push(Ask { mode: Mode::Peek, ..ask(Scope::whole(&id, *meter), 1, newest) });
        }
        _ => {} // units are always those of the usage's meter
    }
}

impl Ask {
    /// Whether something is told by it.
    pub(super) fn charges(&self) -> bool {
        self.mode == Mode::Force && self.cost > 0
    }

    /// What the answer says of the usage's meter.
    pub(super) fn reading(&self, verdict: &Verdict) -> Reading {
        match self.scope.meter {
            Meter::Window(_) => Reading::Window {
                segment: self.segment,
                total: verdict.limit.saturating_sub(verdict.remaining),
                newest_at: self.is_newest.then_some(self.now),
            },
            Meter::Bucket(_) => Reading::Bucket(Owed {
                units: verdict.limit.saturating_sub(verdict.remaining),
                tat: verdict.reset_at,
                at: self.at,
                now: self.at.max(self.now),
                // If all are of one rate, the receipt of the newest is when they will have drained.
                has_one_rate: self.has_one_rate && (!self.charges() || verdict.receipt == verdict.reset_at),
            }),
            Meter::Log(_) if self.charges() => Reading::Told { units: self.cost, at: verdict.receipt },
            Meter::Log(log) => {
                let unit = |leaves: Timestamp| {
                    Timestamp::derived(leaves.as_nanos().saturating_sub(log.window() + 1))
                };
                Reading::Log {
                    live: verdict.limit.saturating_sub(verdict.remaining),
                    // The store has decided as of the newest unit if that is later.
                    at: verdict.receipt.max(unit(verdict.reset_at)),
                    oldest: verdict.fits_at.filter(|_| !verdict.fits).map(unit),
                }
            }
        }
    }
}
