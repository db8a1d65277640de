//! The methods of a ledger for counting with a shared store: its readings, which contain the units of all nodes, replace the
//! local states.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::MeterId;

use super::entry::Entry;
use super::units::{counts_together, moved, newest, place, signed, whole_units};
use super::{Ledger, Reading, Units, Usage};

impl Ledger {
    /// The segments of a window that have to be read when this usage is sent; the newest is the last. A segment that has ended
    /// is read a few times more: other nodes send their charges up to an interval and a round trip later.
    pub(crate) fn segments(&self, usage: &Usage, now: Timestamp) -> Option<Vec<u64>> {
        self.with(&usage.name.id(), |entry| match (&entry.meter, &entry.state) {
            (Meter::Window(window), State::Window(state)) if counts_together(&entry.meter, &usage.meter) => {
                let newest = window.place(state.at.max(now)).0;
                let oldest = newest.saturating_sub(window.carried().into());
                let shared = entry.colds.at_mut(entry.slot.cold).shared.as_mut();
                let (read, is_reset) =
                    shared.map_or((0, false), |shared| (shared.read, std::mem::take(&mut shared.is_reset)));
                let first = oldest.max(read);
                // A reset shows in the oldest segment with units.
                let most = match (usage.units.is_reading(), is_reset) {
                    (_, true) => usize::MAX,
                    (true, false) => 1,
                    (false, false) => 0,
                };
                let counts =
                    |segment: &u64| place(window, state, *segment).is_some_and(|nth| state.counts[nth] > 0);
                Some((oldest..first).filter(counts).take(most).chain(first..=newest).collect())
            }
            _ => None,
        })
        .flatten()
    }

    /// The newest known instant of a charge to the meter, or `now` if that is later.
    pub(crate) fn newest(&self, id: &MeterId<'_>, now: Timestamp) -> Timestamp {
        self.with(id, |entry| newest(&entry.state)).map_or(now, |newest| now.max(newest))
    }

    /// When the store last charged a bucket, as far as this node knows.
    pub(crate) fn charged_at(&self, id: &MeterId<'_>) -> Timestamp {
        self.with(id, |entry| Some(entry.shared()?.charged_at)).flatten().unwrap_or(Timestamp::EPOCH)
    }

    /// Whether all known units of a bucket drain at this rate.
    pub(crate) fn has_one_rate(&self, id: &MeterId<'_>, interval: u64) -> bool {
        self.with(id, |entry| match &entry.state {
            State::Bucket(state) => state.only_debt().is_some_and(|debt| debt.interval == interval),
            _ => true,
        })
        .unwrap_or(true)
    }

    /// The receipt by which the store refunds units of a bucket with several rates that take `time` to drain. `None` if the
    /// store may have units that this node does not know.
    pub(crate) fn receipt(
        &self,
        id: &MeterId<'_>,
        interval: u64,
        time: u64,
        now: Timestamp,
    ) -> Option<Timestamp> {
        self.with(id, |entry| {
            entry.shared().filter(|shared| shared.is_known)?;
            let State::Bucket(state) = &entry.state else { return None };
            let newest = state.debts.iter().find(|debt| debt.interval == interval)?.receipt;
            let front = state.drained_to(interval, now)?;
            // If all units are refunded, use the newest instant. Slower units of a partly counted one make a nanosecond's
            // difference, which is ignored.
            let is_all = newest.as_nanos() <= front.as_nanos() + 1;
            Some(moved(if is_all { now.max(state.at) } else { front }, signed(time)))
        })
        .flatten()
    }

    /// The instant in the store of units of a log that are refunded.
    pub(crate) fn sent_at(&self, usage: &Usage, receipt: Timestamp) -> Timestamp {
        let sent_at = |entry: &mut Entry<'_>| entry.shared()?.log.sent_at(receipt);
        self.with(&usage.name.id(), sent_at).flatten().unwrap_or(receipt)
    }

    /// Replaces the state of a meter by a reading of the store plus what is pending.
    pub(crate) fn apply_reading(&self, usage: &Usage, reading: Reading) {
        self.with(&usage.name.id(), |entry| entry.apply_reading(usage, reading));
    }

