//! What travels: claims as arrays of numbers, and numbers as verdicts.

use std::collections::BTreeMap;

use ratelimit_core::{
    Answer, Bucket, BucketState, Charged, Claims, Log, LogSight, MAX_UNITS, Meter, MeterId, Mode, Refund,
    State, Timestamp, Verdict, WindowState,
};
use sha2::{Digest, Sha256};
use smallvec::SmallVec;

use crate::config::{PostgresConfig, TimeSource};
use crate::error::Failure;
use crate::link::Call;

/// Names up to this length are stored as they are.
const MAX_NAME: usize = 200;

/// The longest debt that a charge adds to a bucket, as in core: 2<sup>62</sup> - 1 ns.
const MAX_DEBT: u64 = (1 << 62) - 1;

/// A slice of claims that outlives its caller.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) now: Timestamp,
    pub(crate) mode: Mode,
    pub(crate) asks: SmallVec<[Ask; 2]>,
}

/// A claim, its meter's name as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) name: Vec<u8>,
    pub(crate) meter: Meter,
    pub(crate) cost: u64,
}

impl Slice {
    pub(crate) fn new(claims: &Claims<'_>) -> Self {
        let ask = |claim: &ratelimit_core::Claim<'_>| Ask {
            name: name_of(&claim.id),
            meter: claim.meter,
            cost: claim.cost,
        };
        Self { now: claims.now(), mode: claims.mode(), asks: claims.iter().map(ask).collect() }
    }

    /// How many claims there are.
    pub(crate) fn len(&self) -> usize {
        self.asks.len()
    }

    fn charges(&self, ask: &Ask) -> bool {
        self.mode != Mode::Peek && ask.cost > 0
    }
}

/// A meter's name as it is stored. Short ones begin with a digit, so a digest is none of them.
pub(crate) fn name_of(id: &MeterId<'_>) -> Vec<u8> {
    let name = id.to_bytes();
    if name.len() <= MAX_NAME {
        return name;
    }
    let mut short = vec![b'#'];
    short.extend_from_slice(&Sha256::digest(&name));
    short
}

/// The call that decides `slices`, in their order.
pub(crate) fn claim_call(slices: &[Slice], config: &PostgresConfig) -> Call {
    // Ascending, first those that may be charged.
    let mut places = BTreeMap::new();
    for slice in slices {
        for ask in &slice.asks {
            *places.entry(ask.name.as_slice()).or_insert(false) |= slice.charges(ask);
        }
    }
    let writes = places.values().filter(|charged| **charged).count();
    let mut ids = Vec::with_capacity(places.len());
    for wanted in [true, false] {
        ids.extend(places.iter().filter(|(_, charged)| **charged == wanted).map(|(name, _)| name.to_vec()));
    }
    let place = |name: &[u8]| {
        let found = ids[..writes].binary_search_by(|id| id.as_slice().cmp(name));
        let rest =
            || ids[writes..].binary_search_by(|id| id.as_slice().cmp(name)).map(|place| place + writes);
        number_of(found.or_else(|_| rest()).unwrap_or(0)) + 1
    };
    let (mut heads, mut claims) = (Vec::new(), Vec::new());
    for slice in slices {
        let mode = match slice.mode {
            Mode::Peek => 0,
            Mode::Charge => 1,
            Mode::Force => 2,
        };
        heads.extend([signed(slice.now.as_nanos()), mode, number_of(slice.asks.len())]);
        for ask in &slice.asks {
            claims.push(place(&ask.name));
            claims.extend(ask_numbers(ask));
        }
    }
    let writes = i32::try_from(writes).unwrap_or(i32::MAX);
    let by_server = config.time == TimeSource::Server;
    Call::Claim { ids, writes, slices: heads, claims, by_server, slack: config.slack_micros() }
}

/// Kind, cost, and five numbers that depend on the kind: see `meter.sql`.
pub(crate) fn ask_numbers(ask: &Ask) -> [i64; 7] {
    // Beyond this no cost fits anything, and counts saturate.
    let cost = ask.cost.min(MAX_UNITS + 1);
    let numbers = match &ask.meter {
        Meter::Window(window) => {
            let [carried, strict] = [u64::from(window.carried()), u64::from(window.strict())];
            [0, cost, window.limit(), window.segment(), window.offset(), carried, strict]
        }
        Meter::Bucket(bucket) => {
            let room = bucket.burst().checked_sub(cost).map(|units| units * bucket.interval());
            let drain = drain_time(bucket, cost);
            let mut numbers = [1, cost, bucket.burst(), bucket.interval(), 0, drain, 0].map(signed);
            numbers[4] = room.map_or(-1, signed);
            return numbers;
        }
        Meter::Log(log) => [2, cost.min(log.limit() + 1), log.limit(), log.window(), 0, 0, 0],
    };
    numbers.map(signed)
}

