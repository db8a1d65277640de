//! The fast path for the most common calls: slices of one claim each on a window of at most one carried segment, or on a
//! bucket whose numbers are below 2<sup>53</sup>. See `scripts/fast.lua`.

use std::collections::HashSet;

use ratelimit_core::meter::Meter;
use ratelimit_core::store::Time;
use ratelimit_core::store::{Answer, Mode};
use ratelimit_core::{StoreError, Timestamp};
use redis::{Cmd, Value};
use smallvec::smallvec;

use crate::error::{self, ERRORS};
use crate::wire::codec::{Answers, Bytes, OwnedClaim, OwnedClaims, answer, bytes, push, push_u16, verdict};
use crate::wire::script::CLAIM;

/// The first byte of an argument for the fast path; on the general path it is zero or one.
const FAST_PATH: u8 = 2;

/// The first byte of an argument for the fast path if no key occurs twice, so that the script need not remember keys.
const NO_KEY_TWICE: u8 = 3;

/// The mark of a record that equals the one before it except for its instant.
const SAME: u8 = b'=';

/// The size in bytes of a window's first record; a bucket's is shorter.
const RECORD: usize = 43;

/// The size in bytes of the longest record that equals the one before it.
const SAME_RECORD: usize = 11;

/// Below this the sums in the script are exact: less than 2<sup>53</sup> with 32 bits of the time added.
const EXACT: u64 = (1 << 53) - (1 << 32);

/// A slice of one claim that the fast path decides exactly as the general path does.
#[derive(Clone, Copy)]
pub(crate) struct Single<'a> {
    pub(crate) key: &'a [u8],
    now: Timestamp,
    cost: u64,
    meter: &'a Meter,
}

impl<'a> Single<'a> {
    /// The claim of a slice that the fast path can decide.
    pub(crate) fn of_slice(slice: &'a OwnedClaims, time: Time) -> Option<Self> {
        let [OwnedClaim { key, meter, cost }] = slice.claims.as_slice() else {
            return None;
        };
        let small = match meter {
            Meter::Window(window) => window.carried() <= 1,
            // No debt of an admitted claim exceeds the tolerance.
            Meter::Bucket(bucket) => bucket.step() == 0 && bucket.tolerance() < EXACT,
            Meter::Log(_) => false,
        };
        let usual = time == Time::Caller && slice.mode == Mode::Charge;
        let is_simple = usual && small && (1..=meter.limit()).contains(cost);
        is_simple.then_some(Self { key, now: slice.now, cost: *cost, meter })
    }

    /// A slice for decoding a reply of the general path, which does not need the key.
    fn without_key(&self) -> OwnedClaims {
        let claim = OwnedClaim { key: Vec::new(), meter: *self.meter, cost: self.cost };
        OwnedClaims { now: self.now, mode: Mode::Charge, claims: smallvec![claim] }
    }
}

