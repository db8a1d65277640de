//! Stores that remove meters early or never.

use std::time::Duration;

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{State, decide};
use ratelimit_core::store::{Answer, CLOCK_SLACK, Claims, Mode};

use super::flaw::{Call, Write};

/// The instant until which a correct store keeps the meter.
fn right(write: &Write) -> Timestamp {
    write.forget_at + CLOCK_SLACK
}

fn kept_for_ever_if(flaw: bool, write: &Write) -> Timestamp {
    if flaw { Timestamp::MAX } else { right(write) }
}

flaws! {
    ForgetsEarly "forgets-early": "meters expire after half of their lifetime", "memory/counts-until-reset-log" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            write.now + write.forget_at.since(write.now) / 2
        }
    }
    WholeSeconds "whole-seconds": "lifetimes are cut to whole seconds by the server's clock",
        "memory/counts-until-reset-fixed" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            let seconds = write.forget_at.since(write.now).as_secs();
            write.now + Duration::from_secs(seconds.saturating_sub(1))
        }
    }
    DrainsAtOnce "drains-at-once": "a bucket expires when its units would have drained evenly at its fastest rate",
        "lifetimes/slow-units-count-in-real-time" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            write.tat.map_or(right(write), |tat| tat.max(write.now) + CLOCK_SLACK)
        }
    }
    NeverForgets "immortal": "meters never expire", "memory/forgotten-sliding" {
        fn keep_until(&self, _: &Write) -> Timestamp {
            Timestamp::MAX
        }
    }
    TakenForDate "taken-for-a-date": "lifetimes above thirty days are taken for a date that has passed",
        "memory/forty-days-fixed" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            let long = write.forget_at.since(write.now) > Duration::from_secs(30 * 86_400);
            if long { Timestamp::EPOCH } else { write.forget_at }
        }
    }
    ThirtyOneBits "lifetime-in-31-bits": "lifetimes are milliseconds in 31 bits", "memory/forty-days-sliding" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            let millis = u64::try_from(write.forget_at.since(write.now).as_millis()).unwrap_or(0);
            write.now + Duration::from_millis(millis % (1 << 31)) + CLOCK_SLACK
        }
    }
    NoSlack "no-slack": "meters are dropped as soon as the newest caller does not need them",
        "lifetimes/counts-for-late-callers" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            write.forget_at
        }
    }
    KeptAfterClaim "kept-after-a-claim": "only batches set a lifetime", "lifetimes/forgotten-after-charges" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            kept_for_ever_if(write.call == Call::Claim, write)
        }
    }
    KeptAfterRefund "kept-after-a-refund": "a refund takes the lifetime away",
        "lifetimes/forgotten-after-refunds-and-refusals" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            kept_for_ever_if(write.call == Call::Refund, write)
        }
    }
    KeptAfterForced "kept-after-a-forced-charge": "a forced charge sets no lifetime",
        "lifetimes/forgotten-after-forced-charges" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            kept_for_ever_if(write.mode == Mode::Force, write)
        }
    }
    KeptSecond "kept-second": "of a slice only the first claim gets a lifetime",
        "lifetimes/forgotten-after-charges" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            kept_for_ever_if(write.call == Call::Claim && write.place > 0, write)
        }
    }
    KeptSecondRefund "kept-second-refund": "the second meter of a refund loses its lifetime",
        "lifetimes/forgotten-after-refunds-and-refusals" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            kept_for_ever_if(write.call == Call::Refund && write.place > 0, write)
        }
    }
    KeptAfterBatch "kept-after-a-batch": "batches set no lifetime", "lifetimes/forgotten-after-charges" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            kept_for_ever_if(write.call == Call::Batch, write)
        }
    }
    NewestLease "newest-lease": "a log expires under the lease of its newest charge",
        "lifetimes/counts-for-the-longest-lease" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            write.own_forget_at + CLOCK_SLACK
        }
    }
    LifetimeOfFirst "lifetime-of-the-first": "all meters of a slice get the lifetime of the first",
        "lifetimes/counts-after-the-second-of-a-slice" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            write.first_forget_at + CLOCK_SLACK
        }
    }
    ShortAfterRefund "short-after-a-refund": "a refund leaves a lifetime of two seconds",
        "lifetimes/counts-after-a-refund" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            if write.call == Call::Refund { write.now + CLOCK_SLACK * 2 } else { right(write) }
        }
    }
    NotRenewed "not-renewed": "a lifetime is set when the meter is made, and never again",
        "lifetimes/counts-after-a-claim" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            write.former.filter(|former| *former >= write.now).unwrap_or(right(write))
        }
    }
    NotRenewedByForce "not-renewed-by-force": "a forced charge leaves the lifetime as it was",
        "lifetimes/counts-after-a-forced-charge" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            let former = write.former.filter(|_| write.mode == Mode::Force);
            former.unwrap_or(right(write))
        }
    }
    NotRenewedByBatch "not-renewed-by-a-batch": "a batch leaves the lifetime as it was",
        "lifetimes/counts-after-a-batch" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            let former = write.former.filter(|_| write.call == Call::Batch);
            former.unwrap_or(right(write))
        }
    }
    RefusalsExtend "refusals-extend": "refused requests keep a meter alive",
        "lifetimes/forgotten-after-refunds-and-refusals" {
        fn writes(&self, _: &Answer) -> bool {
            true
        }
        fn keep_until(&self, write: &Write) -> Timestamp {
            kept_for_ever_if(!write.charged && write.call == Call::Claim, write)
        }
    }
    RefusalsShorten "refusals-shorten": "a refusal is remembered for a second, and the meter with it",
        "lifetimes/counts-after-refusals-and-peeks" {
        fn writes(&self, _: &Answer) -> bool {
            true
        }
        fn keep_until(&self, write: &Write) -> Timestamp {
            let refused = !write.charged && write.call == Call::Claim;
            if refused { write.now + CLOCK_SLACK } else { right(write) }
        }
    }
    PeeksMake "peeks-make-meters": "a peek at an unknown key stores a meter",
        "all-or-nothing/refusals-and-peeks-store-nothing" {
        fn writes(&self, _: &Answer) -> bool {
            true
        }
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let answer = decide(claims, states);
            for (claim, state) in claims.iter().zip(states) {
                state.get_or_insert_with(|| claim.meter.fresh());
            }
            answer
        }
    }
}
