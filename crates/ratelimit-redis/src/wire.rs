//! What travels: claims as arguments of the script, and its reply as verdicts.

use ratelimit_core::{
    Answer, Charged, Claims, Log, LogSight, MAX_UNITS, Meter, Mode, Refund, State, Timestamp, Verdict,
    Window, WindowState,
};
use redis::{Cmd, Value};
use smallvec::SmallVec;

use crate::config::TimeSource;
use crate::error::Failure;
use crate::keys::key_of;
use crate::script::{CLAIM, REFUND};

/// A slice of claims that outlives its caller.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    pub(crate) now: Timestamp,
    pub(crate) mode: Mode,
    pub(crate) asks: SmallVec<[Ask; 2]>,
}

/// A claim, its meter's name made into a key.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) key: Vec<u8>,
    pub(crate) meter: Meter,
    pub(crate) cost: u64,
}

/// Units to give back, the meter's name made into a key.
#[derive(Clone, Debug)]
pub(crate) struct GiveBack {
    pub(crate) ask: Ask,
    pub(crate) receipt: Timestamp,
}

impl Slice {
    pub(crate) fn new(prefix: &str, claims: &Claims<'_>) -> Self {
        let ask = |claim: &ratelimit_core::Claim<'_>| Ask {
            key: key_of(prefix, &claim.id),
            meter: claim.meter,
            cost: claim.cost,
        };
        Self { now: claims.now(), mode: claims.mode(), asks: claims.iter().map(ask).collect() }
    }

    /// The slot of all its keys; `None` if they are in several.
    pub(crate) fn slot(&self) -> Option<u16> {
        let mut slots = self.asks.iter().map(|ask| crate::keys::slot_of(&ask.key));
        let first = slots.next()?;
        slots.all(|slot| slot == first).then_some(first)
    }
}

impl GiveBack {
    pub(crate) fn new(prefix: &str, refund: &Refund<'_>) -> Self {
        let key = key_of(prefix, &refund.id);
        Self { ask: Ask { key, meter: refund.meter, cost: refund.cost }, receipt: refund.receipt }
    }
}

pub(crate) type Bytes = SmallVec<[u8; 64]>;