/// The call that gives units back.
pub(crate) fn refund_call(now: Timestamp, refunds: &[Refund<'_>], config: &PostgresConfig) -> Call {
    let mut ids: Vec<_> = refunds.iter().map(|refund| name_of(&refund.id)).collect();
    ids.sort_unstable();
    ids.dedup();
    let mut numbers = Vec::with_capacity(refunds.len() * 8);
    for refund in refunds {
        let place = ids.binary_search(&name_of(&refund.id)).unwrap_or(0);
        numbers.push(number_of(place) + 1);
        let (cost, receipt) = (refund.cost.min(MAX_UNITS + 1), refund.receipt);
        let rest = match &refund.meter {
            Meter::Window(window) => {
                let carried = u64::from(window.carried());
                [0, cost, window.place(receipt).0, window.segment(), window.offset(), carried, 0]
            }
            Meter::Bucket(bucket) => [1, cost, bucket.interval(), receipt.as_nanos(), 0, 0, 0],
            Meter::Log(_) => [2, cost, receipt.as_nanos().min(i64::MAX as u64 - 1), 0, 0, 0, 0],
        };
        numbers.extend(rest.map(signed));
    }
    let by_server = config.time == TimeSource::Server;
    Call::Refund { ids, now: signed(now.as_nanos()), refunds: numbers, by_server }
}

/// What `units` take to drain, as a charge adds it.
fn drain_time(bucket: &Bucket, units: u64) -> u64 {
    bucket.interval().saturating_mul(units).min(MAX_DEBT)
}

pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn number_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The numbers of a reply, taken one after another.
struct Reply<'r>(&'r [i64]);

impl<'r> Reply<'r> {
    fn number(&mut self) -> Option<i64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn numbers(&mut self) -> Option<&'r [i64]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (numbers, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(numbers)
    }
}

/// The answers in the reply of [`claim_call`].
pub(crate) fn answers(slices: &[Slice], numbers: &[i64]) -> Result<Vec<Result<Answer, Failure>>, Failure> {
    let mut reply = Reply(numbers);
    let answers: Option<Vec<_>> = slices.iter().map(|slice| answer(slice, &mut reply)).collect();
    answers.filter(|_| reply.0.is_empty()).ok_or_else(Failure::strange_reply)
}

/// `None` if the reply is not one to this slice.
fn answer(slice: &Slice, reply: &mut Reply<'_>) -> Option<Result<Answer, Failure>> {
    let outcome = reply.number()?;
    let now = Timestamp::from_nanos(unsigned(reply.number()?)?);
    let charged = outcome == 1 && slice.mode != Mode::Peek;
    let mut verdicts = SmallVec::new();
    for ask in &slice.asks {
        let numbers = reply.numbers()?;
        if outcome < 2 {
            verdicts.push(verdict(ask, numbers, now, charged && ask.cost > 0)?);
        }
    }
    if outcome == 2 {
        return Some(Err(Failure::corrupt()));
    }
    Some(Ok(Answer { admitted: outcome == 1, charged, now, verdicts }))
}

/// What core says to the state that the server has seen.
fn verdict(ask: &Ask, numbers: &[i64], now: Timestamp, charging: bool) -> Option<Verdict> {
    let Ask { meter, cost, .. } = ask;
    let mut state = match (meter, numbers) {
        (Meter::Log(log), numbers) => return log_verdict(log, numbers, *cost, now, charging),
        (_, []) => meter.fresh(),
        (Meter::Window(_), [at, counts @ ..]) => {
            let counts: Option<_> = counts.iter().map(|count| unsigned(*count)).collect();
            State::Window(WindowState { at: Timestamp::from_nanos(unsigned(*at)?), counts: counts? })
        }
        (Meter::Bucket(_), numbers) => bucket_state(numbers)?,
    };
    let charged = charging.then(|| meter.charge(&mut state, *cost, now));
    Some(meter.verdict(&state, *cost, now, charged))
}

/// A bucket's state; `None` if the numbers are none.
pub(crate) fn bucket_state(numbers: &[i64]) -> Option<State> {
    let numbers: Option<SmallVec<[u64; 4]>> = numbers.iter().map(|number| unsigned(*number)).collect();
    BucketState::from_numbers(&numbers?).map(State::Bucket)
}

fn log_verdict(log: &Log, numbers: &[i64], cost: u64, now: Timestamp, charging: bool) -> Option<Verdict> {
    let [seen, live, newest, blocker] = numbers else {
        return None;
    };
    let instant = |nanos: i64| unsigned(nanos).map(Timestamp::from_nanos);
    let now_seen = instant(*seen)?;
    let sight = LogSight {
        now: now_seen,
        live: unsigned(*live)?,
        newest: instant(*newest),
        blocker: instant(*blocker),
    };
    let charged = charging.then_some(Charged { receipt: now_seen, ready_at: now });
    Some(log.verdict(&sight, cost, now, charged))
}

pub(crate) fn unsigned(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}
