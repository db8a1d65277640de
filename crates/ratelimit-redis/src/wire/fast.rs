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
use crate::wire::codec::{Bytes, OwnedClaim, OwnedClaims, bytes, decode_slice, push, push_u16};
use crate::wire::script::CLAIM;
use crate::wire::verdict::verdict;

/// The first byte of `ARGV[1]`: 2 or 3 selects the fast path. On the general path it is 0 or 1, which says whether the
/// server's clock decides.
const FAST_PATH: u8 = 2;

/// The fast path for a call in which no key occurs twice, so that the script need not remember keys.
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
    pub(crate) meter: &'a Meter,
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
    pub(crate) fn without_key(&self) -> OwnedClaims {
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

/// Decodes the reply to a [`claim_call`] of one slice; `fast_batch.rs` those of several.
pub(crate) fn decode(single: &Single<'_>, reply: &Value) -> Result<Answer, StoreError> {
    match reply {
        Value::Nil => answer(single, true, &[]),
        Value::BulkString(text) if text == b"corrupt" => Err(ERRORS.corrupt_value()),
        Value::BulkString(before) => answer(single, true, before),
        Value::Array(items) => match items.as_slice() {
            [Value::Int(0), Value::BulkString(before)] => answer(single, false, before),
            _ => decode_slice(&single.without_key(), reply, Time::Caller),
        },
        _ => Err(error::strange_reply()),
    }
}

/// The answer to a claim whose meter had the value `before`; empty if it had none.
pub(crate) fn answer(single: &Single<'_>, admitted: bool, before: &[u8]) -> Result<Answer, StoreError> {
    let Single { now, cost, meter, .. } = *single;
    let verdict =
        verdict(meter, cost, before, now, admitted).ok_or_else(|| error::corrupt_after(admitted))?;
    Ok(Answer { admitted, charged: admitted, now, verdicts: smallvec![verdict] })
}
