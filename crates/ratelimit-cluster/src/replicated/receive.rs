//! Receiving: messages of other nodes are applied and answered.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::Timestamp;
use ratelimit_core::clock::Timer;

use super::entries::Entries;
use super::message::{self, Body, Message, NodeId};
use super::session::FullState;
use super::store::Replicated;
use super::transport::Transport;
use super::wire::Malformed;
use crate::table::lock;

/// A received state may have a mebibyte for each of [`ReplicaConfig::max_keys`](super::ReplicaConfig::max_keys) meters: no
/// log is longer in a message. But all together may have a gibibyte, or 256 bytes each if that is more.
fn longest_state(max_keys: usize) -> usize {
    (max_keys.min(1 << 10) << 20).max(max_keys.saturating_mul(256))
}

/// The pause after an error before receiving again.
const PAUSE: Duration = Duration::from_millis(100);

/// The answer to a message.
enum Reply {
    Messages(Vec<Arc<[u8]>>),
    /// The state, for the request of a node.
    State(NodeId, u64),
}

impl<T: Transport> Replicated<T> {
    /// Receives messages forever. For programs that call [`broadcast`](Self::broadcast) themselves.
    pub async fn listen<C: Timer>(&self, clock: &C) {
        loop {
            match self.transport.receive().await {
                Ok(message) => self.receive(&message, clock.now()).await,
                Err(_) => clock.sleep(PAUSE).await,
            }
        }
    }

    /// Applies a message, and answers it if necessary. [`listen`](Self::listen) calls this for all messages; call it
    /// yourself only if you do not use `listen`. If an answer cannot be sent, the other node requests it again.
    pub async fn receive(&self, message: &[u8], now: Timestamp) {
        match self.handle(message, now) {
            Ok(Some(Reply::Messages(messages))) => drop(self.send(&messages).await),
            Ok(Some(Reply::State(to, request))) => drop(self.send_state((to, request), now).await),
            Ok(None) => {}
            Err(Malformed) => lock(&self.stats).malformed += 1,
        }
    }

    fn handle(&self, bytes: &[u8], now: Timestamp) -> Result<Option<Reply>, Malformed> {
        let Message { sender, body } = Message::read(bytes)?;
        let mut session = lock(&self.session);
        if sender == session.id {
            return Ok(None);
        }
        {
            let mut stats = lock(&self.stats);
            stats.received += 1;
            stats.received_bytes += bytes.len() as u64;
        }
        session.peers.mark_seen(sender);
        let me = session.id;
        let reply = match body {
            Body::Update { number, .. } => {
                if session.hold(bytes, self.config.history_bytes) {
                    session.peers.mark_known(sender, number);
                } else {
                    self.apply(&mut session, bytes, now)?;
                }
                None
            }
            Body::Heartbeat { newest, oldest } => {
                session.peers.heartbeat(sender, newest, oldest);
                None
            }
            Body::Leave => {
                session.peers.leave(sender);
                None
            }
            Body::Hello if session.should_offer(sender) => {
                Some(Reply::Messages(vec![message::offer(me, sender).into()]))
            }
            Body::Offer { to } if to == me => {
                session.offered(sender).map(|request| Reply::Messages(vec![request]))
            }
            Body::StateRequest { to, request } if to == me => {
                session.should_answer(sender, request).then_some(Reply::State(sender, request))
            }
            Body::State { to, request, part, is_last, contained, states }
                if to == me && session.awaits(sender, request) =>
            {
                let mut check = Entries::new(states);
                while check.state()?.is_some() {}
                let max = longest_state(self.config.max_keys);
                let state = session.add_part((part, is_last), contained, bytes, max);
                let FullState { states, held } = state.unwrap_or_default();
                states.iter().try_for_each(|message| self.apply_state(message, now))?;
                drop(session);
                self.apply_held(&held, now);
                None
            }
            Body::Resend { to, first, last } if to == me => {
                let interval = session.peers.interval + 1;
                let mut messages = session.outbox.resend(first, last, interval);
                let (newest, oldest) = (session.outbox.newest(), session.outbox.oldest());
                messages.push(message::heartbeat(me, newest, oldest).into());
                Some(Reply::Messages(messages))
            }
            _ => None, // meant for another node
        };
        Ok(reply)
    }
}