    /// Records that the store has charged units of a log, as of this instant.
    pub(crate) fn add_sent(&self, usage: &Usage, at: Timestamp) {
        if let (Meter::Log(log), Units::Log { newest, units }) = (&usage.meter, usage.units) {
            self.with(&usage.name.id(), |entry| {
                entry.shared_mut().log.add_sent(log.window(), units.unsigned_abs(), newest, at);
            });
        }
    }

    /// Reduces refunds by the units that the store may not have, so that it does not refund those of other charges instead. Of
    /// logs, these are units that are sent with them; a log is refunded by the instant of a charge, which no other has.
    pub(crate) fn exclude_unsure_from_refunds(&self, usages: &mut Vec<Usage>) {
        let mut last_charge: Option<usize> = None;
        for nth in 0..usages.len() {
            if !usages[nth].units.is_refund() {
                last_charge = Some(nth);
                continue;
            }
            let (before, rest) = usages.split_at_mut(nth);
            let Usage { name, meter, units } = &mut rest[0];
            if let Units::Log { newest, units: refunded } = units {
                let charge = last_charge.map(|nth| &mut before[nth]).filter(|charge| charge.name == *name);
                let is_sent = |entry: &mut Entry<'_>| Some(entry.shared()?.log.has_sent(*newest));
                if let Some(Units::Log { units: charged, .. }) = charge.map(|charge| &mut charge.units)
                    && self.with(&name.id(), is_sent).flatten() != Some(true)
                {
                    let both = (*charged).min(-*refunded);
                    (*charged, *refunded) = (*charged - both, *refunded + both);
                }
                continue;
            }
            self.with(&name.id(), |entry| {
                if let Some(shared) = &mut entry.colds.at_mut(entry.slot.cold).shared {
                    shared.take_from_unsure(meter, units);
                }
            });
        }
        usages.retain(|usage| !usage.units.is_cancelled());
    }

    /// Limits charges that could not be sent before; see [`Units::limit`].
    pub(crate) fn limit(&self, usages: &mut [Usage], now: Timestamp) {
        for Usage { name, meter, units } in usages {
            self.with(&name.id(), |entry| {
                units.limit(meter, &entry.state, entry.pending_refunds(meter), now);
            });
        }
    }

    /// Marks a usage that the store may or may not have counted: from now on it is added to the readings. Refunds are
    /// not, so the store may seem to have too many units, never too few.
    pub(crate) fn mark_unsure(&self, usage: &Usage) {
        if usage.units.is_refund() {
            return self.remove_sent(usage);
        }
        self.with(&usage.name.id(), |entry| {
            if let (Meter::Log(log), Units::Log { newest, units }) = (&usage.meter, usage.units) {
                // They are never taken from a reading.
                entry.shared_mut().log.add_unsure(log.window(), units.unsigned_abs(), newest);
            } else if counts_together(&entry.meter, &usage.meter) {
                entry.drain_unsure(&usage.units);
                let shared = entry.colds.at_mut(entry.slot.cold).shared.get_or_insert_default();
                shared.doubt(usage, (&entry.meter, &entry.state));
            }
        });
    }

    /// Records that the store has counted a usage.
    pub(crate) fn confirm(&self, usage: &Usage) {
        if let (Meter::Bucket(bucket), Units::Bucket { drain, floor }) = (&usage.meter, usage.units) {
            self.with(&usage.name.id(), |entry| {
                entry.drain_unsure(&usage.units);
                if drain > 0 {
                    let at = whole_units(bucket, drain.unsigned_abs(), floor).1;
                    entry.shared_mut().confirm(drain, floor, at);
                }
            });
        }
        self.remove_sent(usage);
    }

    /// Records that the store has, or may have, refunded units of a log.
    fn remove_sent(&self, usage: &Usage) {
        if let Units::Log { newest, units } = usage.units
            && units < 0
        {
            self.with(&usage.name.id(), |entry| {
                entry.shared_mut().log.remove_sent(newest, units.unsigned_abs());
            });
        }
    }

    /// Calls `f` with a meter, if there is one.
    fn with<R>(&self, id: &MeterId<'_>, f: impl FnOnce(&mut Entry<'_>) -> R) -> Option<R> {
        let fingerprint = self.fingerprints.of(id);
        self.shard(fingerprint).open(fingerprint, f)
    }
}
