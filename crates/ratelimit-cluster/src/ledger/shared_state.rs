//! What a ledger keeps about a meter in a shared store, and how a reading of the store replaces the local state.

use ratelimit_core::{MAX_UNITS, Meter, State, Timestamp};
use smallvec::SmallVec;

use super::log_owners::LogOwners;
use super::merge::turn_to;
use super::reading::Reading;
use super::units::{Units, place};
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
    requested_at: Timestamp,
    /// Units that the store may or may not have counted. They are added to its readings.
    pub(super) unsure: Vec<(Meter, Units)>,
    /// When the bucket will have drained, as of the last reading.
    base: Option<Timestamp>,
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
                let oldest = window.place(state.at).0.saturating_sub(window.carried().into());
                self.unsure.retain(
                    |units| matches!(units, (_, Units::Window { segment, .. }) if *segment >= oldest),
                );
                if total > 0 {
                    turn_to(window, state, segment);
                }
                if let Some(place) = place(window, state, segment) {
                    let beside = pending.chain(self.unsure.iter().copied());
                    let beside = beside.map(|(_, units)| of_segment(&units, segment));
                    let beside = beside.fold(0, i64::saturating_add);
                    state.counts[place] = total.saturating_add_signed(beside).min(MAX_UNITS);
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
                self.forget_drained(&usage.units);
                let beside: SmallVec<[_; 4]> = self.unsure.iter().copied().chain(pending).collect();
                self.is_known = reading.apply(&usage.meter, state, &beside);
                self.base = if let State::Bucket(state) = state { state.tat() } else { None };
            }
            (Meter::Log(_), _, Reading::Sent { units, at }) => self.log.add_sent(units, at),
            (Meter::Log(log), State::Log(state), Reading::Log { live, at, oldest }) => {
                let pending = pending.map(|(_, units)| of_log(&units)).fold(0, i64::saturating_add);
                let pending = u64::try_from(pending).unwrap_or(0);
                self.log.update((log.limit(), log.window()), state, (live, pending), at, oldest);
            }
            _ => return false,
        }
        true
    }

    /// If the bucket was empty on this node when `sent` was charged, all earlier units have drained.
    fn forget_drained(&mut self, sent: &Units) {
        if let (Units::Bucket { drain, floor }, Some(base)) = (sent, self.base)
            && *floor > Timestamp::derived(base.as_nanos().saturating_add_signed(*drain))
        {
            self.unsure.clear();
        }
    }
}

/// Units of a log.
fn of_log(units: &Units) -> i64 {
    match units {
        Units::Log { units, .. } => *units,
        _ => 0,
    }
}

/// Units that were charged to this segment.
fn of_segment(units: &Units, of: u64) -> i64 {
    match units {
        Units::Window { segment, units } if *segment == of => *units,
        _ => 0,
    }
}
