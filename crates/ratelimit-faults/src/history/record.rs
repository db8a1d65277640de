//! The records of a worker: 24 bytes for each call.

use ratelimit_core::ErrorKind;

use super::{Call, Outcome};
use crate::load::KeyId;

/// The length of a record.
pub(crate) const SIZE: usize = 24;

/// Marks a span in which the machine did not run the worker.
const STALL: u8 = u8::MAX;

/// Marks a decision without the store.
const DEGRADED: u8 = 0x80;

/// Marks a call that took two keys.
const PAIRED: u8 = 0x40;

/// The errors by number.
const KINDS: [ErrorKind; 12] = [
    ErrorKind::Unreachable,
    ErrorKind::Timeout,
    ErrorKind::Denied,
    ErrorKind::ReadOnly,
    ErrorKind::Full,
    ErrorKind::Corrupt,
    ErrorKind::Contended,
    ErrorKind::Unsupported,
    ErrorKind::Misconfigured,
    ErrorKind::Server,
    ErrorKind::CircuitOpen,
    ErrorKind::Overloaded,
];

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Call(Call),
    /// The machine did not run the worker in this span.
    Stall {
        start: u64,
        end: u64,
    },
}

impl Entry {
    /// Its bytes.
    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let (class, number, cost, outcome, start, end) = match self {
            Self::Stall { start, end } => (STALL, 0, 0, 0, *start, *end),
            Self::Call(call) => {
                let mark = |is_set, mark| if is_set { mark } else { 0 };
                let outcome =
                    number(call.outcome) | mark(call.degraded, DEGRADED) | mark(call.paired, PAIRED);
                (call.key.class, call.key.number, call.cost, outcome, call.start, call.end)
            }
        };
        let mut bytes = [0; SIZE];
        (bytes[0], bytes[1], bytes[2]) = (class, cost, outcome);
        bytes[4..6].copy_from_slice(&number_bytes(number));
        bytes[8..16].copy_from_slice(&start.to_le_bytes());
        bytes[16..].copy_from_slice(&end.to_le_bytes());
        bytes
    }

    /// The record of this worker; `None` if it is not one.
    pub(crate) fn decode(worker: usize, bytes: &[u8; SIZE]) -> Option<Self> {
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (start, end) = (long(8)?, long(16)?);
        if bytes[0] == STALL {
            return Some(Self::Stall { start, end });
        }
        let key = KeyId { class: bytes[0], number: u16::from_le_bytes([bytes[4], bytes[5]]) };
        let outcome = outcome(bytes[2] & !(DEGRADED | PAIRED))?;
        let [degraded, paired] = [DEGRADED, PAIRED].map(|mark| bytes[2] & mark != 0);
        Some(Self::Call(Call { worker, key, cost: bytes[1], start, end, outcome, degraded, paired }))
    }
}

fn number_bytes(number: u16) -> [u8; 2] {
    number.to_le_bytes()
}

fn number(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Admitted => 0,
        Outcome::Refused => 1,
        Outcome::Dropped => 2,
        Outcome::Failed { kind, maybe } => {
            // Records a kind that is not in the list as `Server`.
            let server = KINDS.len() - 3;
            let index = KINDS.iter().position(|one| *one == kind).unwrap_or(server);
            4 + 2 * u8::try_from(index).unwrap_or(0) + u8::from(maybe)
        }
    }
}

fn outcome(number: u8) -> Option<Outcome> {
    Some(match number {
        0 => Outcome::Admitted,
        1 => Outcome::Refused,
        2 => Outcome::Dropped,
        _ => {
            let index = usize::from(number.checked_sub(4)? / 2);
            Outcome::Failed { kind: *KINDS.get(index)?, maybe: number % 2 == 1 }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let failed = |kind, maybe| Outcome::Failed { kind, maybe };
        let mut outcomes = vec![Outcome::Admitted, Outcome::Refused, Outcome::Dropped];
        outcomes.extend(KINDS.into_iter().flat_map(|kind| [failed(kind, false), failed(kind, true)]));
        for outcome in outcomes {
            for (degraded, paired) in [(false, false), (true, false), (false, true), (true, true)] {
                let key = KeyId { class: 7, number: 1_234 };
                let (start, end) = (u64::MAX - 1, 5);
                let call = Call { worker: 3, key, cost: 2, start, end, outcome, degraded, paired };
                let entry = Entry::Call(call);
                assert_eq!(Entry::decode(3, &entry.encode()), Some(entry));
            }
        }
        let stall = Entry::Stall { start: 1, end: 2 };
        assert_eq!(Entry::decode(0, &stall.encode()), Some(stall));
    }
}
