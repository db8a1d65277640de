//! Sends a batch: on a client of the pool, on a thread that may block, within the store's time limit.

use std::pin::pin;
use std::sync::Arc;

use deadpool::managed::{Object, PoolError};
use memcache::MemcacheError;
use ratelimit_core::kit::halfway_to;
use ratelimit_core::{ErrorKind, StoreError};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};

use super::batch::Batch;
use super::failure::Health;
use super::manager::{MemcacheManager, MemcachePool};
use super::perform::{Performed, perform};
use crate::error;
use crate::queue::Replies;
use crate::servers::Answers;

/// The connections of a pool.
pub(crate) struct Plain(MemcachePool);

impl Plain {
    pub(crate) fn new(pool: MemcachePool) -> Self {
        Self(pool)
    }

    /// The address of the pool's server or proxy.
    pub(crate) fn address(&self) -> &Arc<str> {
        self.0.manager().shared_address()
    }

    pub(crate) async fn send(&self, batch: &Batch, deadline: Instant) -> Answers {
        let count = batch.commands.len();
        let replies = match count {
            0 => Ok(Replies::new()),
            _ => self.exchange(batch, deadline).await,
        };
        let replies = replies.unwrap_or_else(|failure| vec![Err(failure); count]);
        let at = |failure: StoreError| failure.at(&**self.address());
        Answers(vec![replies.into_iter().map(|reply| reply.map_err(at)).collect()])
    }

    /// A connection of the pool. Waits at most half of the time for others to return one.
    async fn client(&self, deadline: Instant) -> Result<Object<MemcacheManager>, StoreError> {
        let late = |message: &'static str| error::new(ErrorKind::Unreachable, message);
        let mut client = pin!(self.0.get());
        let mut got = timeout_at(halfway_to(deadline), &mut client).await;
        if got.is_err() {
            let pool = self.0.status();
            if pool.size >= pool.max_size && pool.waiting > 0 {
                return Err(late(
                    "no connection of the pool was free within the time limit; increase max_size",
                ));
            }
            got = timeout_at(deadline, client).await;
        }
        got.map_err(|_| late("no connection within the time limit"))?.map_err(no_connection)
    }

    async fn exchange(&self, batch: &Batch, deadline: Instant) -> Result<Replies, StoreError> {
        let client = self.client(deadline).await?;
        let (pool, batch) = (self.0.clone(), batch.clone());
        let work = spawn_blocking(move || {
            let Performed { replies, health } = perform(&client, &batch, deadline);
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
            Ok(Err(_)) => Err(error::abandoned()),
            // The thread continues until it notices the deadline, and starts no further command.
            Err(_) => Err(error::late().maybe_applied()),
        }
    }
}

fn no_connection(error: PoolError<MemcacheError>) -> StoreError {
    match error {
        PoolError::Backend(MemcacheError::IOError(error)) => error::from_io(&error),
        PoolError::Closed => error::new(
            ErrorKind::Unsupported,
            "the pool has been closed; keep it open while the store is used",
        ),
        PoolError::Timeout(_) => {
            error::new(ErrorKind::Unreachable, "no connection within the pool's own time limit")
        }
        _ => error::broken(),
    }
}
