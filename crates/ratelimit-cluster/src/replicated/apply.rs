//! Applies updates and states of other nodes to the ledger.

use std::sync::Arc;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::State;
use ratelimit_core::store::MeterId;

use super::entries::Entries;
use super::message::{Body, Message};
use super::session::Session;
use super::store::Replicated;
use super::wire::Malformed;
use crate::ledger::Units;
use crate::table::lock;

impl<T> Replicated<T> {
    /// Applies an update unless it was applied before, and then those that came early. A malformed update is not applied at
    /// all.
    pub(super) fn apply(
        &self,
        session: &mut Session,
        update: &[u8],
        now: Timestamp,
    ) -> Result<(), Malformed> {
        self.apply_one(session, update, now)?;
        self.apply_early(session, now);
        Ok(())
    }

    /// An update with refunds is not applied while earlier updates of its sender are missing: it may refund what was charged
    /// in those, and would remove other nodes' units instead. For the same reason, units that have left their window by now
    /// are ignored: this node may have dropped those that are refunded.
    fn apply_one(&self, session: &mut Session, update: &[u8], now: Timestamp) -> Result<(), Malformed> {
        let Message { sender, body: Body::Update { number, units } } = Message::read(update)? else {
            return Ok(());
        };
        if !session.peers.is_new(sender, number) {
            lock(&self.stats).repeated += 1;
            return Ok(());
        }
        let mut check = Entries::new(units);
        let mut has_refunds = false;
        while let Some((_, _, units)) = check.units()? {
            has_refunds |= units.is_refund();
        }
        session.peers.mark_known(sender, number);
        if has_refunds && !session.peers.applied_before(sender, number) {
            session.keep_early((sender, number), update, self.config.history_bytes);
            return Ok(());
        }
        session.peers.mark(sender, number);
        let mut entries = Entries::new(units);
        let units = std::iter::from_fn(|| entries.units().ok().flatten());
        let units = units.filter(|(_, meter, units)| !units.have_left(meter, now));
        let units = units.map(|(id, meter, units)| (id, meter, as_one_ban(&id, units)));
        let uncounted = self.ledger.merge(units, now);
        let mut stats = lock(&self.stats);
        stats.applied += 1;
        stats.uncounted += uncounted;
        Ok(())
    }

    /// Applies early updates for which no earlier ones are missing any more.
    fn apply_early(&self, session: &mut Session, now: Timestamp) {
        while let Some(update) = session.take_next() {
            let _ = self.apply_one(session, &update, now); // it was read before
        }
    }

    /// Applies updates that were held while this node was joining, and early ones that no longer have to wait.
    pub(super) fn apply_held(&self, held: &[Arc<[u8]>], now: Timestamp) {
        for update in held {
            let applied = self.apply(&mut lock(&self.session), update, now);
            lock(&self.stats).malformed += u64::from(applied.is_err());
        }
        self.apply_early(&mut lock(&self.session), now);
    }

    /// Merges the states of meters in a message.
    pub(super) fn apply_state(&self, message: &[u8], now: Timestamp) -> Result<(), Malformed> {
        let Body::State { states, .. } = Message::read(message)?.body else { return Ok(()) };
        let mut entries = Entries::new(states);
        while let Some((id, meter, state)) = entries.state()? {
            let uncounted = match &state {
                // `raise` would add a ban that is pending here.
                State::Bucket(ban) if id.decides_ban() => {
                    let units = Units::Bucket { drain: 0, floor: ban.tat().unwrap_or_default() };
                    self.ledger.merge(std::iter::once((id, meter, units)), now)
                }
                _ => u64::from(!self.ledger.raise(&id, &meter, state, now)),
            };
            lock(&self.stats).uncounted += uncounted;
        }
        Ok(())
    }
}

/// Bans that several nodes begin for the same refusals are not added up: they are one, until the latest end.
fn as_one_ban(id: &MeterId<'_>, units: Units) -> Units {
    match units {
        Units::Bucket { drain, floor } if drain > 0 && id.decides_ban() => Units::Bucket { drain: 0, floor },
        _ => units,
    }
}
