//! What a ledger keeps about a meter in a shared store, and how a reading of the store replaces the local state.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{MAX_UNITS, Meter, State, Window, WindowState};
use smallvec::SmallVec;

use super::log_owners::LogOwners;
use super::merge::turn_to;
use super::reading::Reading;
use super::units::{Units, counts_alike, moved, place, signed};
use super::usage::Usage;

/// How often a segment is read after it has ended.
const READ_AGAIN: u8 = 3;

/// What is kept of a meter in a shared store, in addition to its state.
#[derive(Debug, Default)]
pub(super) struct SharedState {
    /// Earlier segments than this one have been read for the last time.
    pub(super) read: u64,
    /// The newest segment at the last request, and how often it was the newest.
    newest: u64,
    requests: u8,
    /// Whether a segment has lost all its units. Another node may have reset the meter: then all others have lost theirs.
    pub(super) is_reset: bool,
    requested_at: Timestamp,
    /// Units that the store may or may not have counted, at most one for each segment or rate. They are added to the
    /// store's readings.
    unsure: Vec<(Meter, Units)>,
    /// When the bucket in the store will have drained, as far as this node knows from readings and from its own charges.
    base: Option<Timestamp>,
    /// When the store last charged the bucket, as far as this node knows.
    pub(super) charged_at: Timestamp,
    /// Whether the last reading of a bucket agreed with the local state.
    pub(super) is_known: bool,
    /// The owners of the units of a log.
    pub(super) log: LogOwners,
}

impl SharedState {
    /// Replaces the state by a reading that was taken when `usage` was sent, plus the pending units and the unsure ones.
    /// `false` if the reading is of another kind of meter.
    pub(super) fn apply(
        &mut self,
        (meter, state): (&Meter, &mut State),
        usage: &Usage,
        reading: Reading,
        pending: impl Iterator<Item = (Meter, Units)>,
    ) -> bool {
        match (meter, state, reading) {
            (Meter::Window(window), State::Window(state), Reading::Window { segment, total, newest_at }) => {
                self.forget_segments(window, state);
                if total > 0 {
                    turn_to(window, state, segment);
                }
                if let Some(place) = place(window, state, segment) {
                    let beside = pending.chain(self.unsure.iter().copied());
                    let beside = beside.map(|(_, units)| of_segment(&units, segment));
                    let beside = beside.fold(0, i64::saturating_add);
                    let count = total.saturating_add_signed(beside).min(MAX_UNITS);
                    self.is_reset |= usage.units.is_reading() && total == 0 && count < state.counts[place];
                    state.counts[place] = count;
                }
                if let Some(at) = newest_at.filter(|at| *at > self.requested_at) {
                    self.requests = if self.newest == segment { self.requests.saturating_add(1) } else { 1 };
                    (self.newest, self.requested_at) = (segment, at);
                    if self.requests >= READ_AGAIN {
                        self.read = segment;
                    }
                }
            }
            (_, state @ State::Bucket(_), Reading::Bucket(reading)) => {
                let beside: SmallVec<[_; 4]> = self.unsure.iter().copied().chain(pending).collect();
                self.is_known = reading.apply(&usage.meter, state, &beside);
                // An empty bucket may have been so for longer.
                let earlier = self.base.filter(|_| reading.units == 0);
                self.base = Some(earlier.map_or(reading.tat, |base| base.min(reading.tat)));
            }
            (Meter::Log(log), State::Log(state), Reading::Log { live, at }) => {
                self.log.update(log.window(), state, live, at);
            }
            _ => return false,
        }
        true
    }

    /// Whether the store may or may not have counted some units.
    pub(super) fn is_unsure(&self) -> bool {
        !self.unsure.is_empty()
    }

    /// Records that the store has charged a bucket at this instant.
    pub(super) fn confirm(&mut self, drain: i64, floor: Timestamp, at: Timestamp) {
        self.charged_at = self.charged_at.max(at);
        self.base = Some(self.base.map_or(floor, |base| moved(base, drain).max(floor)));
    }

