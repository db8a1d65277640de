//! Decodes the replies to calls of several slices on the fast path.

use ratelimit_core::StoreError;
use ratelimit_core::meter::Meter;
use ratelimit_core::store::Time;
use redis::Value;

use crate::error;
use crate::wire::codec::{Answers, decode_slice};
use crate::wire::fast::{self, Single};

/// Decodes the reply to a [`claim_call`](fast::claim_call).
pub(crate) fn decode(singles: &[Single<'_>], reply: &Value) -> Result<Answers, StoreError> {
    if let [single] = singles {
        return Ok(vec![fast::decode(single, reply)]);
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
            Some(Found { admitted, value }) => fast::answer(single, admitted, value),
            None => {
                let item = general.next().ok_or_else(error::strange_reply)?;
                decode_slice(&single.without_key(), item, Time::Caller)
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
