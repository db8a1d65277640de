//! Gives units back.

use ratelimit_core::{StoreError, Timestamp, refund as give_back};
use tokio::time::{Instant, sleep, timeout_at};

use crate::backoff::pause;
use crate::claims::OwnedRefund;
use crate::error;
use crate::keys::since_reset;
use crate::optimistic::{Entries, Written};
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
        let taken = batch.push(take.server, &take.command());
        (taken, batch.push(take.server, &Command::ReadCounter { key: &take.key }))
    };
    let places: Vec<_> = deductions.iter().map(push).collect();
    let answers = space.servers.send(&batch, deadline).await;
    let (mut moved, mut has_taken, mut outcome) = (Vec::new(), false, Ok(()));
    for (Deduction { server, key, units }, (taken, value)) in deductions.into_iter().zip(places) {
        match (answers.reply(taken), answers.reply(value)) {
            (Ok(_), _) => has_taken = true,
            (Err(failure), Ok(value)) if error::is_corrupt(failure) => match value.counter() {
                Ok(Counter::Reset(mark)) => {
                    moved.push(Deduction { server, key: since_reset(&key, mark), units });
                }
                Ok(Counter::Count(_)) => outcome = Err(failure.clone()),
                Err(failure) => outcome = Err(failure),
            },
            (Err(failure), _) => outcome = Err(failure.clone()),
        }
    }
    if !moved.is_empty() {
        outcome = outcome.and(take(space, moved, deadline).await);
    }
    outcome.map_err(|failure| if has_taken { failure.maybe_applied() } else { failure })
}

/// Takes units off existing counters that have not been reset. Several may be taken in part.
pub(crate) async fn take(
    space: &Space,
    deductions: Vec<Deduction>,
    deadline: Instant,
) -> Result<(), StoreError> {
    let mut batch = Batch::new(&space.servers);
    let places: Vec<_> = deductions.iter().map(|take| batch.push(take.server, &take.command())).collect();
    let answers = space.servers.send(&batch, deadline).await;
    let mut replies: Vec<_> =
        places.into_iter().map(|place| answers.reply(place).clone().map(drop)).collect();
    let has_taken = replies.iter().any(Result::is_ok);
    let failed = replies.iter().position(Result::is_err).map(|place| replies.swap_remove(place));
    failed.unwrap_or(Ok(())).map_err(|failure| if has_taken { failure.maybe_applied() } else { failure })
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
    let mut failure = None;
    let mut places = places.into_iter();
    open.retain(|_| match places.next().map(|nth| Written::new(&answers, writes[nth])) {
        None | Some(Written::Unchanged) => false,
        Some(Written::Stored) => {
            *has_given = true;
            false
        }
        Some(Written::Lost) => true,
        Some(Written::Failed(failed)) => {
            failure = Some(failed);
            false
        }
    });
    failure.map_or(Ok(()), Err)
}