/// Big-endian numbers, one after another.
pub(crate) fn bytes(tag: u8, numbers: &[u64]) -> Bytes {
    let mut bytes = Bytes::from_slice(&[tag]);
    for number in numbers {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes
}

/// The call that decides `slices`, in their order.
pub(crate) fn claim_call(slices: &[Slice], time: TimeSource, slack_millis: u64) -> Cmd {
    let mut call = CLAIM.call(slices.iter().map(|slice| slice.asks.len()).sum());
    for ask in slices.iter().flat_map(|slice| &slice.asks) {
        call.arg(&ask.key);
    }
    call.arg(&*bytes(u8::from(time == TimeSource::Server), &[slack_millis]));
    for slice in slices {
        let mode = match slice.mode {
            Mode::Peek => 0,
            Mode::Charge => 1,
            Mode::Force => 2,
        };
        // A slice has at most MAX_CLAIMS claims.
        let number = u8::try_from(slice.asks.len()).unwrap_or(u8::MAX);
        let mut header = Bytes::from_slice(&[mode, number]);
        header.extend_from_slice(&slice.now.as_nanos().to_be_bytes());
        call.arg(&*header);
        for ask in &slice.asks {
            call.arg(&*ask_bytes(ask, slice.now));
        }
    }
    call
}

fn ask_bytes(ask: &Ask, now: Timestamp) -> Bytes {
    // Beyond this no cost fits anything, and the count saturates.
    let cost = ask.cost.min(MAX_UNITS + 1);
    match &ask.meter {
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
                _ if cost == 0 => (0, 0),
                Some(room) => (1, room),
                None => (2, 0),
            };
            let mut bytes = Bytes::from_slice(&[b'b', class]);
            push(&mut bytes, &[room, cost.min(MAX_UNITS), bucket.interval()]);
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
pub(crate) fn refund_call(now: Timestamp, refunds: &[GiveBack], time: TimeSource) -> Cmd {
    let mut call = REFUND.call(refunds.len());
    for refund in refunds {
        call.arg(&refund.ask.key);
    }
    call.arg(&*bytes(u8::from(time == TimeSource::Server), &[now.as_nanos()]));
    for GiveBack { ask, receipt } in refunds {
        let cost = ask.cost.min(MAX_UNITS + 1);
        let argument = match &ask.meter {
            Meter::Window(window) => {
                let mut bytes = bytes(b'w', &[window.place(*receipt).0, cost]);
                push_u16(&mut bytes, u64::from(window.carried()));
                bytes
            }
            Meter::Bucket(bucket) => {
                bytes(b'b', &[receipt.as_nanos(), cost.min(MAX_UNITS), bucket.interval()])
            }
            Meter::Log(_) => bytes(b'l', &[receipt.as_nanos(), cost]),
        };
        call.arg(&*argument);
    }
    call
}

/// The answers in the reply of [`claim_call`].
pub(crate) fn answers(
    slices: &[Slice],
    time: TimeSource,
    reply: Value,
) -> Result<Vec<Result<Answer, Failure>>, Failure> {
    match reply {
        Value::Array(items) if items.len() == slices.len() => {
            Ok(slices.iter().zip(items).map(|(slice, item)| answer(slice, &item, time)).collect())
        }
        _ => Err(Failure::strange_reply()),
    }
}

/// What the long way has answered for a slice.
pub(crate) fn answer(slice: &Slice, item: &Value, time: TimeSource) -> Result<Answer, Failure> {
    let items = match item {
        Value::Array(items) if items.len() == slice.asks.len() + 1 => items,
        Value::BulkString(_) => return Err(Failure::corrupt()),
        _ => return Err(Failure::strange_reply()),
    };
    let texts: Option<SmallVec<[&[u8]; 3]>> = items
        .iter()
        .map(|item| match item {
            Value::BulkString(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
        .collect();
    let texts = texts.ok_or_else(Failure::strange_reply)?;
    let (admitted, now) = match texts[0].split_first() {
        Some((admitted, now)) => (*admitted == 1, number(now).ok_or_else(Failure::strange_reply)?),
        None => return Err(Failure::strange_reply()),
    };
    let now = match time {
        TimeSource::Caller => slice.now,
        TimeSource::Server => Timestamp::from_nanos(now),
    };
    let charging = admitted && slice.mode != Mode::Peek;
    let verdict =
        |(ask, text): (&Ask, &&[u8])| verdict(&ask.meter, ask.cost, text, now, charging && ask.cost > 0);
    let verdicts: Option<_> = slice.asks.iter().zip(&texts[1..]).map(verdict).collect();
    match verdicts {
        Some(verdicts) => Ok(Answer { admitted, charged: charging, now, verdicts }),
        None => Err(Failure::corrupt()),
    }
}

/// What core says to the state that the script has seen.
pub(crate) fn verdict(
    meter: &Meter,
    cost: u64,
    text: &[u8],
    now: Timestamp,
    charging: bool,
) -> Option<Verdict> {
    let state = match (meter, text.split_first()) {
        (_, None) => meter.fresh(),
        (Meter::Window(window), Some((b'W', rest))) => {
            let (state, at) = charged_window(window, rest)?;
            return Some(meter.verdict(&state, cost, now, Some(Charged { receipt: at, ready_at: now })));
        }
        (Meter::Log(log), Some((b'L', rest))) => return log_verdict(log, rest, cost, now, charging),
        (Meter::Window(window), Some((b'w', rest))) => window_state(window, rest)?,
        (Meter::Bucket(_), Some((b'b', _))) => State::from_bytes(text).ok()?,
        _ => return None,
    };
    if !charging {
        return Some(meter.verdict(&state, cost, now, None));
    }
    let mut state = state;
    let charged = meter.charge(&mut state, cost, now);
    Some(meter.verdict(&state, cost, now, Some(charged)))
}

/// A window as it is stored.
fn window_state(window: &Window, bytes: &[u8]) -> Option<State> {
    let (at, counts) = window_instant(window, bytes)?;
    let total = if window.carried() > 1 { 8 } else { 0 };
    let (words, []) = counts.get(total..)?.as_chunks::<8>() else {
        return None;
    };
    let counts: SmallVec<[u64; 2]> = words.iter().map(|word| u64::from_be_bytes(*word)).collect();
    let sound =
        counts.len() == window.carried() as usize + 1 && counts.iter().all(|count| *count <= MAX_UNITS);
    sound.then_some(State::Window(WindowState { at, counts }))
}

/// A segmented window after a charge: of its counts only the sum travels, and the oldest, which is weighted.
///
/// The figures of an admitted claim depend on nothing else, so the sum can stand at the newest segment.
fn charged_window(window: &Window, bytes: &[u8]) -> Option<(State, Timestamp)> {
    let (at, rest) = window_instant(window, bytes)?;
    let (whole, oldest) = (number(rest.get(..8)?)?, number(rest.get(8..)?)?);
    let mut counts = SmallVec::from_elem(0, window.carried() as usize + 1);
    *counts.first_mut()? = whole;
    *counts.last_mut()? += oldest;
    Some((State::Window(WindowState { at, counts }), at))
}

/// The instant at which a window was charged, and what follows it.
fn window_instant<'b>(window: &Window, bytes: &'b [u8]) -> Option<(Timestamp, &'b [u8])> {
    let (instant, rest) = bytes.split_at_checked(18)?;
    let (index, micros) = (number(&instant[..8])?, number(&instant[8..16])?);
    let nanos = u64::from(u16::from_be_bytes([instant[16], instant[17]]));
    Some((window.instant(index, micros.saturating_mul(1_000).saturating_add(nanos)), rest))
}

fn log_verdict(log: &Log, bytes: &[u8], cost: u64, now: Timestamp, charging: bool) -> Option<Verdict> {
    let (blocked, rest) = bytes.split_first()?;
    let (live, rest) = rest.split_at_checked(4)?;
    let live = u64::from(u32::from_be_bytes(live.try_into().ok()?));
    let (words, []) = rest.as_chunks::<8>() else {
        return None;
    };
    let [newest, blocker, seen] = words else {
        return None;
    };
    let instant = |word: &[u8; 8]| Timestamp::from_nanos(u64::from_be_bytes(*word));
    let sight = LogSight {
        now: instant(seen),
        live,
        newest: (live > 0).then(|| instant(newest)),
        blocker: (*blocked == 1).then(|| instant(blocker)),
    };
    let charged = charging.then_some(Charged { receipt: sight.now, ready_at: now });
    Some(log.verdict(&sight, cost, now, charged))
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}
