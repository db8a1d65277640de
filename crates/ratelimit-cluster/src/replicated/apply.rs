//! Applies updates and states of other nodes to the ledger.

use std::sync::Arc;

use super::entries::Entries;
use super::message::{Body, Message, NodeId};
use super::session::Session;
use super::store::Replicated;
use super::wire::{Malformed, Reader};
use crate::table::lock;

impl<T> Replicated<T> {
    /// Applies an update unless it was applied before. A malformed update is not applied at all.
    ///
    /// An update with refunds is not applied while earlier updates of its sender are missing: it may refund what was charged
    /// in those, and would remove other nodes' units instead. It is requested again together with them.
    pub(super) fn apply(
        &self,
        session: &mut Session,
        sender: NodeId,
        number: u64,
        units: Reader<'_>,
    ) -> Result<(), Malformed> {
        if !session.peers.is_new(sender, number) {
            lock(&self.stats).repeated += 1;
            return Ok(());
        }
        let mut check = Entries::new(units);
        let mut has_refunds = false;
        while let Some((_, _, units)) = check.units()? {
            has_refunds |= units.is_refund();
        }
        if !session.peers.is_next(sender, number) && has_refunds {
            return Ok(());
        }
        session.peers.mark(sender, number);
        let mut entries = Entries::new(units);
        let uncounted = self.ledger.merge(std::iter::from_fn(|| entries.units().ok().flatten()));
        let mut stats = lock(&self.stats);
        stats.applied += 1;
        stats.uncounted += uncounted;
        Ok(())
    }

    /// Applies updates that were held while this node was joining.
    pub(super) fn apply_held(&self, held: &[Arc<[u8]>]) {
        for update in held {
            let applied = Message::read(update).and_then(|message| match message.body {
                Body::Update { number, units } => {
                    self.apply(&mut lock(&self.session), message.sender, number, units)
                }
                _ => Ok(()),
            });
            lock(&self.stats).malformed += u64::from(applied.is_err());
        }
    }

    /// Merges the states of meters in a message.
    pub(super) fn apply_state(&self, message: &[u8]) -> Result<(), Malformed> {
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
