//! What comes from the others is taken in.

use std::sync::Arc;

use super::entries::Entries;
use super::message::{self, Body, Id, Message};
use super::store::Replicated;
use super::talk::{Learned, Talk};
use super::transport::Transport;
use super::wire::{Malformed, Reader};
use crate::names::lock;

/// So many bytes a meter are taken in of a state, in the middle.
const BYTES: usize = 256;

/// What a message is answered with.
pub(super) enum Reply {
    Messages(Vec<Arc<[u8]>>),
    /// To a node, in answer to its question.
    State(Id, u64),
}

impl<T: Transport> Replicated<T> {
    pub(super) fn take_in(&self, bytes: &[u8]) -> Result<Option<Reply>, Malformed> {
        let Message { origin, body } = Message::read(bytes)?;
        let mut talk = lock(&self.talk);
        if origin == talk.id {
            return Ok(None);
        }
        {
            let mut stats = lock(&self.stats);
            stats.received += 1;
            stats.received_bytes += bytes.len() as u64;
        }
        talk.origins.heard(origin);
        let me = talk.id;
        let reply = match body {
            Body::Update { number, units } => {
                if !talk.holds(bytes, self.config.keep) {
                    self.count(&mut talk, origin, number, units)?;
                }
                None
            }
            Body::Pulse { newest, oldest } => {
                talk.origins.pulse(origin, newest, oldest);
                None
            }
            Body::Leave => {
                talk.origins.left(origin);
                None
            }
            Body::Hello if talk.joining.is_none() => {
                Some(Reply::Messages(vec![message::here(me, origin).into()]))
            }
            Body::Here { to } if to == me => {
                talk.here(origin).map(|question| Reply::Messages(vec![question]))
            }
            Body::Ask { to, question } if to == me => {
                talk.tells(origin, question).then_some(Reply::State(origin, question))
            }
            Body::State { to, question, part, is_last, seen, states }
                if to == me && talk.learns_from(origin, question) =>
            {
                let mut check = Entries::new(states);
                while check.state()?.is_some() {}
                let most = self.config.max_keys.saturating_mul(BYTES);
                let learned = talk.learned((part, is_last), seen.updates(), bytes, most);
                let Learned { states, held } = learned.unwrap_or_default();
                states.iter().try_for_each(|message| self.learn(message))?;
                drop(talk);
                self.count_held(&held);
                None
            }
            Body::Again { to, first, last } if to == me => {
                let beat = talk.beat + 1;
                let mut messages = talk.outbox.again(first, last, beat);
                let (newest, oldest) = (talk.outbox.newest(), talk.outbox.oldest());
                messages.push(message::pulse(me, newest, oldest).into());
                Some(Reply::Messages(messages))
            }
            _ => None, // meant for another node
        };
        Ok(reply)
    }

    /// Counts an update, unless it has been counted. One that is malformed anywhere is not counted at all.
    fn count(&self, talk: &mut Talk, origin: Id, number: u64, units: Reader<'_>) -> Result<(), Malformed> {
        if !talk.origins.is_new(origin, number) {
            lock(&self.stats).repeated += 1;
            return Ok(());
        }
        let mut check = Entries::new(units);
        while check.units()?.is_some() {}
        talk.origins.mark(origin, number);
        let mut entries = Entries::new(units);
        let uncounted = self.ledger.merge(std::iter::from_fn(|| entries.units().ok().flatten()));
        let mut stats = lock(&self.stats);
        stats.applied += 1;
        stats.uncounted += uncounted;
        Ok(())
    }

    /// Counts updates that had to wait for the state.
    pub(super) fn count_held(&self, held: &[Arc<[u8]>]) {
        for update in held {
            let counted = Message::read(update).and_then(|message| match message.body {
                Body::Update { number, units } => {
                    self.count(&mut lock(&self.talk), message.origin, number, units)
                }
                _ => Ok(()),
            });
            lock(&self.stats).malformed += u64::from(counted.is_err());
        }
    }

    /// Takes in the states of meters that a message tells.
    fn learn(&self, message: &[u8]) -> Result<(), Malformed> {
        let Body::State { states, .. } = Message::read(message)?.body else { return Ok(()) };
        let mut entries = Entries::new(states);
        while let Some((id, meter, state)) = entries.state()? {
            if !self.ledger.raise(&id, &meter, state) {
                lock(&self.stats).uncounted += 1;
            }
        }
        Ok(())
    }
}
