//! What the others are to know is sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ratelimit_core::{CLOCK_SLACK, Meter, Timestamp};

use super::entries::Writer;
use super::message::{self, FRONT, Id, SEEN};
use super::origins::Updates;
use super::store::Replicated;
use super::talk::Talk;
use super::transport::{Transport, TransportError};
use crate::ledger::{Known, Units};
use crate::names::lock;

impl<T: Transport> Replicated<T> {
    /// Sends what was charged; `false` if there was nothing to be sent. While something could not be sent, no more is
    /// taken: it stays in the ledger, where it takes no more room.
    pub(super) async fn flush(&self, now: Timestamp) -> Result<bool, TransportError> {
        let (messages, last) = {
            let mut talk = lock(&self.talk);
            let waiting = talk.outbox.unsent();
            if waiting.0.is_empty() && talk.joining.is_none() {
                self.take_pending(&mut talk, now);
                talk.outbox.unsent()
            } else {
                waiting
            }
        };
        if messages.is_empty() {
            return Ok(false);
        }
        self.send(&messages).await?;
        lock(&self.talk).outbox.sent(last);
        Ok(true)
    }

    fn take_pending(&self, talk: &mut Talk, now: Timestamp) {
        let (id, mut number) = (talk.id, talk.outbox.newest());
        let mut writer = Writer::new(self.transport.largest(), || {
            number += 1;
            message::update(id, number)
        });
        self.ledger.take_each(|name, meter, units| {
            if !is_over(meter, &units, now) {
                writer.units(&name.id(), meter, &units);
            }
        });
        let (messages, untold) = writer.finish();
        lock(&self.stats).untold += untold;
        messages.into_iter().for_each(|message| talk.outbox.push(message.into()));
    }

    /// Tells another node what is known here, in answer to its question.
    pub(super) async fn tell_state(&self, to: (Id, u64), now: Timestamp) -> Result<(), TransportError> {
        // What is pending is in the state, too: told before, it is among the updates that the state contains.
        self.flush(now).await?;
        let (id, seen) = {
            let talk = lock(&self.talk);
            let own = (talk.id, 1, talk.outbox.newest());
            (talk.id, talk.origins.seen().chain([own]).collect::<Vec<Updates>>())
        };
        let largest = self.transport.largest();
        let parts = AtomicU64::new(0);
        let begin = |is_last, seen: &[Updates]| {
            let part = parts.fetch_add(1, Ordering::Relaxed);
            message::state(id, to, part, is_last, seen)
        };
        let mut writer = Writer::new(largest, || begin(false, &[]));
        for lot in 0.. {
            let Some(states) = self.ledger.states(lot) else { break };
            // What has just drained still decides how what comes late adds up.
            let counts = |known: &&Known| known.meter.forget_at(&known.state) + CLOCK_SLACK >= now;
            for known in states.iter().filter(counts) {
                writer.state(&known.name.id(), &known.meter, &known.state);
            }
            let full = writer.full();
            if !full.is_empty() {
                self.send(&shared(full)).await?;
            }
        }
        let (mut messages, untold) = writer.finish();
        lock(&self.stats).untold += untold;
        let together = (largest.saturating_sub(FRONT) / SEEN).max(1);
        let chunks = seen.chunks(together);
        let last = chunks.len() - 1; // there is always this node itself
        messages.extend(chunks.enumerate().map(|(place, seen)| begin(place == last, seen)));
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

/// Whether nobody needs to be told any more.
fn is_over(meter: &Meter, units: &Units, now: Timestamp) -> bool {
    match (meter, units) {
        (Meter::Window(window), Units::Window { segment, .. }) => {
            segment.saturating_add(u64::from(window.carried())) < window.place(now).0
        }
        (Meter::Log(log), Units::Log { newest, .. }) => {
            newest.as_nanos().saturating_add(log.window()) < now.as_nanos()
        }
        _ => false,
    }
}
