//! Stores that are wrong for periods of the calendar, concurrency limits or partial requests.

use ratelimit_core::{Answer, Claims, Meter, MeterId, Mode, Refund, State, Timestamp, decide, refund};

flaws! {
    CutsScopes "cuts-scopes": "the names of limits are cut to 24 bytes, so that the months of a zone are one",
        "calendar/late-callers-count-in-their-window" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            let scope = id.scope.get(..24).unwrap_or(id.scope);
            MeterId { scope, ..*id }.to_bytes()
        }
    }
    ForgetsDates "forgets-dates": "digits in the names of limits are not stored",
        "calendar/late-callers-count-in-their-window" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            let scope: String = id.scope.chars().filter(|letter| !letter.is_ascii_digit()).collect();
            MeterId { scope: &scope, ..*id }.to_bytes()
        }
    }
    TrimsRenewals "trims-renewals": "a log never keeps more units than fit into it one at a time",
        "concurrency/renewed-leases-hold" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let full: Vec<_> = states.iter().map(|state| match state {
                Some(State::Log(log)) => log.units.len(),
                _ => usize::MAX,
            }).collect();
            let answer = decide(claims, states);
            for (state, most) in states.iter_mut().zip(full) {
                if let Some(State::Log(log)) = state
                    && claims.mode() == Mode::Force
                    && most > 0
                {
                    log.units.drain(..log.units.len().saturating_sub(most));
                }
            }
            answer
        }
    }
    ReleasesAll "releases-all": "a refund to a log returns all its units",
        "concurrency/released-units-are-free" {
        fn refund(&self, given: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            match state {
                Some(State::Log(log)) => log.units.clear(),
                state => drop(refund(&given.meter, state, given.cost, given.receipt, now)),
            }
        }
    }
    ReleasesLate "releases-late": "a refund of units that have left returns others that have not",
        "concurrency/a-lease-ends" {
        fn refund(&self, given: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            let missing = match (&*state, given.meter) {
                (Some(State::Log(log)), Meter::Log(_)) => !log.units.contains(&given.receipt.as_nanos()),
                _ => false,
            };
            match state {
                Some(State::Log(log)) if missing => drop(log.units.pop_front()),
                state => drop(refund(&given.meter, state, given.cost, given.receipt, now)),
            }
        }
    }
    RefusesWithoutFigures "refuses-without-figures": "a refusal says that nothing is left",
        "partial/at-most-what-is-left-sliding" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let mut answer = decide(claims, states);
            if !answer.admitted {
                answer.verdicts.iter_mut().for_each(|verdict| verdict.remaining = 0);
            }
            answer
        }
    }
}
