//! The messages between nodes, byte for byte.
//!
//! Each message begins with the version (one byte, 2), its kind (one byte) and the sixteen bytes of the sender's identifier.
//! Numbers and bytes are encoded as in `wire.rs`:
//!
//! | kind | name | what follows | meaning |
//! |---|---|---|---|
//! | 1 | update | its number; the units of meters, see `entries`, to the end | the sender charged these units |
//! | 2 | heartbeat | two numbers: the newest update, the oldest that can be sent again | the sender is alive and has sent these updates |
//! | 3 | leave | nothing | the sender leaves |
//! | 4 | hello | nothing | the sender is joining and needs the state of another node |
//! | 5 | offer | a node | the sender can send its state to that node, which is joining |
//! | 6 | state request | a node; the request's number | that node has to send its state |
//! | 7 | state | a node; the request's number; the part's number, from 0; 1 if it is the last part, otherwise 0; a count, and that many times a node and two numbers; the states of meters to the end | a part of the sender's state, which contains the updates of these nodes in these ranges |
//! | 8 | resend | a node, two numbers | that node has to send its updates in this range again |
//!
//! Each sender numbers its updates from 1. *A node* is the sixteen bytes of the addressee; other nodes ignore the message.
//! Bytes that are not such a message are dropped.

use std::fmt;

use super::wire::{Malformed, Reader, put_number};

const VERSION: u8 = 2;

/// Identifies one run of a node; random.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub(crate) [u8; 16]);

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

/// Updates of a node: the first and the last number.
pub(crate) type UpdateRange = (NodeId, u64, u64);

/// The maximum length, in bytes, of what precedes the units or states of meters in an update, or in a state without update
/// ranges.
pub(crate) const HEADER: usize = 2 + 16 + 16 + 10 + 10 + 1 + 10;

/// The maximum length of an update range in a state, in bytes.
pub(crate) const RANGE: usize = 16 + 10 + 10;

/// A received message.
#[derive(Debug)]
pub(crate) struct Message<'a> {
    pub(crate) sender: NodeId,
    pub(crate) body: Body<'a>,
}

/// The content of a message. The entries of meters are decoded later, and only if the message is new.
#[derive(Debug)]
pub(crate) enum Body<'a> {
    Update {
        number: u64,
        units: Reader<'a>,
    },
    Heartbeat {
        newest: u64,
        oldest: u64,
    },
    Leave,
    Hello,
    Offer {
        to: NodeId,
    },
    StateRequest {
        to: NodeId,
        request: u64,
    },
    State {
        to: NodeId,
        request: u64,
        part: u64,
        is_last: bool,
        /// The updates that the state contains.
        contained: Vec<UpdateRange>,
        states: Reader<'a>,
    },
    Resend {
        to: NodeId,
        first: u64,
        last: u64,
    },
}

fn updates(reader: &mut Reader<'_>) -> Result<UpdateRange, Malformed> {
    Ok((NodeId(reader.array()?), reader.number()?, reader.number()?))
}

impl<'a> Message<'a> {
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.byte()? != VERSION {
            return Err(Malformed);
        }
        let kind = reader.byte()?;
        let sender = NodeId(reader.array()?);
        let id = |reader: &mut Reader<'_>| reader.array().map(NodeId);
        let body = match kind {
            1 => {
                let number = reader.number()?;
                return Ok(Self { sender, body: Body::Update { number, units: reader } });
            }
            2 => Body::Heartbeat { newest: reader.number()?, oldest: reader.number()? },
            3 => Body::Leave,
            4 => Body::Hello,
            5 => Body::Offer { to: id(&mut reader)? },
            6 => Body::StateRequest { to: id(&mut reader)?, request: reader.number()? },
            7 => {
                let (to, request, part) = (id(&mut reader)?, reader.number()?, reader.number()?);
                let is_last = reader.flag()?;
                let count = reader.number()?;
                let mut contained = Vec::new(); // without a capacity: the count may be any
                for _ in 0..count {
                    contained.push(updates(&mut reader)?); // fails at the end of the message
                }
                let body = Body::State { to, request, part, is_last, contained, states: reader };
                return Ok(Self { sender, body });
            }
            8 => Body::Resend { to: id(&mut reader)?, first: reader.number()?, last: reader.number()? },
            _ => return Err(Malformed),
        };
        if reader.is_empty() { Ok(Self { sender, body }) } else { Err(Malformed) }
    }
}

/// The beginning of a message, to all nodes or to one, with the numbers that follow.
fn begin(kind: u8, sender: NodeId, to: Option<NodeId>, numbers: &[u64]) -> Vec<u8> {
    let mut out = vec![VERSION, kind];
    out.extend(sender.0);
    out.extend(to.iter().flat_map(|to| to.0));
    numbers.iter().for_each(|number| put_number(&mut out, *number));
    out
}

