//! The cases, with a file for each area.

mod all_or_nothing;
mod any_clock;
mod atomic;
mod bans;
mod batches;
mod beside;
mod boundaries;
mod calendar;
mod cancelled;
mod changes;
mod concurrency;
mod contended;
mod crowded_batches;
mod deadlocks;
mod decisions;
mod decorated;
mod dropped;
mod failures;
mod field_bugs;
mod handles;
mod held;
mod histories;
mod keys;
mod late;
mod lifetimes;
mod logs;
mod lost_answers;
mod many_meters;
mod memory;
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
mod waiting;
mod worked_examples;

use crate::case::Case;

/// All cases, in the order of the report.
pub(crate) fn all() -> Vec<Case> {
    let areas = [
        worked_examples::cases(),
        boundaries::cases(),
        same_decisions::cases(),
        atomic::cases(),
        races::cases(),
        held::cases(),
        histories::cases(),
        storms::cases(),
        mixed_storms::cases(),
        handles::cases(),
        deadlocks::cases(),
        cancelled::cases(),
        dropped::cases(),
        all_or_nothing::cases(),
        batches::cases(),
        crowded_batches::cases(),
        time::cases(),
        late::cases(),
        server_time::cases(),
        memory::cases(),
        lifetimes::cases(),
        pauses::cases(),
        logs::cases(),
        keys::cases(),
        names::cases(),
        many_meters::cases(),
        numbers::cases(),
        changes::cases(),
        rates::cases(),
        steps::cases(),
        any_clock::cases(),
        refunds::cases(),
        refund_races::cases(),
        reset_races::cases(),
        decisions::cases(),
        resets::cases(),
        several::cases(),
        waiting::cases(),
        partial::cases(),
        concurrency::cases(),
        bans::cases(),
        calendar::cases(),
        queues::cases(),
        turns::cases(),
        field_bugs::cases(),
        decorated::cases(),
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