    /// Adds a usage that the store may or may not have counted.
    pub(super) fn doubt(&mut self, usage: &Usage, (meter, state): (&Meter, &State)) {
        match (meter, state, usage.units) {
            (Meter::Window(window), State::Window(state), _) => self.forget_segments(window, state),
            _ => self.base = self.base.max(usage.units.began()),
        }
        let mut all = self.unsure.iter_mut();
        let is_added =
            all.any(|(meter, units)| counts_alike(meter, &usage.meter) && units.try_append(&usage.units));
        if !is_added {
            self.unsure.push((usage.meter, usage.units));
        }
    }

    /// Takes refunded units of a window or a bucket from the unsure ones. Only the others are left to refund in the store.
    pub(super) fn take_from_unsure(&mut self, of: &Meter, refund: &mut Units) {
        for (_, unsure) in self.unsure.iter_mut().filter(|(meter, _)| counts_alike(meter, of)) {
            match (unsure, &mut *refund) {
                (Units::Window { segment, units }, Units::Window { segment: same, units: refund })
                    if segment == same =>
                {
                    let both = (*units).min(-*refund);
                    (*units, *refund) = (*units - both, *refund + both);
                }
                (Units::Bucket { drain, floor }, Units::Bucket { drain: refund, floor: before }) => {
                    let both = (*drain).min(-*refund);
                    (*drain, *refund) = (*drain - both, *refund + both);
                    (*floor, *before) = (moved(*floor, -both), moved(*before, -both));
                }
                _ => {}
            }
        }
        self.unsure.retain(|(_, units)| !units.is_nothing());
    }

    /// Removes unsure units of segments that have left the window.
    fn forget_segments(&mut self, window: &Window, state: &WindowState) {
        let oldest = window.place(state.at).0.saturating_sub(window.carried().into());
        self.unsure.retain(|units| matches!(units, (_, Units::Window { segment, .. }) if *segment >= oldest));
    }

    /// Removes unsure units of a bucket that have drained by the time at which this node charges it again, and before which
    /// all charges have been sent.
    ///
    /// The unsure units are how far the bucket in the store may be behind this node's own charges. Equal charges to both never
    /// increase this, and while the one in the store is empty, only the other one drains.
    pub(super) fn drain_until(&mut self, began: Timestamp) {
        let idle = self.base.map_or(0, |base| began.as_nanos().saturating_sub(base.as_nanos()));
        self.unsure.retain_mut(|(_, units)| {
            let Units::Bucket { drain, .. } = units else { return true };
            *drain = drain.saturating_sub(signed(idle));
            *drain > 0
        });
    }
}

/// Units that were charged to this segment.
fn of_segment(units: &Units, of: u64) -> i64 {
    match units {
        Units::Window { segment, units } if *segment == of => *units,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use ratelimit_core::Limit;
    use ratelimit_core::kit::OwnedName;
    use ratelimit_core::store::MeterId;

    use super::*;

    #[test]
    fn unsure_units_are_kept_once_for_each_segment_or_rate() {
        let meters = |texts: &[&str]| -> Vec<Meter> {
            texts.iter().map(|text| text.parse::<Limit>().unwrap().meter_for(b"k")).collect()
        };
        let name = OwnedName::new(&MeterId { namespace: "", scope: "", key: b"k" });
        for (meters, most) in
            [(meters(&["9/min precision 15s"]), 5), (meters(&["9/s burst 9", "5/s burst 9"]), 2)]
        {
            let (mut shared, mut state) = (SharedState::default(), meters[0].fresh());
            for (second, meter) in (1_800_000_000..).zip(meters.iter().cycle()).take(600) {
                let now = Timestamp::from_secs(second);
                meter.charge(&mut state, 1, now);
                let units = match meter {
                    Meter::Window(window) => Units::Window { segment: window.place(now).0, units: 1 },
                    _ => Units::Bucket { drain: 900_000_000, floor: moved(now, 900_000_000) },
                };
                let usage = Usage { name: name.clone(), meter: *meter, units };
                shared.doubt(&usage, (meter, &state));
                assert!(shared.unsure.len() <= most, "{:?}", shared.unsure);
            }
        }
    }
}
