//! Sending: updates, heartbeats, requests, and the state for a node that joins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_core::Timestamp;
use ratelimit_core::store::CLOCK_SLACK;

use super::entries::Writer;
use super::message::{self, HEADER, NodeId, RANGE, UpdateRange};
use super::session::Session;
use super::store::Replicated;
use super::transport::{Transport, TransportError};
use crate::ledger::Known;
use crate::table::lock;

impl<T: Transport> Replicated<T> {
    /// Broadcasts the charges since the last call, and requests missing updates of other nodes. Call it once an interval,
    /// unless [`run`](Self::run) does.
    ///
    /// # Errors
    /// If the messages could not be sent. Nothing is lost: the next call sends them.
    pub async fn broadcast(&self, now: Timestamp) -> Result<(), TransportError> {
        let result = self.broadcast_all(now).await;
        *lock(&self.outage) = result.as_ref().err().map(ToString::to_string);
        result
    }

    async fn broadcast_all(&self, now: Timestamp) -> Result<(), TransportError> {
        self.ledger.expire(now);
        if !self.send_pending(now).await? {
            let heartbeat = {
                let session = lock(&self.session);
                message::heartbeat(session.id, session.outbox.newest(), session.outbox.oldest())
            };
            self.send(&[heartbeat.into()]).await?;
        }
        let (requests, held) = lock(&self.session).end_interval();
        self.apply_held(&held, now);
        if requests.is_empty() { Ok(()) } else { self.send(&requests).await }
    }

    /// Broadcasts the remaining charges, and that this node leaves. Call it before the process ends.
    ///
    /// # Errors
    /// If the messages could not be sent. The other nodes then miss the last charges, and count this node as a peer for a while.
    pub async fn leave(&self, now: Timestamp) -> Result<(), TransportError> {
        let held = lock(&self.session).finish_joining();
        self.apply_held(&held, now);
        self.send_all(now).await?;
        let leave = message::leave(lock(&self.session).id);
        self.send(&[leave.into()]).await
    }

    /// Sends what could not be sent earlier, and then the pending charges.
    async fn send_all(&self, now: Timestamp) -> Result<(), TransportError> {
        for _ in 0..2 {
            self.send_pending(now).await?;
        }
        Ok(())
    }

    /// Sends the pending charges; `false` if there are none. While this node joins, or while earlier updates could not be
    /// sent, charges stay in the ledger, where they are combined and take no more memory.
    pub(super) async fn send_pending(&self, now: Timestamp) -> Result<bool, TransportError> {
        let (messages, last) = {
            let mut session = lock(&self.session);
            let unsent = session.outbox.unsent();
            if unsent.0.is_empty() && session.joining.is_none() {
                self.take_pending(&mut session, now);
                session.outbox.unsent()
            } else {
                unsent
            }
        };
        if messages.is_empty() {
            return Ok(false);
        }
        self.send(&messages).await?;
        lock(&self.session).outbox.mark_sent(last);
        Ok(true)
    }

    fn take_pending(&self, session: &mut Session, now: Timestamp) {
        let (id, mut number) = (session.id, session.outbox.newest());
        let mut writer = Writer::new(self.transport.largest(), || {
            number += 1;
            message::update(id, number)
        });
        self.ledger.take_each(|name, meter, units| {
            if !units.have_left(meter, now) {
                writer.units(&name.id(), meter, &units);
            }
        });
        let (messages, too_large) = writer.finish();
        lock(&self.stats).too_large += too_large;
        messages.into_iter().for_each(|message| session.outbox.push(message.into()));
    }

    /// Sends the state of this node, as the answer to a request.
    pub(super) async fn send_state(&self, to: (NodeId, u64), now: Timestamp) -> Result<(), TransportError> {
        // The state includes the pending units. They are sent first, as an update that the state then declares as
        // contained. Units charged from then on until their shard is read count twice on the other node.
        self.send_all(now).await?;
        let (id, ranges) = {
            let session = lock(&self.session);
            let own_range = (session.id, 1, session.outbox.newest());
            (session.id, session.peers.applied().chain([own_range]).collect::<Vec<UpdateRange>>())
        };
        let largest = self.transport.largest();
        let parts = AtomicU64::new(0);
        let begin = |is_last, ranges: &[UpdateRange]| {
            let part = parts.fetch_add(1, Ordering::Relaxed);
            message::state(id, to, part, is_last, ranges)
        };
        let mut writer = Writer::new(largest, || begin(false, &[]));
        for shard in 0.. {
            let Some(states) = self.ledger.states(shard) else { break };
            // A state that has just drained still determines how late units are added.
            let counts = |known: &&Known| known.meter.forget_at(&known.state) + CLOCK_SLACK >= now;
            for known in states.iter().filter(counts) {
                writer.state(&known.name.id(), &known.meter, &known.state);
            }
            let full = writer.take_full();
            if !full.is_empty() {
                self.send(&shared(full)).await?;
            }
        }
        let (mut messages, too_large) = writer.finish();
        lock(&self.stats).too_large += too_large;
        let per_message = (largest.saturating_sub(HEADER) / RANGE).max(1);
        let chunks = ranges.chunks(per_message);
        let last = chunks.len() - 1; // there is always at least this node's own range
        messages.extend(chunks.enumerate().map(|(place, ranges)| begin(place == last, ranges)));
        self.send(&shared(messages)).await
    }

    pub(super) async fn send(&self, messages: &[Arc<[u8]>]) -> Result<(), TransportError> {
        self.transport.send(messages).await?;
        let mut stats = lock(&self.stats);
        stats.sent += messages.len() as u64;
        stats.sent_bytes += messages.iter().map(|message| message.len() as u64).sum::<u64>();
        Ok(())
    }
}

fn shared(messages: Vec<Vec<u8>>) -> Vec<Arc<[u8]>> {
    messages.into_iter().map(Arc::from).collect()
}
