//! Gives units back.

use std::collections::BTreeMap;

use ratelimit_core::kit::all_of;
use ratelimit_core::meter::refund as give_back;
use ratelimit_core::{StoreError, Timestamp};
use tokio::time::{Instant, sleep, timeout_at};

use crate::decide::claims::OwnedRefund;
use crate::decide::optimistic::{Entries, Written, pause};
use crate::decide::space::Space;
use crate::decide::window::Deduction;
use crate::error;
use crate::servers::Batch;
use crate::wire::commands::Command;
use crate::wire::keys::since_reset;
use crate::wire::reply::Counter;

/// Units to give back, and the instant of the refund.
#[derive(Clone, Debug)]
pub(crate) struct RefundAt {
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
    let answers = batch.send(deadline).await;
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
        results.extend(take(space, moved, deadline).await);
    }
    all_of(results)
}

/// Takes units off counters, and nothing off those that have been reset meanwhile: a mark is not a number.
pub(crate) async fn take(
    space: &Space,
    deductions: Vec<Deduction>,
    deadline: Instant,
) -> Vec<Result<(), StoreError>> {
    let mut batch = Batch::new(&space.servers);
    let places: Vec<_> = deductions.iter().map(|take| take.push(&mut batch)).collect();
    let answers = batch.send(deadline).await;
    let taken = |place| match answers.reply(place) {
        Err(failure) if error::is_corrupt(failure) => Ok(()),
        reply => reply.clone().map(drop),
    };
    places.into_iter().map(taken).collect()
}

/// Groups refunds by server, so that those on one server do not wait for another.
pub(crate) fn by_server(refunds: Vec<RefundAt>) -> Vec<Vec<RefundAt>> {
    let mut servers = BTreeMap::<usize, Vec<RefundAt>>::new();
    for returned in refunds {
        servers.entry(returned.refund.claim.key.server).or_default().push(returned);
    }
    servers.into_values().collect()
}

/// Gives units back to bucket and log meters. Retries until the deadline: units that are not given back stay charged
/// without reason, and a retry repeats only the writes that lost to another writer.
pub(crate) async fn refund(
    space: &Space,
    mut open: Vec<RefundAt>,
    deadline: Instant,
) -> Result<(), StoreError> {
    let mut results = Vec::new();
    for attempt in 0.. {
        if open.is_empty() {
            break;
        }
        if attempt > 0 && timeout_at(deadline, sleep(pause(attempt))).await.is_err() {
            results.push(Err(error::contended()));
            break;
        }
        open = refund_once(space, open, &mut results, deadline).await;
    }
    all_of(results)
}

/// Gives units back once. Returns the refunds that lost to another writer.
async fn refund_once(
    space: &Space,
    open: Vec<RefundAt>,
    results: &mut Vec<Result<(), StoreError>>,
    deadline: Instant,
) -> Vec<RefundAt> {
    let (mut batch, mut entries) = (Batch::new(&space.servers), Entries::new(space.lifetimes));
    let places: Vec<usize> =
        open.iter().map(|returned| entries.push(&mut batch, &returned.refund.claim.key)).collect();
    entries.receive(&batch.send(deadline).await);
    let mut read = Vec::with_capacity(open.len());
    for (returned, nth) in open.into_iter().zip(places) {
        let RefundAt { refund: OwnedRefund { claim, receipt }, now } = &returned;
        match entries.state(nth) {
            Ok(mut state) => {
                if give_back(&claim.meter, &mut state, claim.cost, *receipt, *now) {
                    entries.change(nth, state, &claim.meter, *now);
                }
                read.push((returned, nth));
            }
            // So far this has only read.
            Err(failure) => results.push(Err(failure.not_applied())),
        }
    }
    let mut batch = Batch::new(&space.servers);
    let writes = entries.write(&mut batch);
    let answers = batch.send(deadline).await;
    let mut lost = Vec::new();
    for (returned, nth) in read {
        match Written::new(&answers, writes[nth]) {
            Written::Unchanged => {}
            Written::Stored => results.push(Ok(())),
            Written::Lost => lost.push(returned),
            Written::Failed(failure) => results.push(Err(failure)),
        }
    }
    lost
}
