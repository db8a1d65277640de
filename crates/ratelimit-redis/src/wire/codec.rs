//! The general path: encodes claims as arguments of the scripts, and decodes the replies.

use ratelimit_core::meter::{MAX_UNITS, Meter};
use ratelimit_core::store::{Answer, Mode};
use ratelimit_core::{StoreError, Timestamp, kit, store::Time};
use redis::{Cmd, Value};
use smallvec::SmallVec;

use crate::error::{self, ERRORS};
use crate::wire::keys::slot_of;
use crate::wire::script::{CLAIM, REFUND};
use crate::wire::verdict::{number, verdict};

/// Claims whose meters' names are encoded as keys.
pub(crate) type OwnedClaims = kit::OwnedClaims<Vec<u8>>;

/// A claim whose meter's name is encoded as a key.
pub(crate) type OwnedClaim = kit::OwnedClaim<Vec<u8>>;

/// Units to give back, with the meter's name encoded as a key.
pub(crate) type OwnedRefund = kit::OwnedRefund<Vec<u8>>;

/// The common slot of all keys of these claims; `None` if they are in several slots.
pub(crate) fn slot_of_all(claims: &OwnedClaims) -> Option<u16> {
    let mut slots = claims.claims.iter().map(|claim| slot_of(&claim.key));
    let first = slots.next()?;
    slots.all(|slot| slot == first).then_some(first)
}

/// The answer to each slice of a call.
pub(crate) type Answers = Vec<Result<Answer, StoreError>>;

pub(crate) type Bytes = SmallVec<[u8; 64]>;

/// A tag followed by big-endian numbers.
pub(crate) fn bytes(tag: u8, numbers: &[u64]) -> Bytes {
    let mut bytes = Bytes::from_slice(&[tag]);
    push(&mut bytes, numbers);
    bytes
}

/// The call that decides `slices`, in their order.
pub(crate) fn claim_call(slices: &[OwnedClaims], time: Time, slack_millis: u64) -> Cmd {
    let mut call = CLAIM.call(slices.iter().map(|slice| slice.claims.len()).sum());
    for claim in slices.iter().flat_map(|slice| &slice.claims) {
        call.arg(&claim.key);
    }
    call.arg(&*bytes(u8::from(time == Time::Server), &[slack_millis]));
    for slice in slices {
        let mode = match slice.mode {
            Mode::Peek => 0,
            Mode::Charge => 1,
            Mode::Force => 2,
        };
        // A slice has at most MAX_CLAIMS claims.
        let number = u8::try_from(slice.claims.len()).unwrap_or(u8::MAX);
        let mut header = Bytes::from_slice(&[mode, number]);
        header.extend_from_slice(&slice.now.as_nanos().to_be_bytes());
        call.arg(&*header);
        for claim in &slice.claims {
            call.arg(&*claim_bytes(claim, slice.now));
        }
    }
    call
}

fn claim_bytes(claim: &OwnedClaim, now: Timestamp) -> Bytes {
    // A larger cost never fits, and the count saturates.
    let cost = claim.cost.min(MAX_UNITS + 1);
    match &claim.meter {
        Meter::Window(window) => {
            let (index, elapsed) = window.place(now);
            let mut bytes = bytes(b'w', &[index, elapsed / 1_000]);
            push_u16(&mut bytes, elapsed % 1_000);
            push(&mut bytes, &[cost, window.limit()]);
            push_u16(&mut bytes, u64::from(window.carried()));
            bytes.push(u8::from(window.strict()));
            push(&mut bytes, &[window.segment() / 1_000, window.offset() / 1_000]);
            bytes
        }
        Meter::Bucket(bucket) => {
            let (class, room) = match bucket.burst().checked_sub(cost) {
                _ if cost == 0 && bucket.burst() > 0 => (0, 0),
                Some(room) => (1, room),
                None => (2, 0),
            };
            let mut bytes = Bytes::from_slice(&[b'b', class]);
            push(&mut bytes, &[room, cost.min(MAX_UNITS), bucket.interval(), bucket.step()]);
            bytes
        }
        Meter::Log(log) => {
            let limit = log.limit();
            bytes(b'l', &[log.window(), limit, cost.min(limit), cost.min(limit + 1)])
        }
    }
}

pub(crate) fn push(bytes: &mut Bytes, numbers: &[u64]) {
    for number in numbers {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
}

/// For numbers that are known to be small.
pub(crate) fn push_u16(bytes: &mut Bytes, number: u64) {
    bytes.extend_from_slice(&u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
}

/// The call that gives units back.
pub(crate) fn refund_call(now: Timestamp, refunds: &[OwnedRefund], time: Time) -> Cmd {
    let mut call = REFUND.call(refunds.len());
    for refund in refunds {
        call.arg(&refund.claim.key);
    }
    call.arg(&*bytes(u8::from(time == Time::Server), &[now.as_nanos()]));
    for OwnedRefund { claim, receipt } in refunds {
        let cost = claim.cost.min(MAX_UNITS + 1);
        let argument = match &claim.meter {
            Meter::Window(window) => {
                let mut bytes = bytes(b'w', &[window.place(receipt.instant()).0, cost]);
                push_u16(&mut bytes, u64::from(window.carried()));
                bytes
            }
            Meter::Bucket(bucket) => {
                let cost = cost.min(MAX_UNITS);
                let numbers =
                    [receipt.instant().as_nanos(), cost, bucket.interval(), bucket.step(), bucket.unqueued()];
                bytes(b'b', &numbers)
            }
            Meter::Log(_) => bytes(b'l', &[receipt.instant().as_nanos(), cost]),
        };
        call.arg(&*argument);
    }
    call
}

/// Decodes the reply to [`claim_call`].
pub(crate) fn decode(slices: &[OwnedClaims], time: Time, reply: Value) -> Result<Answers, StoreError> {
    match reply {
        Value::Array(items) if items.len() == slices.len() => {
            Ok(slices.iter().zip(items).map(|(slice, item)| decode_slice(slice, &item, time)).collect())
        }
        _ => Err(error::strange_reply()),
    }
}

/// Decodes the part of a reply that answers one slice.
pub(crate) fn decode_slice(slice: &OwnedClaims, item: &Value, time: Time) -> Result<Answer, StoreError> {
    let items = match item {
        Value::Array(items) if items.len() == slice.claims.len() + 1 => items,
        Value::BulkString(_) => return Err(ERRORS.corrupt_value()),
        _ => return Err(error::strange_reply()),
    };
    let texts: Option<SmallVec<[&[u8]; 3]>> = items
        .iter()
        .map(|item| match item {
            Value::BulkString(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
        .collect();
    let texts = texts.ok_or_else(error::strange_reply)?;
    let (admitted, now) = match texts[0].split_first() {
        Some((admitted, now)) => (*admitted == 1, number(now).ok_or_else(error::strange_reply)?),
        None => return Err(error::strange_reply()),
    };
    let now = match time {
        Time::Caller => slice.now,
        Time::Server => Timestamp::from_nanos(now),
    };
    let charging = admitted && slice.mode != Mode::Peek;
    let decide = |(claim, text): (&OwnedClaim, &&[u8])| {
        verdict(&claim.meter, claim.cost, text, now, charging && claim.cost > 0)
    };
    let verdicts: Option<_> = slice.claims.iter().zip(&texts[1..]).map(decide).collect();
    match verdicts {
        Some(verdicts) => Ok(Answer { admitted, charged: charging, now, verdicts }),
        None => Err(error::corrupt_after(charging)),
    }
}
