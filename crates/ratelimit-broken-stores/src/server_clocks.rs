//! Stores that decide by their own clock, but not always.

use std::time::Duration;

use ratelimit_core::meter::{Debt, Meter, State, decide, refund};
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Receipt, Refund, Time};
use ratelimit_core::{Clock, SystemClock, Timestamp};

use super::features::{evenly, without_gates};
use super::flaw::Call;

fn here() -> Timestamp {
    SystemClock::new().now()
}

/// Makes the only debt of a bucket one of the claim's rate if that is slower.
fn to_slower(claim: &Claim<'_>, state: &mut Option<State>, now: Timestamp) {
    let (Meter::Bucket(meter), Some(State::Bucket(bucket))) = (claim.meter, state) else { return };
    let Some(debt) = bucket.only_debt() else { return };
    if meter.step() == 0 && meter.burst() > 0 && debt.interval < meter.interval() {
        let left = bucket.owed(now) * meter.interval();
        bucket.debts[0] = Debt::only(now + Duration::from_nanos(left), meter.interval());
    }
}

flaws! {
    BatchesByNewer "batches-by-the-newer-clock": "batches are decided by the caller's clock if it is ahead",
        "server-time/no-call-by-the-callers-clock-bucket" {
        const TIME: Time = Time::Server;
        fn instant(&self, call: Call, now: Timestamp) -> Timestamp {
            if call == Call::Batch { here().max(now) } else { here() }
        }
    }
    ClaimsByCaller "claims-by-the-callers-clock": "single claims are decided by the caller's clock",
        "server-time/ignores-the-callers-clock" {
        const TIME: Time = Time::Server;
        fn instant(&self, call: Call, now: Timestamp) -> Timestamp {
            if call == Call::Claim { now } else { here() }
        }
    }
    RefundsByCaller "refunds-by-the-callers-clock": "refunds happen by the caller's clock", "names/name-spaces-in-every-operation" {
        const TIME: Time = Time::Server;
        fn instant(&self, call: Call, now: Timestamp) -> Timestamp {
            if call == Call::Refund { now + Duration::from_secs(10_000 * 86_400) } else { here() }
        }
    }
    LossyByServer "lossy-names-at-its-time": "what is not text in a key is replaced", "keys/no-text" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            MeterId { key: String::from_utf8_lossy(id.key).as_bytes(), ..*id }.to_bytes()
        }
    }
    ThirtyTwoBitsByServer "32-bits-at-its-time": "a window counts no more than 2^32 - 1 units", "numbers/largest-quota" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn kept(&self, state: State) -> State {
            let State::Window(mut window) = state else { return state };
            window.counts.iter_mut().for_each(|count| *count = (*count).min(u32::MAX.into()));
            State::Window(window)
        }
    }
    LatchByServer "latch-at-its-time": "the lock of a dropped claim is never released", "cancelled/others-go-on" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn latched(&self, _: Call) -> bool {
            true
        }
    }
    StepsByServer "ignores-steps-at-its-time": "units drain continuously, also from a bucket in steps",
        "decisions/on-any-clock" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            evenly(claims, states)
        }
    }
    GatesByServer "forgets-gates-at-its-time": "a cost of zero always fits, also at a gate",
        "decisions/on-any-clock" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            without_gates(claims, states)
        }
    }
    PeeksInBatchesByCaller "peeks-in-batches-by-the-callers-clock": "peeks in a batch happen by the caller's clock",
        "server-time/no-call-by-the-callers-clock-bucket" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn instant_in(&self, call: Call, mode: Mode, now: Timestamp) -> Timestamp {
            if call == Call::Batch && mode == Mode::Peek { now } else { here() }
        }
    }
    RefundsAsOfLast "refunds-as-of-the-last-charge": "a bucket is refunded as of its last charge",
        "server-time/refund-after-a-while" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, _: Timestamp) {
            refund(&refunded.meter, state, refunded.cost, refunded.receipt, Timestamp::EPOCH);
        }
    }
    RefundsCurrent "refunds-the-current-window": "a refund takes units from the current window",
        "server-time/refund-after-a-while" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            let receipt = match state {
                Some(State::Window(window)) => Receipt::at(window.at),
                _ => refunded.receipt,
            };
            refund(&refunded.meter, state, refunded.cost, receipt, now);
        }
    }
    ToSlower "slower-for-all-units": "under a slower limit the units of a faster one drain at its rate, too",
        "lifetimes/slow-units-count-in-real-time" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            here()
        }
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            for (claim, state) in claims.iter().zip(states.iter_mut()) {
                to_slower(claim, state, claims.now());
            }
            decide(claims, states)
        }
    }
}
