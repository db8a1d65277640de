//! What nodes say to each other, byte for byte.
//!
//! Each message begins with the version (one byte, 2), its kind (one byte) and the sixteen bytes of its origin. Then, with
//! numbers and bytes as in `wire.rs`:
//!
//! | kind | name | what follows | what it says |
//! |---|---|---|---|
//! | 1 | update | its number; the units of meters, see `units.rs`, to the end | these units were charged here |
//! | 2 | pulse | two numbers: the newest update, the oldest that can be sent again | I am here, and so much I have said |
//! | 3 | leave | nothing | I go |
//! | 4 | hello | nothing | I have come |
//! | 5 | here | a node | you have come, and I can tell you the state |
//! | 6 | ask | a node; the question's number | tell me the state |
//! | 7 | state | a node; the question's number; the part's number, from 0; 1 if it is the last or else 0; a count and so many times a node and two numbers; the states of meters to the end | this is the state, which contains the updates of these nodes from the one to the other |
//! | 8 | again | a node, two numbers | send your updates from the one to the other again |
//!
//! The updates of an origin are numbered from 1. *A node* is the sixteen bytes of the one that is meant; all others
//! overhear it. Bytes that are none of this are dropped.

use std::fmt;

use super::origins::Updates;
use super::wire::{Malformed, Reader, put_number};

const VERSION: u8 = 2;

/// Names one life of a node: made at random when it begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Id(pub(crate) [u8; 16]);

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// How many bytes at the front of an update, or of a state without updates, are not units or states of meters.
pub(crate) const FRONT: usize = 2 + 16 + 16 + 10 + 10 + 1 + 10;

/// How many bytes of a state a node and two numbers take at most.
pub(crate) const SEEN: usize = 16 + 10 + 10;

/// A message as it was received.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) origin: Id,
    pub(crate) body: Body<'a>,
}

/// What is said. What is said of meters is read later, and only if it is news.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    Update { number: u64, units: Reader<'a> },
    Pulse { newest: u64, oldest: u64 },
    Leave,
    Hello,
    Here { to: Id },
    Ask { to: Id, question: u64 },
    State { to: Id, question: u64, part: u64, is_last: bool, seen: Seen<'a>, states: Reader<'a> },
    Again { to: Id, first: u64, last: u64 },
}

/// Updates that are contained in a state; checked when the message was read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen<'a> {
    count: u64,
    updates: Reader<'a>,
}

impl Seen<'_> {
    pub(crate) fn updates(mut self) -> impl Iterator<Item = Updates> {
        (0..self.count).map_while(move |_| updates(&mut self.updates).ok())
    }
}

fn updates(reader: &mut Reader<'_>) -> Result<Updates, Malformed> {
    Ok((Id(reader.array()?), reader.number()?, reader.number()?))
}

impl<'a> Message<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(Malformed);
        }
        let kind = reader.byte()?;
        let origin = Id(reader.array()?);
        let id = |reader: &mut Reader<'_>| reader.array().map(Id);
        let body = match kind {
            1 => {
                let number = reader.number()?;
                return Ok(Self { origin, body: Body::Update { number, units: reader } });
            }
            2 => Body::Pulse { newest: reader.number()?, oldest: reader.number()? },
            3 => Body::Leave,
            4 => Body::Hello,
            5 => Body::Here { to: id(&mut reader)? },
            6 => Body::Ask { to: id(&mut reader)?, question: reader.number()? },
            7 => {
                let (to, question, part) = (id(&mut reader)?, reader.number()?, reader.number()?);
                let is_last = match reader.byte()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed),
                };
                let count = reader.number()?;
                let seen = Seen { count, updates: reader };
                for _ in 0..count {
                    updates(&mut reader)?; // ends with the message, whatever was claimed
                }
                let body = Body::State { to, question, part, is_last, seen, states: reader };
                return Ok(Self { origin, body });
            }
            8 => Body::Again { to: id(&mut reader)?, first: reader.number()?, last: reader.number()? },
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(Self { origin, body }) } else { Err(Malformed) }
    }
}

fn begin(kind: u8, origin: Id) -> Vec<u8> {
    let mut out = vec![VERSION, kind];
    out.extend_from_slice(&origin.0);
    out
}

fn begin_to(kind: u8, origin: Id, to: Id) -> Vec<u8> {
    let mut out = begin(kind, origin);
    out.extend_from_slice(&to.0);
    out
}

/// An update to which the units of meters are yet to be added.
pub(crate) fn update(origin: Id, number: u64) -> Vec<u8> {
    let mut out = begin(1, origin);
    put_number(&mut out, number);
    out
}

