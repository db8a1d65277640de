//! Forgets meters.

use ratelimit_core::{Claims, Meter};
use tokio::time::{Instant, sleep};

use crate::decide::{ATTEMPTS, pause};
use crate::error::Failure;
use crate::refund::take;
use crate::servers::Batch;
use crate::slice::Spot;
use crate::space::Space;
use crate::window::{Counters, Take, counters};
use crate::wire::{self, Reply};

/// A counter that others may be adding to.
///
/// They may have reserved units in it that they are about to take back, and from a new counter they would take what is not
/// theirs. So it is removed only if nobody has touched it since it was seen within its limit, or twice beyond it.
struct Counter {
    server: usize,
    key: String,
    limit: u64,
    /// The number that it had when it was seen last.
    seen: Option<u64>,
}

/// What is to be done about a counter that has been looked at.
enum Verdict {
    Gone,
    Remove(u64),
    LookAgain(u64),
}

/// Forgets the meters of these claims as they stand at that instant.
pub(crate) async fn forget(space: &Space, claims: Claims<'_>, deadline: Instant) -> Result<(), Failure> {
    let mut batch = Batch::new(&space.servers);
    let (mut open, mut places) = (Vec::new(), Vec::new());
    for claim in claims.iter() {
        let Spot { name, server } = Spot::new(&space.servers, &space.prefix, &claim.id);
        let Meter::Window(window) = &claim.meter else {
            places.push(batch.push(server, wire::delete(&name)));
            continue;
        };
        let Counters { live, past } = counters(&name, window, claims.now());
        let limit = window.limit();
        open.extend(live.into_iter().map(|key| Counter { server, key, limit, seen: None }));
        places.extend(past.iter().map(|key| batch.push(server, wire::delete(key))));
    }
    for attempt in 0..ATTEMPTS {
        let looks: Vec<_> =
            open.iter().map(|counter| batch.push(counter.server, wire::read(&counter.key))).collect();
        if batch.is_empty() {
            return Ok(());
        }
        if attempt > 0 {
            sleep(pause(attempt)).await;
        }
        let answers =
            space.servers.send(std::mem::replace(&mut batch, Batch::new(&space.servers)), deadline).await;
        places.drain(..).try_for_each(|place| answers.reply(place).clone().map(drop))?;
        let looked =
            open.drain(..).zip(looks).map(|(counter, place)| (answers.reply(place).clone(), counter));
        open = remove(space, looked.collect(), deadline).await?;
    }
    lower(space, open, deadline).await
}

/// Removes the counters that may be removed; gives the others.
async fn remove(
    space: &Space,
    looked: Vec<(Result<Reply, Failure>, Counter)>,
    deadline: Instant,
) -> Result<Vec<Counter>, Failure> {
    let mut batch = Batch::new(&space.servers);
    let (mut open, mut removed) = (Vec::new(), Vec::new());
    for (reply, mut counter) in looked {
        match counter.judge(&reply?)? {
            Verdict::Gone => {}
            Verdict::Remove(unique) => {
                let place = batch.push(counter.server, wire::delete(&counter.key).flag(format!("C{unique}")));
                removed.push((place, counter));
            }
            Verdict::LookAgain(unique) => {
                counter.seen = Some(unique);
                open.push(counter);
            }
        }
    }
    let answers = space.servers.send(batch, deadline).await;
    for (place, counter) in removed {
        if matches!(answers.reply(place).clone()?, Reply::Lost) {
            open.push(counter);
        }
    }
    Ok(open)
}

/// What is never left alone is lowered by all that can have been admitted.
async fn lower(space: &Space, open: Vec<Counter>, deadline: Instant) -> Result<(), Failure> {
    let mut batch = Batch::new(&space.servers);
    let looks: Vec<_> =
        open.iter().map(|counter| batch.push(counter.server, wire::look(&counter.key))).collect();
    let answers = space.servers.send(batch, deadline).await;
    let mut takes = Vec::new();
    for (Counter { server, key, limit, .. }, place) in open.into_iter().zip(looks) {
        let units = answers.reply(place).as_ref().map_err(Failure::clone)?.count()?.min(limit);
        if units > 0 {
            takes.push(Take { server, key, units });
        }
    }
    take(space, takes, deadline).await
}

impl Counter {
    fn judge(&self, reply: &Reply) -> Result<Verdict, Failure> {
        let Reply::Value { unique: Some(unique), .. } = reply else {
            return if *reply == Reply::Missing {
                Ok(Verdict::Gone)
            } else {
                Err(Failure::strange_response())
            };
        };
        // What is no count at all is removed as well.
        let within = reply.count().map_or(true, |count| count <= self.limit);
        let untouched = self.seen == Some(*unique);
        Ok(if within || untouched { Verdict::Remove(*unique) } else { Verdict::LookAgain(*unique) })
    }
}
