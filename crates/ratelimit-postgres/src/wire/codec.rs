//! Encodes claims as arrays of numbers and decodes the replies to verdicts.

use std::collections::BTreeMap;

use ratelimit_core::meter::{BucketState, Charged, Log, LogSight, MAX_UNITS, Meter, State, WindowState};
use ratelimit_core::store::Time;
use ratelimit_core::store::{Answer, Mode, Receipt, Refund, Verdict};
use ratelimit_core::{StoreError, Timestamp};
use smallvec::SmallVec;

use crate::config::PostgresConfig;
use crate::error;
use crate::wire::call::Argument::{BigInt, BigInts, BytesList, Int};
use crate::wire::call::{Argument, Call};
use crate::wire::claims::{OwnedClaim, OwnedClaims, claim_numbers, name_of, signed};
use crate::wire::schema::Function;

/// The call that decides `slices`, in their order.
pub(crate) fn claim_call(slices: &[OwnedClaims], config: &PostgresConfig) -> Call {
    // Ascending, starting with those that may be charged.
    let mut places = BTreeMap::new();
    for slice in slices {
        for claim in &slice.claims {
            *places.entry(claim.key.as_slice()).or_insert(false) |= slice.charges(claim);
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
        heads.extend([signed(slice.now.as_nanos()), mode, number_of(slice.claims.len())]);
        for claim in &slice.claims {
            claims.push(place(&claim.key));
            claims.extend(claim_numbers(claim));
        }
    }
    let writes = i32::try_from(writes).unwrap_or(i32::MAX);
    let arguments =
        [BytesList(ids), Int(writes), BigInts(heads), BigInts(claims), by_server(config), slack(config)];
    Call::new(Function::Claim, arguments)
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
        let (cost, receipt) = (refund.cost.min(MAX_UNITS + 1), refund.receipt.instant());
        let rest = match &refund.meter {
            Meter::Window(window) => {
                let carried = u64::from(window.carried());
                [0, cost, window.place(receipt).0, window.segment(), window.offset(), carried, 0]
            }
            Meter::Bucket(bucket) => {
                [1, cost, bucket.interval(), receipt.as_nanos(), bucket.step(), 0, bucket.unqueued()]
            }
            Meter::Log(_) => [2, cost, receipt.as_nanos().min(i64::MAX as u64 - 1), 0, 0, 0, 0],
        };
        numbers.extend(rest.map(signed));
    }
    let now = BigInt(signed(now.as_nanos()));
    Call::new(Function::Refund, [BytesList(ids), now, BigInts(numbers), by_server(config)])
}

/// Whether the server's clock decides, as an argument.
pub(crate) fn by_server(config: &PostgresConfig) -> Argument {
    Argument::Bool(config.time == Time::Server)
}

/// How long a meter is kept after it has become irrelevant, as an argument.
pub(crate) fn slack(config: &PostgresConfig) -> Argument {
    BigInt(config.slack_micros())
}

fn number_of(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Reads the numbers of a reply one after another.
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
pub(crate) fn answers(
    slices: &[OwnedClaims],
    numbers: &[i64],
) -> Result<Vec<Result<Answer, StoreError>>, StoreError> {
    let mut reply = Reply(numbers);
    let answers: Option<Vec<_>> = slices.iter().map(|slice| answer(slice, &mut reply)).collect();
    answers.filter(|_| reply.0.is_empty()).ok_or_else(error::strange_reply)
}

/// `None` if the reply does not match this slice.
fn answer(slice: &OwnedClaims, reply: &mut Reply<'_>) -> Option<Result<Answer, StoreError>> {
    let outcome = reply.number().filter(|outcome| (0..=2).contains(outcome))?;
    let now = Timestamp::from_nanos(unsigned(reply.number()?)?);
    let charged = outcome == 1 && slice.mode != Mode::Peek;
    let mut verdicts = SmallVec::new();
    for claim in &slice.claims {
        let numbers = reply.numbers()?;
        if outcome < 2 {
            verdicts.push(verdict(claim, numbers, now, charged && claim.cost > 0)?);
        }
    }
    if outcome == 2 {
        return Some(Err(error::corrupt()));
    }
    Some(Ok(Answer { admitted: outcome == 1, charged, now, verdicts }))
}

/// The verdict of core on the state that the server has read.
fn verdict(claim: &OwnedClaim, numbers: &[i64], now: Timestamp, charging: bool) -> Option<Verdict> {
    let OwnedClaim { meter, cost, .. } = claim;
    let mut state = match (meter, numbers) {
        (Meter::Log(log), numbers) => return log_verdict(log, numbers, *cost, now, charging),
        (_, []) => meter.fresh(),
        (Meter::Window(_), [at, counts @ ..]) => {
            let count = |count: &i64| unsigned(*count).filter(|count| *count <= MAX_UNITS);
            let counts: Option<_> = counts.iter().map(count).collect();
            State::Window(WindowState { at: Timestamp::from_nanos(unsigned(*at)?), counts: counts? })
        }
        (Meter::Bucket(_), numbers) => bucket_state(numbers)?,
    };
    let charged = charging.then(|| meter.charge(&mut state, *cost, now));
    Some(meter.verdict(&state, *cost, now, charged))
}

/// A bucket's state; `None` if the numbers are not valid.
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
    let charged = charging.then_some(Charged { receipt: Receipt::at(now_seen), ready_at: now });
    Some(log.verdict(&sight, cost, now, charged))
}

pub(crate) fn unsigned(number: i64) -> Option<u64> {
    u64::try_from(number).ok()
}
