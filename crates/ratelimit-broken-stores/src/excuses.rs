//! Stores that refuse, or admit, more than their promises excuse.

use ratelimit_core::meter::{Log, Meter, State, decide};
use ratelimit_core::store::{Answer, Claim, Claims, Decisions, Mode};

/// Refuses the claims, and leaves the states as they are.
fn refused(claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
    let answer = decide(&claims.with_mode(Mode::Peek), states);
    Answer { admitted: false, charged: false, ..answer }
}

/// Decides claims on such meters as if they were new.
fn forgotten(claims: &Claims<'_>, states: &mut [Option<State>], is: fn(Meter) -> bool) -> Answer {
    for (claim, state) in claims.iter().zip(states.iter_mut()) {
        if is(claim.meter) {
            *state = None;
        }
    }
    decide(claims, states)
}

/// The same claim on a log for one unit more.
fn one_more<'a>(claim: &Claim<'a>) -> Claim<'a> {
    let Meter::Log(log) = claim.meter else { return *claim };
    let wider = Log::new(log.limit() + 1, log.window());
    Claim { meter: wider.map_or(claim.meter, Meter::Log), ..*claim }
}

flaws! {
    RefusesAll "refuses-all": "everything is refused", "atomic/burst-of-many-fixed" {
        const DECISIONS: Decisions = Decisions::Conservative;

        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            refused(claims, states)
        }
    }
    ForgetsLogs "forgets-logs": "a conservative store counts nothing in a log", "storms/while-meters-expire" {
        const DECISIONS: Decisions = Decisions::Conservative;

        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            forgotten(claims, states, |meter| matches!(meter, Meter::Log(_)))
        }
    }
    ForgetsSliding "forgets-sliding": "a conservative store counts nothing in a sliding window",
        "storms/while-meters-expire" {
        const DECISIONS: Decisions = Decisions::Conservative;

        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            forgotten(claims, states, |meter| matches!(meter, Meter::Window(window) if window.carried() > 0))
        }
    }
    RefusesTurns "refuses-turns": "nobody gets a turn in a queue", "turns/cancelled-by-many" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            if claims.iter().any(|claim| matches!(claim.meter, Meter::Bucket(bucket) if bucket.is_queue())) {
                return refused(claims, states);
            }
            decide(claims, states)
        }
    }
    OneMoreAtWork "one-more-at-work": "a log admits one unit too many", "concurrency/never-too-many-at-work" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let wider: Vec<Claim<'_>> = claims.iter().map(one_more).collect();
            let mut answer =
                decide(&Claims::new(claims.now(), claims.mode(), &wider).unwrap_or(*claims), states);
            for verdict in &mut answer.verdicts {
                verdict.remaining = verdict.remaining.min(verdict.limit - 1);
            }
            answer
        }
    }
}