/// The call that decides `singles`, in their order.
pub(crate) fn claim_call(singles: &[Single<'_>], slack_millis: u64) -> Cmd {
    let mut call = CLAIM.call(singles.len());
    let way = if comes_twice(singles) { FAST_PATH } else { NO_KEY_TWICE };
    let mut records = bytes(way, &[slack_millis]);
    records.reserve(RECORD + singles.len() * SAME_RECORD);
    let mut last = None;
    for single in singles {
        call.arg(single.key);
        push_record(&mut records, &mut last, single);
    }
    call.arg(&*records);
    call
}

/// Whether a key occurs twice.
fn comes_twice(singles: &[Single<'_>]) -> bool {
    if singles.len() == 1 {
        return false;
    }
    let mut keys = HashSet::with_capacity(singles.len());
    !singles.iter().all(|single| keys.insert(single.key))
}

/// What similar claims have in common: the numbers of a record without its instant.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    mark: u8,
    numbers: [u64; 4],
}

/// Encodes a claim for the script's fast path; `last` is the shape of the claim before it.
fn push_record(bytes: &mut Bytes, last: &mut Option<Shape>, single: &Single<'_>) {
    let Single { now, cost, meter, .. } = *single;
    let (shape, instant, nanos) = match meter {
        Meter::Window(window) => {
            let (index, elapsed) = window.place(now);
            let mark = match (window.carried(), window.strict()) {
                (0, _) => b'f',
                (_, false) => b's',
                (_, true) => b't',
            };
            let numbers = [index, cost, window.limit(), window.segment() / 1_000];
            (Shape { mark, numbers }, elapsed / 1_000, Some(elapsed % 1_000))
        }
        Meter::Bucket(bucket) => {
            let room = (bucket.burst() - cost) * bucket.interval();
            let numbers = [room, cost * bucket.interval(), bucket.interval(), 0];
            (Shape { mark: b'b', numbers }, now.as_nanos(), None)
        }
        Meter::Log(_) => return, // not simple
    };
    if *last == Some(shape) {
        bytes.push(SAME);
    } else {
        bytes.push(shape.mark);
        let size = if shape.mark == b'b' { 3 } else { 4 };
        push(bytes, &shape.numbers[..size]);
        *last = Some(shape);
    }
    push(bytes, &[instant]);
    if let Some(nanos) = nanos {
        push_u16(bytes, nanos);
    }
}

/// The answers in the reply of [`claim_call`].
pub(crate) fn answers(singles: &[Single<'_>], reply: &Value) -> Result<Answers, StoreError> {
    if let [single] = singles {
        return Ok(vec![alone(single, reply)]);
    }
    let (mut text, mut general) = match reply {
        Value::BulkString(text) => (text.as_slice(), [].iter()),
        Value::Array(items) => match items.as_slice() {
            [Value::BulkString(text), general @ ..] => (text.as_slice(), general.iter()),
            _ => return Err(error::strange_reply()),
        },
        _ => return Err(error::strange_reply()),
    };
    let mut answers = Vec::with_capacity(singles.len());
    for single in singles {
        answers.push(match next_found(single, &mut text)? {
            Some(Found { admitted, value }) => decided(single, admitted, value),
            None => {
                let item = general.next().ok_or_else(error::strange_reply)?;
                answer(&single.without_key(), item, Time::Caller)
            }
        });
    }
    Ok(answers)
}

/// The result of the fast path for one claim.
struct Found<'a> {
    admitted: bool,
    /// The meter's value before the charge.
    value: &'a [u8],
}

/// Takes the next claim's result off `text`; `None` if the general path has decided that claim.
fn next_found<'a>(single: &Single<'_>, text: &mut &'a [u8]) -> Result<Option<Found<'a>>, StoreError> {
    let (first, rest) = text.split_first().ok_or_else(error::strange_reply)?;
    let (admitted, values) = match first {
        b'g' => {
            *text = rest;
            return Ok(None);
        }
        b'n' => {
            *text = rest;
            return Ok(Some(Found { admitted: true, value: &[] }));
        }
        b'r' => (false, rest),
        _ => (true, *text),
    };
    let (value, rest) = values.split_at_checked(value_size(single.meter)).ok_or_else(error::strange_reply)?;
    *text = rest;
    Ok(Some(Found { admitted, value }))
}

/// The size of a meter's value in bytes.
fn value_size(meter: &Meter) -> usize {
    match meter {
        Meter::Window(window) => 27 + 8 * window.carried() as usize,
        _ => 25,
    }
}

/// The answer for a call of one slice.
pub(crate) fn alone(single: &Single<'_>, reply: &Value) -> Result<Answer, StoreError> {
    match reply {
        Value::Nil => decided(single, true, &[]),
        Value::BulkString(text) if text == b"corrupt" => Err(ERRORS.corrupt_value()),
        Value::BulkString(before) => decided(single, true, before),
        Value::Array(items) => match items.as_slice() {
            [Value::Int(0), Value::BulkString(before)] => decided(single, false, before),
            _ => answer(&single.without_key(), reply, Time::Caller),
        },
        _ => Err(error::strange_reply()),
    }
}

/// The answer to a claim whose meter had the value `before`.
fn decided(single: &Single<'_>, admitted: bool, before: &[u8]) -> Result<Answer, StoreError> {
    let Single { now, cost, meter, .. } = *single;
    let verdict =
        verdict(meter, cost, before, now, admitted).ok_or_else(|| error::corrupt_after(admitted))?;
    Ok(Answer { admitted, charged: admitted, now, verdicts: smallvec![verdict] })
}
