//! The cases, a file for each area.

mod all_or_nothing;
mod atomic;
mod batches;
mod boundaries;
mod cancelled;
mod changes;
mod decorated;
mod failures;
mod field_bugs;
mod keys;
mod memory;
mod numbers;
mod queues;
mod refunds;
mod resets;
mod same_decisions;
mod sequence;
mod sequence_parts;
mod sequence_replay;
mod sequence_shrink;
mod server_time;
mod time;
mod trips;
mod waiting;
mod worked_examples;

use crate::case::Case;

/// Every case, in the order of the report.
pub(crate) fn all() -> Vec<Case> {
    let areas = [
        worked_examples::cases(),
        boundaries::cases(),
        same_decisions::cases(),
        atomic::cases(),
        cancelled::cases(),
        all_or_nothing::cases(),
        batches::cases(),
        time::cases(),
        server_time::cases(),
        memory::cases(),
        keys::cases(),
        numbers::cases(),
        changes::cases(),
        refunds::cases(),
        resets::cases(),
        waiting::cases(),
        queues::cases(),
        field_bugs::cases(),
        decorated::cases(),
        trips::cases(),
        failures::cases(),
    ];
    areas.into_iter().flatten().collect()
}

/// Whether how long the case takes depends on how many random claims are asked for.
pub(crate) fn is_random(case: &Case) -> bool {
    case.name.starts_with("same-decisions/")
}
