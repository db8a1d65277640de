//! Gives units back.

use ratelimit_core::{StoreError, Timestamp, refund as give_back};
use tokio::time::{Instant, sleep, timeout_at};

use crate::claims::OwnedRefund;
use crate::error;
use crate::keys::since_reset;
use crate::optimistic::{Entries, Written, pause};
use crate::reply::Counter;
use crate::space::Space;
use crate::trip::Batch;
use crate::window::Deduction;
use crate::wire::Command;

/// Units to give back, and the instant of the refund.
#[derive(Clone, Debug)]
pub(crate) struct GivenAt {
    pub(crate) refund: OwnedRefund,
    pub(crate) now: Timestamp,
}

/// Takes units off existing counters, in two round trips if one of them has been reset. Never retried: what is taken twice
/// would be admitted twice.
pub(crate) async fn take_everywhere(
    space: &Space,
    deductions: Vec<Deduction>,
    deadline: Instant,
) -> Result<(), StoreError> {
    let mut batch = Batch::new(&space.servers);
    let push = |take: &Deduction| {
        let taken = take.push(&mut batch);
        (taken, batch.push(take.server, &take.key, Command::ReadCounter))
    };
    let places: Vec<_> = deductions.iter().map(push).collect();
    let answers = space.servers.send(&batch, deadline).await;
    let (mut moved, mut results) = (Vec::new(), Vec::new());
    for (Deduction { server, key, units }, (taken, value)) in deductions.into_iter().zip(places) {
        match (answers.reply(taken), answers.reply(value)) {
            (Err(failure), Ok(value)) if error::is_corrupt(failure) => match value.counter() {
                Ok(Counter::Reset(mark)) => {
                    moved.push(Deduction { server, key: since_reset(&key, mark), units });
                }
                Ok(Counter::Count(_)) => results.push(Err(failure.clone())),
                Err(failure) => results.push(Err(failure)),
            },
            (taken, _) => results.push(taken.clone().map(drop)),
        }
    }
    if !moved.is_empty() {
        results.push(take(space, moved, deadline).await);
    }
    all_of(results)
}

/// Takes units off existing counters that have not been reset.
pub(crate) async fn take(
    space: &Space,
    deductions: Vec<Deduction>,
    deadline: Instant,
) -> Result<(), StoreError> {
    let mut batch = Batch::new(&space.servers);
    let places: Vec<_> = deductions.iter().map(|take| take.push(&mut batch)).collect();
    let answers = space.servers.send(&batch, deadline).await;
    all_of(places.into_iter().map(|place| answers.reply(place).clone().map(drop)))
}

/// The first failure. If any of the calls has been made, or may have been, all of them may have been made in part.
pub(crate) fn all_of(results: impl IntoIterator<Item = Result<(), StoreError>>) -> Result<(), StoreError> {
    let (mut is_made, mut first) = (false, None);
    for result in results {
        is_made |= result.as_ref().err().is_none_or(error::is_maybe_applied);
        first = first.or(result.err());
    }
    first.map_or(Ok(()), |failure| Err(if is_made { failure.maybe_applied() } else { failure }))
}

/// Gives units back to bucket and log meters. Retries until the deadline: units that are not given back stay charged
/// without reason, and a retry repeats only the writes that lost to another writer.
pub(crate) async fn refund(
    space: &Space,
    mut open: Vec<GivenAt>,
    deadline: Instant,
) -> Result<(), StoreError> {
    let mut has_given = false;
    for attempt in 0.. {
        if open.is_empty() {
            break;
        }
        let mut given = Ok(());
        if attempt > 0 {
            given = timeout_at(deadline, sleep(pause(attempt))).await.map_err(|_| error::contended());
        }
        if given.is_ok() {
            given = refund_once(space, &mut open, &mut has_given, deadline).await;
        }
        given.map_err(|failure| if has_given { failure.maybe_applied() } else { failure })?;
    }
    Ok(())
}

/// Gives units back once. Keeps the refunds in `open` that lost to another writer.
async fn refund_once(
    space: &Space,
    open: &mut Vec<GivenAt>,
    has_given: &mut bool,
    deadline: Instant,
) -> Result<(), StoreError> {
    let (mut batch, mut entries) = (Batch::new(&space.servers), Entries::default());
    let places: Vec<usize> =
        open.iter().map(|given| entries.push(&mut batch, &given.refund.claim.key)).collect();
    entries.receive(&space.servers.send(&batch, deadline).await);
    for (given, nth) in open.iter().zip(&places) {
        let GivenAt { refund: OwnedRefund { claim, receipt }, now } = given;
        // So far this has only read.
        let mut state = entries.state(*nth).map_err(StoreError::not_applied)?;
        if give_back(&claim.meter, &mut state, claim.cost, *receipt, *now) {
            entries.change(*nth, state, &claim.meter, *now);
        }
    }
    let mut batch = Batch::new(&space.servers);
    let writes = entries.write(&mut batch, &space.lifetimes);
    let answers = space.servers.send(&batch, deadline).await;
    let mut failures = Vec::new();
    let mut places = places.into_iter();
    open.retain(|_| match places.next().map(|nth| Written::new(&answers, writes[nth])) {
        None | Some(Written::Unchanged) => false,
        Some(Written::Stored) => {
            *has_given = true;
            false
        }
        Some(Written::Lost) => true,
        Some(Written::Failed(failed)) => {
            failures.push(Err(failed));
            false
        }
    });
    all_of(failures)
}

#[cfg(test)]
mod tests {
    use ratelimit_core::{Applied, ErrorKind};

    use super::*;

    #[test]
    fn a_failure_says_nothing_was_applied_only_if_no_part_was() {
        let failed = |kind| Err(error::new(kind, "it failed"));
        let (down, late) = (ErrorKind::Unreachable, ErrorKind::Timeout);
        assert!(all_of([Ok(()), Ok(())]).is_ok());
        for (results, applied) in [
            ([failed(down), failed(down)], Applied::No),
            ([failed(down), Ok(())], Applied::Unknown),
            ([Ok(()), failed(down)], Applied::Unknown),
            ([failed(down), failed(late).map_err(StoreError::maybe_applied)], Applied::Unknown),
        ] {
            let failure = all_of(results).unwrap_err();
            assert_eq!((failure.kind(), failure.applied()), (down, applied));
        }
    }
}
