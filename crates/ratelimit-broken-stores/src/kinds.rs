//! Stores that are wrong for limits of rarer kinds, for large calls, for long times, and for bans at their server's time.

use std::time::Duration;

use ratelimit_core::meter::{Meter, State, decide};
use ratelimit_core::store::{Answer, CLOCK_SLACK, Claims, Mode, Refund, Time};
use ratelimit_core::{Clock, SystemClock, Timestamp};
use tokio::time::Instant;

use super::expiries::after;
use super::flaw::{Call, Look, Write};

/// The instant until which a correct store keeps the meter.
fn right(write: &Write) -> Timestamp {
    write.forget_at + CLOCK_SLACK
}

/// Whether units drain from the meter in steps.
fn is_in_steps(write: &Write) -> bool {
    matches!(write.meter, Meter::Bucket(bucket) if bucket.step() > 0)
}

/// Whether this is the charge that begins a ban.
fn is_ban(write: &Write) -> bool {
    matches!(write.meter, Meter::Bucket(bucket) if bucket.interval() == 1_000)
}

/// Makes the instants of a log of so many units multiples of a span.
fn coarse(state: State, units: usize, nanos: u64) -> State {
    match state {
        State::Log(mut log) if log.units.len() > units => {
            log.units.iter_mut().for_each(|unit| *unit -= *unit % nanos);
            State::Log(log)
        }
        state => state,
    }
}

flaws! {
    ImmortalSteps "immortal-steps": "buckets in steps never expire", "memory/forgotten-first" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            if is_in_steps(write) { Timestamp::MAX } else { right(write) }
        }
    }
    ShortSteps "short-steps": "lifetimes of buckets in steps are milliseconds in 31 bits", "memory/forty-days-first" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            let millis = u64::try_from(write.forget_at.since(write.now).as_millis()).unwrap_or(0);
            let short = write.now + Duration::from_millis(millis % (1 << 31)) + CLOCK_SLACK;
            if is_in_steps(write) { short } else { right(write) }
        }
    }
    OneStep "only-one-step": "a bucket in steps expires after its first step", "lifetimes/counts-after-a-forced-charge" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            match write.meter {
                Meter::Bucket(bucket) if bucket.step() > 0 => {
                    right(write).min(write.now + Duration::from_nanos(bucket.step()))
                }
                _ => right(write),
            }
        }
    }
    CoarseMicros "coarse-logs": "logs of more than a hundred units are kept in microseconds",
        "logs/every-nanosecond" {
        fn kept(&self, state: State) -> State {
            coarse(state, 100, 1_000)
        }
    }
    CoarseMillis "coarser-logs": "logs of more than a thousand units are kept in milliseconds",
        "logs/every-nanosecond" {
        fn kept(&self, state: State) -> State {
            coarse(state, 1_000, 1_000_000)
        }
    }
    AtMostAMinute "at-most-a-minute": "the server removes what nobody has written for a minute",
        "lifetimes/counts-after-a-minute" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            let minute = Instant::now() + Duration::from_secs(60);
            after(write, write.forget_at).map(|expires| expires.min(minute))
        }
    }
    AtMostTwenty "at-most-twenty-seconds": "the server removes what nobody has written for twenty seconds",
        "lifetimes/counts-after-a-minute" {
        fn expires(&self, write: &Write) -> Option<Instant> {
            let twenty = Instant::now() + Duration::from_secs(20);
            after(write, write.forget_at).map(|expires| expires.min(twenty))
        }
    }
    HalfBans "half-bans": "at the server's time, a ban is removed after half of its length", "bans/in-real-time" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            SystemClock::new().now()
        }
        fn keep_until(&self, write: &Write) -> Timestamp {
            if is_ban(write) { write.now + write.forget_at.since(write.now) / 2 } else { right(write) }
        }
    }
    ShortBans "short-bans": "the server removes a ban after ten seconds", "bans/counts-after-thirteen-seconds" {
        const TIME: Time = Time::Server;
        fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
            SystemClock::new().now()
        }
        fn expires(&self, write: &Write) -> Option<Instant> {
            is_ban(write).then(|| Instant::now() + Duration::from_secs(10))
        }
    }
    ImmortalBans "immortal-bans": "bans that are over are never removed", "bans/forgotten" {
        fn keep_until(&self, write: &Write) -> Timestamp {
            if is_ban(write) { Timestamp::MAX } else { right(write) }
        }
    }
    CappedSteps "capped-forced-steps": "a forced slice of several claims takes no more units from a bucket in steps than its burst",
        "same-decisions/random-slices" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let mut fewer = claims.to_vec();
            for claim in &mut fewer {
                if let Meter::Bucket(bucket) = claim.meter && bucket.step() > 0 {
                    claim.cost = claim.cost.min(bucket.burst());
                }
            }
            let is_capped = claims.mode() == Mode::Force && claims.len() > 1;
            match Claims::new(claims.now(), claims.mode(), &fewer) {
                Ok(fewer) if is_capped => decide(&fewer, states),
                _ => decide(claims, states),
            }
        }
    }
    TornLargeForced "torn-large-forced-slices": "forced slices of more than twenty-five claims are written in a second step",
        "deadlocks/forced-slices-in-opposite-orders" {
        fn torn(&self, look: &Look<'_>) -> bool {
            look.claims.mode() == Mode::Force && look.claims.len() > 25
        }
    }
    TornLargeRefunds "torn-large-refunds": "refunds of more than sixteen meters are written in a second step",
        "deadlocks/refunds-in-opposite-orders" {
        fn torn_refunds(&self, refunds: &[Refund<'_>]) -> bool {
            refunds.len() > 16
        }
    }
}
