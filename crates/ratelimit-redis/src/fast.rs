//! The short way for what is asked most: slices of one claim each on a window of at most one carried segment, or on a
//! bucket whose numbers are below 2<sup>53</sup>. See `scripts/fast.lua`.

use ratelimit_core::{Answer, Meter, Mode};
use redis::{Cmd, Value};
use smallvec::smallvec;

use crate::config::TimeSource;
use crate::error::Failure;
use crate::script::CLAIM;
use crate::wire::{Ask, Bytes, Slice, answer, ask_bytes, push, verdict};

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
    for (_, ask) in asks() {
        call.arg(&ask.key);
    }
    for (now, ask) in asks() {
        let mut bytes = ask_bytes(ask, now);
        push(&mut bytes, &[now.as_nanos(), slack_millis]);
        if let Meter::Window(window) = &ask.meter {
            // As text, as the server reads it. A bucket's lifetime depends on what is stored.
            let (_, elapsed) = window.place(now);
            let micros = (u64::from(window.carried()) + 1) * (window.segment() / 1_000) - elapsed / 1_000;
            push_text(&mut bytes, micros.div_ceil(1_000) + slack_millis);
        }
        call.arg(&*bytes);
    }
    call
}

/// A number in decimal digits.
fn push_text(bytes: &mut Bytes, mut number: u64) {
    let begin = bytes.len();
    loop {
        bytes.push(b'0' + u8::try_from(number % 10).unwrap_or_default());
        number /= 10;
        if number == 0 {
            break;
        }
    }
    bytes[begin..].reverse();
}

/// The answers in the reply of [`claim_call`].
pub(crate) fn answers(slices: &[Slice], reply: &Value) -> Result<Vec<Result<Answer, Failure>>, Failure> {
    let replies = match (slices, reply) {
        ([_], reply) => std::slice::from_ref(reply),
        (_, Value::Array(replies)) if replies.len() == slices.len() => replies.as_slice(),
        _ => return Err(Failure::strange_reply()),
    };
    Ok(slices.iter().zip(replies).map(|(slice, reply)| decided(slice, reply)).collect())
}

fn decided(slice: &Slice, reply: &Value) -> Result<Answer, Failure> {
    let (admitted, text) = match reply {
        Value::Nil => (true, &[][..]),
        Value::BulkString(before) => (true, before.as_slice()),
        Value::Array(items) => match items.as_slice() {
            [Value::Int(0), Value::BulkString(before)] => (false, before.as_slice()),
            // It went the long way.
            _ => return answer(slice, reply),
        },
        _ => return Err(Failure::strange_reply()),
    };
    let [ask] = slice.asks.as_slice() else {
        return Err(Failure::strange_reply());
    };
    let verdict = verdict(ask, text, slice.now, admitted).ok_or_else(Failure::corrupt)?;
    Ok(Answer { admitted, charged: admitted, now: slice.now, verdicts: smallvec![verdict] })
}
