//! Sends a batch: on a client of the pool, on a thread that may block, within the store's time limit.

use std::pin::pin;

use deadpool::managed::{Object, PoolError};
use memcache::MemcacheError;
use ratelimit_core::kit::halfway_to;
use ratelimit_core::{ErrorKind, StoreError};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::failure::Health;
use super::manager::{MemcacheManager, MemcachePool};
use super::perform::{Performed, perform};
use crate::error::{self, ERRORS};
use crate::servers::queue::Replies;
use crate::wire::commands::Command;

/// Sends commands, each with the key of its item, and returns one reply for each.
pub(crate) async fn send(pool: &MemcachePool, commands: &[(String, Command)], deadline: Instant) -> Replies {
    let replies = exchange(pool, commands, deadline).await;
    let replies = replies.unwrap_or_else(|failure| vec![Err(failure); commands.len()]);
    let at = |failure: StoreError| failure.at(pool.manager().address());
    replies.into_iter().map(|reply| reply.map_err(at)).collect()
}

async fn exchange(
    pool: &MemcachePool,
    commands: &[(String, Command)],
    deadline: Instant,
) -> Result<Replies, StoreError> {
    let client = client(pool, deadline).await?;
    let (pool, commands) = (pool.clone(), commands.to_vec());
    let work = spawn_blocking(move || {
        let Performed { replies, health } = perform(&client, &commands, deadline);
        if health != Health::InStep {
            drop(Object::take(client));
        }
        if health == Health::HungUp {
            // The others were closed as well, and their callers could not know whether their commands were executed.
            pool.retain(|_, _| false);
        }
        replies
    });
    match timeout_at(deadline, work).await {
        Ok(Ok(replies)) => Ok(replies),
        Ok(Err(_)) => Err(ERRORS.stopped().maybe_applied()),
        // The thread continues until it notices the deadline, and starts no further command.
        Err(_) => Err(ERRORS.late()),
    }
}

/// A connection of the pool. Waits at most half of the time for others to return one.
async fn client(pool: &MemcachePool, deadline: Instant) -> Result<Object<MemcacheManager>, StoreError> {
    let mut client = pin!(pool.get());
    let mut got = timeout_at(halfway_to(deadline), &mut client).await;
    if got.is_err() {
        let status = pool.status();
        if status.size >= status.max_size && status.waiting > 0 {
            let message = "no connection of the pool was free within the time limit; increase max_size";
            return Err(ERRORS.of(ErrorKind::Unreachable, message));
        }
        got = timeout_at(deadline, client).await;
    }
    got.map_err(|_| ERRORS.no_connection())?.map_err(no_connection)
}

fn no_connection(error: PoolError<MemcacheError>) -> StoreError {
    match error {
        PoolError::Backend(MemcacheError::IOError(error)) => error::from_io(&error),
        PoolError::Closed => ERRORS.pool_closed(),
        PoolError::Timeout(_) => {
            ERRORS.of(ErrorKind::Unreachable, "no connection within the pool's own time limit")
        }
        _ => error::broken(),
    }
}
