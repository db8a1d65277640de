//! Makes verdicts of the states in a script's reply.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Charged, Log, LogSight, MAX_UNITS, Meter, State, Window, WindowState};
use ratelimit_core::store::{Receipt, Verdict};
use smallvec::SmallVec;

/// The verdict of core on a claim. `reply` is what the script has answered for its meter; `None` if that cannot be decoded.
///
/// The script answers with the value that it has read, so this is the state *before* the charge, whether it has charged or
/// not. If it has, the charge is repeated here, which also yields the receipt and the turn in a queue. A log, and a segmented
/// window that was charged, may be long; of these the script sends a summary of the state after the decision.
pub(crate) fn verdict(
    meter: &Meter,
    cost: u64,
    reply: &[u8],
    now: Timestamp,
    charging: bool,
) -> Option<Verdict> {
    let mut state = match (meter, reply.split_first()) {
        (_, None) => meter.fresh(),
        (Meter::Window(window), Some((b'w', rest))) => window_state(window, rest)?,
        (Meter::Bucket(_), Some((b'b', _))) => State::from_bytes(reply).ok()?,
        (Meter::Window(window), Some((b'W', rest))) => {
            let (state, at) = charged_window(window, rest)?;
            let charged = Charged { receipt: Receipt::at(at), ready_at: now };
            return Some(meter.verdict(&state, cost, now, Some(charged)));
        }
        (Meter::Log(log), Some((b'L', rest))) => return log_verdict(log, rest, cost, now, charging),
        _ => return None,
    };
    let charged = charging.then(|| meter.charge(&mut state, cost, now));
    Some(meter.verdict(&state, cost, now, charged))
}

/// Decodes a window as it is stored.
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

/// Decodes a segmented window after a charge: the reply contains only the sum of its counts, and the weighted oldest.
///
/// The figures of an admitted claim depend on nothing else, so the sum is placed in the newest segment.
fn charged_window(window: &Window, bytes: &[u8]) -> Option<(State, Timestamp)> {
    let (at, rest) = window_instant(window, bytes)?;
    let (whole, oldest) = (number(rest.get(..8)?)?, number(rest.get(8..)?)?);
    if oldest > MAX_UNITS || whole / MAX_UNITS > u64::from(window.carried()) + 1 {
        return None;
    }
    let mut counts = SmallVec::from_elem(0, window.carried() as usize + 1);
    *counts.first_mut()? = whole;
    *counts.last_mut()? += oldest;
    Some((State::Window(WindowState { at, counts }), at))
}

/// The instant of a window's last charge, and the bytes after it; `None` if it is later than any charge can be.
fn window_instant<'b>(window: &Window, bytes: &'b [u8]) -> Option<(Timestamp, &'b [u8])> {
    let (instant, rest) = bytes.split_at_checked(18)?;
    let (index, micros) = (number(&instant[..8])?, number(&instant[8..16])?);
    let nanos = u64::from(u16::from_be_bytes([instant[16], instant[17]]));
    let instant = window.instant(index, micros.saturating_mul(1_000).saturating_add(nanos));
    (instant <= Timestamp::MAX).then_some((instant, rest))
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
    let charged = charging.then_some(Charged { receipt: Receipt::at(sight.now), ready_at: now });
    Some(log.verdict(&sight, cost, now, charged))
}

/// A big-endian number of eight bytes.
pub(crate) fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}
