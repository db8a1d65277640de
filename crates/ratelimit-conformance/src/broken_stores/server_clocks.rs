//! Stores that decide by their own clock, but not always.

use ratelimit_core::{Answer, Claims, Clock, State, SystemClock, Time, Timestamp};

use super::features::{evenly, without_gates};
use super::flaw::Call;

fn here() -> Timestamp {
    SystemClock::new().now()
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
            if call == Call::Refund { now + std::time::Duration::from_secs(10_000 * 86_400) } else { here() }
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
}
