//! Gives units back.

use ratelimit_core::refund as give_back;
use tokio::time::{Instant, sleep};

use crate::decide::{ATTEMPTS, pause};
use crate::error::Failure;
use crate::keys::since_reset;
use crate::optimistic::{Cells, Written};
use crate::reply::Counter;
use crate::servers::Batch;
use crate::slice::GiveBack;
use crate::space::Space;
use crate::window::Take;
use crate::wire::Command;

/// Takes units off counters that are still there, in two trips if one of them has been reset. Never tried twice: what was
/// taken twice would be handed out twice.
pub(crate) async fn take_everywhere(
    space: &Space,
    takes: Vec<Take>,
    deadline: Instant,
) -> Result<(), Failure> {
    let mut batch = Batch::new(&space.servers);
    let push = |take: &Take| {
        let taken = batch.push(take.server, &take.command());
        (taken, batch.push(take.server, &Command::Look { key: &take.key }))
    };
    let places: Vec<_> = takes.iter().map(push).collect();
    let answers = space.servers.send(&batch, deadline).await;
    let mut moved = Vec::new();
    for (Take { server, key, units }, (taken, value)) in takes.into_iter().zip(places) {
        match (answers.reply(taken), answers.reply(value)) {
            (Err(failure), Ok(value)) if failure.is_corrupt() => match value.counter()? {
                Counter::Reset(mark) => moved.push(Take { server, key: since_reset(&key, mark), units }),
                Counter::Count(_) => return Err(failure.clone()),
            },
            (taken, _) => drop(taken.clone()?),
        }
    }
    take(space, moved, deadline).await
}

/// Takes units off counters that are still there and have not been reset.
pub(crate) async fn take(space: &Space, takes: Vec<Take>, deadline: Instant) -> Result<(), Failure> {
    let mut batch = Batch::new(&space.servers);
    let places: Vec<_> = takes.iter().map(|take| batch.push(take.server, &take.command())).collect();
    let answers = space.servers.send(&batch, deadline).await;
    places.into_iter().try_for_each(|place| answers.reply(place).clone().map(drop))
}

/// Gives units back to bucket and log meters.
pub(crate) async fn refund(space: &Space, mut open: Vec<GiveBack>, deadline: Instant) -> Result<(), Failure> {
    for attempt in 0..ATTEMPTS {
        if open.is_empty() {
            return Ok(());
        }
        if attempt > 0 {
            sleep(pause(attempt)).await;
        }
        open = refund_once(space, open, deadline).await?;
    }
    if open.is_empty() { Ok(()) } else { Err(Failure::contended()) }
}

/// Gives those that somebody else was faster than.
async fn refund_once(
    space: &Space,
    open: Vec<GiveBack>,
    deadline: Instant,
) -> Result<Vec<GiveBack>, Failure> {
    let (mut batch, mut cells) = (Batch::new(&space.servers), Cells::default());
    let places: Vec<usize> = open.iter().map(|given| cells.push(&mut batch, &given.ask.spot)).collect();
    cells.receive(&space.servers.send(&batch, deadline).await);
    for (given, nth) in open.iter().zip(&places) {
        let GiveBack { ask, receipt, now } = given;
        // Only read so far.
        let mut state = cells.state(*nth).map_err(Failure::not_applied)?;
        if give_back(&ask.meter, &mut state, ask.cost, *receipt, *now) {
            cells.change(*nth, state, &ask.meter, *now);
        }
    }
    let mut batch = Batch::new(&space.servers);
    let writes = cells.write(&mut batch, &space.lifetimes);
    let answers = space.servers.send(&batch, deadline).await;
    let mut lost = Vec::new();
    let mut failure = None;
    for (given, nth) in open.into_iter().zip(places) {
        match Written::new(&answers, writes[nth]) {
            Written::Unchanged | Written::Stored => {}
            Written::Lost => lost.push(given),
            Written::Failed(failed) => failure = Some(failed),
        }
    }
    failure.map_or(Ok(lost), Err)
}
