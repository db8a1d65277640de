//! The short way for what is asked most: slices of one claim each on a window of at most one carried segment, or on a
//! bucket whose numbers are below 2<sup>53</sup>. See `scripts/fast.lua`.

use std::collections::HashSet;
use std::ops::Range;

use ratelimit_core::{Answer, Meter, Mode, Timestamp};
use redis::{Cmd, Value};
use smallvec::smallvec;

use crate::config::TimeSource;
use crate::error::Failure;
use crate::script::CLAIM;
use crate::wire::{Ask, Bytes, Slice, answer, bytes, drain_time, push, push_u16, verdict};

/// The first byte of an argument for the short way; those of the long way begin with a zero or a one.
const SHORT_WAY: u8 = 2;

/// The same where no key comes twice, so that the script need not remember them.
const NO_KEY_TWICE: u8 = 3;

/// In the place of a record that is the one before it at another instant.
const SAME: u8 = b'=';

/// The bytes of a window's first record; a bucket's is shorter.
const RECORD: usize = 43;

/// The bytes of the longest that is the same as the one before it.
const SAME_RECORD: usize = 11;

/// Below this the sums in the script are exact: less than 2<sup>53</sup> with 32 bits of the time added.
const EXACT: u64 = (1 << 53) - (1 << 32);

/// Whether the short way decides these slices exactly as the long one does.
pub(crate) fn decides(slices: &[Slice], time: TimeSource) -> bool {
    time == TimeSource::Caller && !slices.is_empty() && slices.iter().all(is_simple)
}

fn is_simple(slice: &Slice) -> bool {
    let [Ask { meter, cost, .. }] = slice.asks.as_slice() else {
        return false;
    };
    let small = match meter {
        Meter::Window(window) => window.carried() <= 1,
        // No debt of an admitted claim is longer than the tolerance.
        Meter::Bucket(bucket) => bucket.tolerance() < EXACT,
        Meter::Log(_) => false,
    };
    small && slice.mode == Mode::Charge && (1..=meter.limit()).contains(cost)
}

/// The call that decides `slices`, in their order.
pub(crate) fn claim_call(slices: &[Slice], slack_millis: u64) -> Cmd {
    let mut call = CLAIM.call(slices.len());
    let asks = || slices.iter().flat_map(|slice| slice.asks.iter().map(move |ask| (slice.now, ask)));
    let way = if key_comes_twice(slices) { SHORT_WAY } else { NO_KEY_TWICE };
    let mut records = bytes(way, &[slack_millis]);
    records.reserve(RECORD + slices.len() * SAME_RECORD);
    let mut last = 0..0;
    for (now, ask) in asks() {
        call.arg(&ask.key);
        push_record(&mut records, &mut last, ask, now);
    }
    call.arg(&*records);
    call
}

fn key_comes_twice(slices: &[Slice]) -> bool {
    if slices.len() == 1 {
        return false;
    }
    let mut keys = HashSet::with_capacity(slices.len());
    !slices.iter().flat_map(|slice| &slice.asks).all(|ask| keys.insert(&ask.key))
}

/// A claim as the script's short way reads it. `last` is where the last one stands that was written out, without its instant.
fn push_record(bytes: &mut Bytes, last: &mut Range<usize>, ask: &Ask, now: Timestamp) {
    let begin = bytes.len();
    match &ask.meter {
        Meter::Window(window) => {
            let (index, elapsed) = window.place(now);
            bytes.push(match (window.carried(), window.strict()) {
                (0, _) => b'f',
                (_, false) => b's',
                (_, true) => b't',
            });
            push(bytes, &[index, ask.cost, window.limit(), window.segment() / 1_000]);
            leave_out_if_same(bytes, last, begin);
            push(bytes, &[elapsed / 1_000]);
            push_u16(bytes, elapsed % 1_000);
        }
        Meter::Bucket(bucket) => {
            bytes.push(b'b');
            let room = (bucket.burst() - ask.cost) * bucket.interval();
            push(bytes, &[room, drain_time(bucket, ask.cost), bucket.interval(), bucket.burst()]);
            leave_out_if_same(bytes, last, begin);
            push(bytes, &[now.as_nanos()]);
        }
        Meter::Log(_) => {} // not simple
    }
}

/// What was written from `begin` on, if it is the same as what stands at `last`, becomes a sign for that.
fn leave_out_if_same(bytes: &mut Bytes, last: &mut Range<usize>, begin: usize) {
    if bytes[last.clone()] == bytes[begin..] {
        bytes.truncate(begin);
        bytes.push(SAME);
    } else {
        *last = begin..bytes.len();
    }
}

/// The answers in the reply of [`claim_call`].
pub(crate) fn answers(slices: &[Slice], reply: &Value) -> Result<Vec<Result<Answer, Failure>>, Failure> {
    if let [slice] = slices {
        return Ok(vec![alone(slice, reply)]);
    }
    let (mut text, mut general) = match reply {
        Value::BulkString(text) => (text.as_slice(), [].iter()),
        Value::Array(items) => match items.as_slice() {
            [Value::BulkString(text), general @ ..] => (text.as_slice(), general.iter()),
            _ => return Err(Failure::strange_reply()),
        },
        _ => return Err(Failure::strange_reply()),
    };
    slices.iter().map(|slice| next_answer(slice, &mut text, &mut general)).collect()
}

/// The answer for one of several, which is taken off what is left of them.
fn next_answer(
    slice: &Slice,
    text: &mut &[u8],
    general: &mut std::slice::Iter<'_, Value>,
) -> Result<Result<Answer, Failure>, Failure> {
    let (first, rest) = text.split_first().ok_or_else(Failure::strange_reply)?;
    let (admitted, values) = match first {
        b'g' => {
            *text = rest;
            let item = general.next().ok_or_else(Failure::strange_reply)?;
            return Ok(answer(slice, item, TimeSource::Caller));
        }
        b'n' => {
            *text = rest;
            return Ok(decided(slice, true, &[]));
        }
        b'r' => (false, rest),
        _ => (true, *text),
    };
    let (value, rest) = values.split_at_checked(value_size(slice)).ok_or_else(Failure::strange_reply)?;
    *text = rest;
    Ok(decided(slice, admitted, value))
}

/// The bytes of the value that was found for a slice.
fn value_size(slice: &Slice) -> usize {
    match slice.asks.first().map(|ask| &ask.meter) {
        Some(Meter::Window(window)) => 27 + 8 * window.carried() as usize,
        _ => 25,
    }
}

/// The answer for one slice that came alone.
fn alone(slice: &Slice, reply: &Value) -> Result<Answer, Failure> {
    match reply {
        Value::Nil => decided(slice, true, &[]),
        Value::BulkString(before) => decided(slice, true, before),
        Value::Array(items) => match items.as_slice() {
            [Value::Int(0), Value::BulkString(before)] => decided(slice, false, before),
            _ => answer(slice, reply, TimeSource::Caller),
        },
        _ => Err(Failure::strange_reply()),
    }
}

/// What came of a slice whose meter had the value `before`.
fn decided(slice: &Slice, admitted: bool, before: &[u8]) -> Result<Answer, Failure> {
    let [ask] = slice.asks.as_slice() else {
        return Err(Failure::strange_reply());
    };
    let verdict = verdict(ask, before, slice.now, admitted).ok_or_else(Failure::corrupt)?;
    Ok(Answer { admitted, charged: admitted, now: slice.now, verdicts: smallvec![verdict] })
}