pub(crate) fn pulse(origin: Id, newest: u64, oldest: u64) -> Vec<u8> {
    let mut out = begin(2, origin);
    put_number(&mut out, newest);
    put_number(&mut out, oldest);
    out
}

pub(crate) fn leave(origin: Id) -> Vec<u8> {
    begin(3, origin)
}

pub(crate) fn hello(origin: Id) -> Vec<u8> {
    begin(4, origin)
}

pub(crate) fn here(origin: Id, to: Id) -> Vec<u8> {
    begin_to(5, origin, to)
}

pub(crate) fn ask(origin: Id, to: Id, question: u64) -> Vec<u8> {
    let mut out = begin_to(6, origin, to);
    put_number(&mut out, question);
    out
}

/// A part of the state, in answer to a node's question, to which the states of meters are yet to be added.
pub(crate) fn state(
    origin: Id,
    (to, question): (Id, u64),
    part: u64,
    is_last: bool,
    seen: &[Updates],
) -> Vec<u8> {
    let mut out = begin_to(7, origin, to);
    put_number(&mut out, question);
    put_number(&mut out, part);
    out.push(u8::from(is_last));
    put_number(&mut out, seen.len() as u64);
    for (id, first, last) in seen {
        out.extend_from_slice(&id.0);
        put_number(&mut out, *first);
        put_number(&mut out, *last);
    }
    out
}

pub(crate) fn again(origin: Id, to: Id, first: u64, last: u64) -> Vec<u8> {
    let mut out = begin_to(8, origin, to);
    put_number(&mut out, first);
    put_number(&mut out, last);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FROM: Id = Id([7; 16]);
    const TO: Id = Id([9; 16]);

    /// The message in words.
    fn told(bytes: &[u8]) -> String {
        match Message::read(bytes) {
            Ok(Message { origin, body }) => {
                assert_eq!(origin, FROM);
                match body {
                    Body::Update { number, units } => format!("update {number} {}", units.is_empty()),
                    Body::State { to, question, part, is_last, seen, states } => {
                        let seen: Vec<Updates> = seen.updates().collect();
                        format!(
                            "state {} {question} {part} {is_last} {seen:?} {}",
                            to == TO,
                            states.is_empty()
                        )
                    }
                    body => format!("{body:?}"),
                }
            }
            Err(malformed) => format!("{malformed:?}"),
        }
    }

    #[test]
    fn each_kind_comes_back() {
        let ids = [(FROM, 1, 3), (TO, 7, u64::MAX)];
        let (from, to) = (format!("{FROM:?}"), format!("{TO:?}"));
        for (message, expected) in [
            (update(FROM, 300), "update 300 true".to_owned()),
            (pulse(FROM, 5, 2), "Pulse { newest: 5, oldest: 2 }".to_owned()),
            (leave(FROM), "Leave".to_owned()),
            (hello(FROM), "Hello".to_owned()),
            (here(FROM, TO), format!("Here {{ to: {to} }}")),
            (ask(FROM, TO, 2), format!("Ask {{ to: {to}, question: 2 }}")),
            (
                state(FROM, (TO, 6), 4, true, &ids),
                format!("state true 6 4 true [({from}, 1, 3), ({to}, 7, {})] true", u64::MAX),
            ),
            (again(FROM, TO, 1, 900), format!("Again {{ to: {to}, first: 1, last: 900 }}")),
        ] {
            assert_eq!(told(&message), expected);
            for length in 0..message.len() {
                assert_eq!(told(&message[..length]), "Malformed", "{expected} cut at {length}");
            }
        }
        assert!(told(&[VERSION, 3].iter().chain(&[7; 17]).copied().collect::<Vec<u8>>()) == "Malformed");
    }

    #[test]
    fn other_versions_and_kinds_are_refused() {
        let mut message = hello(FROM);
        for other in [VERSION - 1, VERSION + 1] {
            message[0] = other;
            assert_eq!(told(&message), "Malformed", "{other}");
        }
        for kind in (0..=255).filter(|kind| *kind != 3 && *kind != 4) {
            (message[0], message[1]) = (VERSION, kind);
            assert_eq!(told(&message), "Malformed", "{kind}");
        }
    }

    #[test]
    fn the_front_is_no_longer_than_it_is_said_to_be() {
        assert!(update(FROM, u64::MAX).len() <= FRONT);
        assert!(state(FROM, (TO, u64::MAX), u64::MAX, true, &[]).len() <= FRONT);
        assert!(
            state(FROM, (TO, u64::MAX), u64::MAX, true, &[(TO, u64::MAX, u64::MAX)]).len() <= FRONT + SEEN
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..10_u8, bytes: Vec<u8>) {
            let message: Vec<u8> = [VERSION, kind].into_iter().chain([7; 16]).chain(bytes).collect();
            told(&message);
        }
    }
}
