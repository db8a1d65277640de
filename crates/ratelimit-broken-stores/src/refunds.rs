//! Stores that refund wrongly, or reset too few meters.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{MAX_UNITS, Meter, State, refund};
use ratelimit_core::store::{CLOCK_SLACK, Receipt, Refund};

use super::flaw::{Call, Write};

/// The newest possible receipt of a state.
fn newest(state: &State) -> Timestamp {
    match state {
        State::Window(state) => state.at,
        State::Bucket(state) => state.debts.first().map_or(state.at, |debt| debt.receipt),
        State::Log(state) => Timestamp::from_nanos(state.units.back().copied().unwrap_or(0)),
    }
}

flaws! {
    MakesEmptyMeters "refunds-make-empty-meters": "a refund to an unknown meter makes an empty one, which stays for ever",
        "lifetimes/forgotten-after-whole-refunds" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            let state = state.get_or_insert_with(|| refunded.meter.fresh());
            refunded.meter.refund(state, refunded.cost, refunded.receipt, now);
        }
        fn keep_until(&self, write: &Write) -> Timestamp {
            if write.former.is_none() && !write.charged { Timestamp::MAX } else { write.forget_at + CLOCK_SLACK }
        }
    }
    KeepsWhatIsEmpty "keeps-what-is-empty": "a meter that a refund has emptied stays for ever",
        "lifetimes/forgotten-after-whole-refunds" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            let is_over = write.call == Call::Refund && write.forget_at < write.now;
            if is_over { Timestamp::MAX } else { write.forget_at + CLOCK_SLACK }
        }
    }
    IgnoresRefunds "ignores-refunds": "nothing is given back", "refunds/give-back-log" {
        fn refund(&self, _: &Refund<'_>, _: &mut Option<State>, _: Timestamp) {}
    }
    RefundsWhatHasLeft "refunds-what-has-left": "units are given back that have come back by themselves",
        "refunds/nothing-that-has-left-fixed" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            if let Some(receipt) = state.as_ref().map(newest) {
                refund(&refunded.meter, state, refunded.cost, Receipt::at(receipt), now);
            }
        }
    }
    ClampsReceipts "clamps-receipts": "a receipt later than a window's newest charge is taken for that charge",
        "refunds/later-than-all-units-fixed" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            let newest = match state {
                Some(State::Window(window)) => Receipt::at(window.at),
                _ => refunded.receipt,
            };
            refund(&refunded.meter, state, refunded.cost, refunded.receipt.min(newest), now);
        }
    }
    RefundsReset "refunds-reset": "a refund forgets the whole meter", "refunds/settle-bucket" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, _: Timestamp) {
            if state.is_some() {
                *state = Some(refunded.meter.fresh());
            }
        }
    }
    RefundsTwice "refunds-twice": "what is given back is given back twice", "refunds/settle-sliding" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            refund(&refunded.meter, state, refunded.cost.saturating_mul(2), refunded.receipt, now);
        }
    }
    WithoutReceipt "without-receipt": "a log refunds its newest units, whatever the receipt",
        "refunds/log-gives-its-own" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            match state {
                Some(State::Log(log)) => {
                    let left = log.units.len().saturating_sub(usize::try_from(refunded.cost).unwrap_or(0));
                    log.units.truncate(left);
                }
                state => drop(refund(&refunded.meter, state, refunded.cost, refunded.receipt, now)),
            }
        }
    }
    MakesMeters "refunds-make-meters": "a refund to an unknown meter makes one with a charged unit",
        "refunds/unknown-meters" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            if state.is_none() {
                let mut made = refunded.meter.fresh();
                refunded.meter.charge(&mut made, 1, now);
                *state = Some(made);
                return;
            }
            refund(&refunded.meter, state, refunded.cost, refunded.receipt, now);
        }
    }
    StopsAtUnknown "refund-stops-at-unknown": "a refund ends at the first meter that is unknown",
        "refunds/several-keys" {
        fn goes_on(&self, call: Call, _: usize, known: bool, _: u64) -> bool {
            call != Call::Refund || known
        }
    }
    ResetStops "reset-stops-at-unknown": "a reset ends at the first meter that is unknown", "resets/several-keys" {
        fn goes_on(&self, call: Call, _: usize, known: bool, _: u64) -> bool {
            call != Call::Reset || known
        }
    }
    ResetsFirst "resets-the-first": "a reset forgets the first meter only", "resets/several-keys" {
        fn goes_on(&self, call: Call, _: usize, _: bool, _: u64) -> bool {
            call != Call::Reset
        }
    }
    ResetsFew "resets-few": "a reset forgets fifty meters at most", "resets/sixty-four-keys" {
        fn goes_on(&self, call: Call, place: usize, _: bool, _: u64) -> bool {
            call != Call::Reset || place < 49
        }
    }
    RefundsFirst "refunds-the-first": "a refund gives to the first meter only",
        "refunds/several-limits-and-keys" {
        fn goes_on(&self, call: Call, _: usize, _: bool, _: u64) -> bool {
            call != Call::Refund
        }
    }
    StopsAtZero "refund-stops-at-zero": "a refund ends where there is nothing to give",
        "refunds/zero-among-others" {
        fn goes_on(&self, call: Call, _: usize, _: bool, cost: u64) -> bool {
            cost > 0 || call == Call::Reset
        }
    }
    RefundsFew "refunds-few": "a refund gives to nineteen meters at most", "refunds/sixty-four-keys" {
        fn goes_on(&self, call: Call, place: usize, _: bool, _: u64) -> bool {
            call != Call::Refund || place < 18
        }
    }
    SeveralByNow "several-refunds-by-now": "a refund to several meters takes the units of its own instant",
        "same-decisions/random-sliding" {
        fn refund_among(&self, refunds: &[Refund<'_>], place: usize, state: &mut Option<State>, now: Timestamp) {
            let refunded = refunds[place];
            let is_bucket = matches!(refunded.meter, Meter::Bucket(_));
            let receipt = if refunds.len() > 1 && !is_bucket { Receipt::at(now) } else { refunded.receipt };
            refund(&refunded.meter, state, refunded.cost, receipt, now);
        }
    }
    ReleasesByNow "several-releases-by-now": "a release under several limits takes the units of its own instant",
        "concurrency/released-units-are-free" {
        fn refund_among(&self, refunds: &[Refund<'_>], place: usize, state: &mut Option<State>, now: Timestamp) {
            let refunded = refunds[place];
            let is_log = matches!(refunded.meter, Meter::Log(_));
            let receipt = if refunds.len() > 1 && is_log { Receipt::at(now) } else { refunded.receipt };
            refund(&refunded.meter, state, refunded.cost, receipt, now);
        }
    }
    BelowZero "several-refunds-below-zero": "a refund to several meters takes a window below zero",
        "refunds/never-above-the-limit" {
        fn refund_among(&self, refunds: &[Refund<'_>], place: usize, state: &mut Option<State>, now: Timestamp) {
            let refunded = refunds[place];
            match state {
                Some(State::Window(window))
                    if refunds.len() > 1 && window.counts.iter().sum::<u64>() < refunded.cost =>
                {
                    window.counts[0] = MAX_UNITS; // an unsigned number that wraps
                }
                state => self.refund(&refunded, state, now),
            }
        }
    }
    SetAtOnce "refund-set-at-once": "a refund reads all states first, and writes one after another",
        "refunds/several-of-one-meter" {
        fn torn_refund(&self) -> bool {
            true
        }
    }
}
