//! Stores that are wrong for periods of the calendar, concurrency limits, partial requests, turns, steps or bans.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, Meter, State, decide, refund};
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Refund};

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
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            match state {
                Some(State::Log(log)) => log.units.clear(),
                state => drop(refund(&refunded.meter, state, refunded.cost, refunded.receipt, now)),
            }
        }
    }
    ReleasesLate "releases-late": "a refund of units that have left returns others that have not",
        "concurrency/a-lease-ends" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            let missing = match (&*state, refunded.meter) {
                (Some(State::Log(log)), Meter::Log(_)) => {
                    !log.units.contains(&refunded.receipt.instant().as_nanos())
                }
                _ => false,
            };
            match state {
                Some(State::Log(log)) if missing => drop(log.units.pop_front()),
                state => drop(refund(&refunded.meter, state, refunded.cost, refunded.receipt, now)),
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
    WithoutImmediate "without-immediate": "all units of a queue wait, also the immediate ones",
        "turns/immediate-units" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let mut waiting = claims.to_vec();
            waiting.iter_mut().for_each(|claim| claim.meter = without_immediate(claim.meter));
            let waiting = Claims::new(claims.now(), claims.mode(), &waiting);
            decide(&waiting.unwrap_or(*claims), states)
        }
    }
    RefundsTurns "refunds-turns": "a cancelled turn is returned although others wait after it",
        "turns/a-cancelled-turn-stays-empty" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            let meter = match refunded.meter {
                Meter::Bucket(bucket) => Meter::Bucket(bucket.with_immediate(u64::MAX)),
                meter => meter,
            };
            refund(&meter, state, refunded.cost, refunded.receipt, now);
        }
    }
    KeepsTurns "keeps-turns": "a turn is never returned",
        "turns/the-last-turn-is-free-again" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            match refunded.meter {
                Meter::Bucket(bucket) if bucket.is_queue() => {}
                meter => drop(refund(&meter, state, refunded.cost, refunded.receipt, now)),
            }
        }
    }
    IgnoresSteps "ignores-steps": "units drain continuously, also from a bucket in steps",
        "steps/a-window-begins-with-the-first-request" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            evenly(claims, states)
        }
    }
    RefundsEvenly "refunds-evenly": "refunds to a bucket in steps take what has drained continuously",
        "steps/refunds" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            refund(&without_steps(refunded.meter), state, refunded.cost, refunded.receipt, now);
        }
    }
    KeepsBegunSteps "keeps-begun-steps": "a step stays as it is if the request that began it is refunded",
        "steps/a-refund-of-the-first-request" {
        fn refund(&self, refunded: &Refund<'_>, state: &mut Option<State>, now: Timestamp) {
            let began = match state {
                Some(State::Bucket(bucket)) => bucket.at,
                _ => now,
            };
            let now = match refunded.meter {
                Meter::Bucket(bucket) if bucket.step() > 0 => {
                    let into = now.as_nanos().saturating_sub(began.as_nanos()) % bucket.step();
                    Timestamp::from_nanos(now.as_nanos() - into)
                }
                _ => now,
            };
            refund(&refunded.meter, state, refunded.cost, refunded.receipt, now);
        }
    }
    RestartsTotals "restarts-totals": "what was charged more than ten years ago is forgotten",
        "steps/a-total-never-restarts" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            for state in states.iter_mut() {
                if let Some(State::Bucket(bucket)) = state
                    && claims.now().since(bucket.at).as_secs() > 3_660 * 86_400
                {
                    *state = None;
                }
            }
            decide(claims, states)
        }
    }
    StepsOfTheEpoch "steps-of-the-epoch": "steps begin at whole multiples of their length",
        "steps/a-window-begins-with-the-first-request" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let step = claims.iter().find_map(|claim| match claim.meter {
                Meter::Bucket(bucket) if bucket.step() > 0 => Some(bucket.step()),
                _ => None,
            });
            let now = claims.now().as_nanos();
            let now = Timestamp::from_nanos(now - now.checked_rem(step.unwrap_or(1)).unwrap_or(0));
            let aligned = Claims::new(now, claims.mode(), claims);
            match (step, aligned) {
                (Some(_), Ok(aligned)) => Answer { now: claims.now(), ..decide(&aligned, states) },
                _ => decide(claims, states),
            }
        }
    }
    ForgetsGates "forgets-gates": "a cost of zero always fits, also at a gate",
        "bans/after-refusals-sliding" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            without_gates(claims, states)
        }
    }
    ChargesGates "charges-gates": "a request that passes a gate leaves a unit in its bucket",
        "bans/requests-that-pass" {
        fn decide(&self, claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
            let answer = decide(claims, states);
            for (claim, state) in claims.iter().zip(states) {
                if answer.charged && claim.meter.limit() == 0 {
                    claim.meter.charge(state.get_or_insert_with(|| claim.meter.fresh()), 1, claims.now());
                }
            }
            answer
        }
    }
}

/// Decides as if units drained continuously from all buckets.
pub(super) fn evenly(claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
    let mut even = claims.to_vec();
    even.iter_mut().for_each(|claim| claim.meter = without_steps(claim.meter));
    let even = Claims::new(claims.now(), claims.mode(), &even);
    decide(&even.unwrap_or(*claims), states)
}

/// Decides as if every gate were open.
pub(super) fn without_gates(claims: &Claims<'_>, states: &mut [Option<State>]) -> Answer {
    let is_gate = |claim: &Claim<'_>| claim.cost == 0 && claim.meter.limit() == 0;
    let others: Vec<Claim<'_>> = claims.iter().filter(|claim| !is_gate(claim)).copied().collect();
    let Ok(only) = Claims::new(claims.now(), claims.mode(), &others) else { return decide(claims, states) };
    let held = claims.iter().zip(&*states).filter(|(claim, _)| !is_gate(claim));
    let mut held: Vec<_> = held.map(|(_, state)| state.clone()).collect();
    let answer = decide(&only, &mut held);
    let mut held = held.into_iter();
    for (claim, state) in claims.iter().zip(&mut *states) {
        if !is_gate(claim) {
            *state = held.next().flatten();
        }
    }
    let shown = decide(&claims.with_mode(Mode::Peek), states);
    Answer { verdicts: shown.verdicts, ..answer }
}

/// The same queue, in which all units wait for their turns.
pub(super) fn without_immediate(meter: Meter) -> Meter {
    match meter {
        Meter::Bucket(bucket) if bucket.is_queue() => Meter::Bucket(bucket.with_immediate(1)),
        meter => meter,
    }
}

/// The same bucket, from which units drain continuously.
pub(super) fn without_steps(meter: Meter) -> Meter {
    match meter {
        Meter::Bucket(bucket) if bucket.step() > 0 => {
            Bucket::with_interval(bucket.interval(), bucket.burst()).map_or(meter, Meter::Bucket)
        }
        meter => meter,
    }
}
