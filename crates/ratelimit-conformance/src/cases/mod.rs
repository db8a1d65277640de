//! The cases, with a file for each area.

mod all_or_nothing;
mod any_clock;
mod atomic;
mod banned;
mod bans;
mod batches;
mod boundaries;
mod calendar;
mod cancelled;
mod changes;
mod closed;
mod concurrency;
mod contended;
mod crowded_batches;
mod crowds;
mod deadlocks;
mod decisions;
mod decorated;
mod dropped;
mod dropped_large;
mod failures;
mod field_bugs;
mod handles;
mod held;
mod histories;
mod keys;
mod late;
mod leftovers;
mod lifetimes;
mod logs;
mod lost_answers;
mod many_meters;
mod memory;
mod mirrored;
mod mixed_storms;
mod names;
mod numbers;
mod partial;
mod pauses;
mod queues;
mod races;
mod rates;
mod refund_races;
mod refunds;
mod reset_races;
mod resets;
mod same_decisions;
mod sequence;
mod sequence_parts;
mod sequence_replay;
mod sequence_shrink;
mod server_time;
mod several;
mod steps;
mod storms;
mod time;
mod trips;
mod turns;
mod waiters;
mod waiting;
mod worked_examples;

use crate::case::Case;

/// All cases, in the order of the report, which is that of dependence: what a case tests, later ones use. First calls by one
/// caller, then time, then many callers, then what breaks. So the first failure of a store is the one to look at.
pub(crate) fn all() -> Vec<Case> {
    let areas = [
        worked_examples::cases(),
        boundaries::cases(),
        all_or_nothing::cases(),
        keys::cases(),
        names::cases(),
        any_clock::cases(),
        many_meters::cases(),
        numbers::cases(),
        time::cases(),
        late::cases(),
        changes::cases(),
        rates::cases(),
        steps::cases(),
        turns::cases(),
        resets::cases(),
        refunds::cases(),
        several::cases(),
        decisions::cases(),
        partial::cases(),
        queues::cases(),
        concurrency::cases(),
        waiting::cases(),
        batches::cases(),
        crowded_batches::cases(),
        bans::cases(),
        banned::cases(),
        calendar::cases(),
        handles::cases(),
        logs::cases(),
        same_decisions::cases(),
        decorated::cases(),
        field_bugs::cases(),
        memory::cases(),
        leftovers::cases(),
        lifetimes::cases(),
        pauses::cases(),
        closed::cases(),
        server_time::cases(),
        atomic::cases(),
        crowds::cases(),
        races::cases(),
        refund_races::cases(),
        reset_races::cases(),
        held::cases(),
        histories::cases(),
        storms::cases(),
        mixed_storms::cases(),
        deadlocks::cases(),
        cancelled::cases(),
        waiters::cases(),
        dropped::cases(),
        dropped_large::cases(),
        trips::cases(),
        failures::cases(),
        lost_answers::cases(),
    ];
    areas.into_iter().flatten().collect()
}

/// Whether the duration of the case depends on the number of random claims.
pub(crate) fn is_random(case: &Case) -> bool {
    case.name.starts_with("same-decisions/")
}
