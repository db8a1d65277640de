//! Deletes expired meters.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::AbortHandle;

use ratelimit_core::StoreError;

use crate::error;
use crate::servers::link::Link;
use crate::wire::call::Argument::BigInt;
use crate::wire::call::Call;
use crate::wire::schema::Function;

/// How many blocks of the table one statement scans: some thousand rows, about a millisecond.
const BLOCKS: i64 = 32;

/// Deletes expired meters in the background until it is dropped.
#[derive(Debug)]
pub(crate) struct Pruner(AbortHandle);

impl Pruner {
    pub(crate) fn start(link: &Arc<Link>, every: Duration) -> Self {
        Self(tokio::spawn(run(Arc::downgrade(link), every)).abort_handle())
    }
}

impl Drop for Pruner {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn run(link: Weak<Link>, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(link) = link.upgrade() else {
            return;
        };
        // Rows that cannot be deleted now are deleted another time, and calls report problems with the server.
        let _ = prune(&link).await;
    }
}

/// Scans the table once. Returns the number of deleted meters.
pub(crate) async fn prune(link: &Link) -> Result<u64, StoreError> {
    let (mut first, mut deleted) = (0, 0);
    loop {
        let call = Call::new(Function::Prune, [BigInt(first), BigInt(BLOCKS)]);
        let (reply,): (Vec<i64>,) = link.run(&call, link.deadline()).await?;
        let &[count, blocks] = reply.as_slice() else {
            return Err(error::strange_reply());
        };
        deleted += u64::try_from(count).unwrap_or(0);
        first += BLOCKS;
        if first >= blocks {
            return Ok(deleted);
        }
    }
}