/// An update, to which the units of meters have to be appended.
pub(crate) fn update(sender: NodeId, number: u64) -> Vec<u8> {
    begin(1, sender, None, &[number])
}

pub(crate) fn heartbeat(sender: NodeId, newest: u64, oldest: u64) -> Vec<u8> {
    begin(2, sender, None, &[newest, oldest])
}

pub(crate) fn leave(sender: NodeId) -> Vec<u8> {
    begin(3, sender, None, &[])
}

pub(crate) fn hello(sender: NodeId) -> Vec<u8> {
    begin(4, sender, None, &[])
}

pub(crate) fn offer(sender: NodeId, to: NodeId) -> Vec<u8> {
    begin(5, sender, Some(to), &[])
}

pub(crate) fn state_request(sender: NodeId, to: NodeId, request: u64) -> Vec<u8> {
    begin(6, sender, Some(to), &[request])
}

/// A part of the state for a node's request, to which the states of meters have to be appended.
pub(crate) fn state(
    sender: NodeId,
    (to, request): (NodeId, u64),
    part: u64,
    is_last: bool,
    contained: &[UpdateRange],
) -> Vec<u8> {
    let mut out = begin(7, sender, Some(to), &[request, part, is_last.into(), contained.len() as u64]);
    for (id, first, last) in contained {
        out.extend(id.0);
        put_number(&mut out, *first);
        put_number(&mut out, *last);
    }
    out
}

pub(crate) fn resend(sender: NodeId, to: NodeId, first: u64, last: u64) -> Vec<u8> {
    begin(8, sender, Some(to), &[first, last])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FROM: NodeId = NodeId([7; 16]);
    const TO: NodeId = NodeId([9; 16]);

    /// The message as text.
    fn describe(bytes: &[u8]) -> String {
        match Message::read(bytes) {
            Ok(Message { sender, body }) => {
                assert_eq!(sender, FROM);
                match body {
                    Body::Update { number, units } => format!("update {number} {}", units.is_empty()),
                    Body::State { to, request, part, is_last, contained, states } => {
                        format!(
                            "state {} {request} {part} {is_last} {contained:?} {}",
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
    fn every_kind_of_message_round_trips() {
        let ids = [(FROM, 1, 3), (TO, 7, u64::MAX)];
        let (from, to) = (format!("{FROM:?}"), format!("{TO:?}"));
        for (message, expected) in [
            (update(FROM, 300), "update 300 true".to_owned()),
            (heartbeat(FROM, 5, 2), "Heartbeat { newest: 5, oldest: 2 }".to_owned()),
            (leave(FROM), "Leave".to_owned()),
            (hello(FROM), "Hello".to_owned()),
            (offer(FROM, TO), format!("Offer {{ to: {to} }}")),
            (state_request(FROM, TO, 2), format!("StateRequest {{ to: {to}, request: 2 }}")),
            (
                state(FROM, (TO, 6), 4, true, &ids),
                format!("state true 6 4 true [({from}, 1, 3), ({to}, 7, {})] true", u64::MAX),
            ),
            (resend(FROM, TO, 1, 900), format!("Resend {{ to: {to}, first: 1, last: 900 }}")),
        ] {
            assert_eq!(describe(&message), expected);
            for length in 0..message.len() {
                assert_eq!(describe(&message[..length]), "Malformed", "{expected} cut at {length}");
            }
        }
        assert!(describe(&[VERSION, 3].iter().chain(&[7; 17]).copied().collect::<Vec<u8>>()) == "Malformed");
    }

    #[test]
    fn other_versions_and_kinds_are_refused() {
        let mut message = hello(FROM);
        for other in [VERSION - 1, VERSION + 1] {
            message[0] = other;
            assert_eq!(describe(&message), "Malformed", "{other}");
        }
        for kind in (0..=255).filter(|kind| *kind != 3 && *kind != 4) {
            (message[0], message[1]) = (VERSION, kind);
            assert_eq!(describe(&message), "Malformed", "{kind}");
        }
    }

    #[test]
    fn the_header_is_no_longer_than_declared() {
        assert!(update(FROM, u64::MAX).len() <= HEADER);
        assert!(state(FROM, (TO, u64::MAX), u64::MAX, true, &[]).len() <= HEADER);
        assert!(
            state(FROM, (TO, u64::MAX), u64::MAX, true, &[(TO, u64::MAX, u64::MAX)]).len() <= HEADER + RANGE
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_refused(kind in 0..10_u8, bytes: Vec<u8>) {
            let message: Vec<u8> = [VERSION, kind].into_iter().chain([7; 16]).chain(bytes).collect();
            describe(&message);
        }
    }
}
