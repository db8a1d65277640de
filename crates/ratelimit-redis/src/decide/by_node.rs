//! Checks on a cluster that share round trips: the checks that one node decides are written together.
//!
//! A script may only touch the keys of one slot, so each check stays a call of its own. But the calls are sent as one
//! pipeline, in one round trip. No check waits for another node.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use ratelimit_core::layers::{BatchConfig, Batched};
use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};
use redis::{ErrorKind, Pipeline, RedisError, ServerErrorKind, Value};
use tokio::time::Instant;

use crate::decide::calls::Calls;
use crate::error;
use crate::servers::server::Server;
use crate::wire::codec::Answers;
use crate::wire::fast::{self, Single};
use crate::wire::keys::slot_of;

/// A cluster whose checks are batched by node.
pub(crate) struct ByNode {
    calls: Calls,
    config: BatchConfig,
    /// By address.
    nodes: Mutex<HashMap<String, Batched<OneNode>>>,
}

impl ByNode {
    pub(crate) fn new(calls: Calls, config: BatchConfig) -> Self {
        Self { calls, config, nodes: Mutex::default() }
    }

    pub(crate) async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let calls = &self.calls;
        let Some(node) = self.node_of(&claims) else {
            return calls.claim(claims).await;
        };
        let deadline = calls.deadline();
        match node.claim(claims).await {
            // The others of the batch have their answers, and do not wait for this one.
            Err(failure) if was_not_run(&failure) && Instant::now() < deadline => {
                calls.decide(calls.owned(&claims), deadline).await
            }
            answer => answer,
        }
    }

    /// The node that decides this slice, if the slice can take the fast path and the node is known.
    fn node_of(&self, claims: &Claims<'_>) -> Option<Batched<OneNode>> {
        let calls = &self.calls;
        if claims.len() != 1 || claims.mode() != Mode::Charge {
            return None;
        }
        let slot = slot_of(Single::of_slice(&calls.owned(claims), calls.time)?.key);
        let node = calls.link.cluster()?.owner(slot)?;
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = nodes.get(node.address()).filter(|known| Arc::ptr_eq(&known.inner().node, &node))
        {
            return Some(known.clone());
        }
        // Only this map still holds a reference to a node that has left the cluster.
        nodes.retain(|_, known| Arc::strong_count(&known.inner().node) > 1);
        let address = node.address().to_owned();
        let batched = Batched::with_config(OneNode { calls: calls.clone(), node }, self.config);
        nodes.insert(address, batched.clone());
        Some(batched)
    }
}

/// A node of the cluster as a store, for slices that can take the fast path and whose keys are in slots of this node.
#[derive(Clone)]
struct OneNode {
    calls: Calls,
    node: Arc<Server>,
}

impl OneNode {
    /// Sends the calls as one pipeline. The failure of a call that the node did not run is caused by [`NotRun`].
    async fn decide(&self, singles: &[Single<'_>], slices: &[Claims<'_>]) -> Answers {
        let calls = &self.calls;
        let deadline = calls.deadline();
        let mut pipeline = Pipeline::with_capacity(singles.len());
        for single in singles {
            pipeline.add_command(calls.fast_call(std::slice::from_ref(single)));
        }
        let replies = match self.node.connection().send_all(&pipeline, singles.len(), deadline).await {
            Ok(replies) if replies.len() == singles.len() => replies,
            Ok(_) => return self.all(slices, &error::strange_reply()),
            Err(failure) if error::may_go_elsewhere(&failure) => {
                return self.all(slices, &failure.caused_by(NotRun));
            }
            Err(failure) => {
                if let Some(cluster) = calls.link.cluster() {
                    cluster.survey_soon();
                }
                return self.all(slices, &failure);
            }
        };
        let answer = |(single, reply): (&Single<'_>, Value)| match reply.extract_error() {
            Ok(reply) => fast::decode(single, &reply).map_err(|error| self.fail(error)),
            Err(error) => {
                let (failure, is_unread) = (error::from_redis(error.clone()), was_not_read(&error));
                Err(self.fail(if is_unread { failure.caused_by(NotRun) } else { failure }))
            }
        };
        singles.iter().zip(replies).map(answer).collect()
    }

    fn all(&self, slices: &[Claims<'_>], failure: &StoreError) -> Answers {
        slices.iter().map(|_| Err(self.fail(failure.clone()))).collect()
    }

    fn fail(&self, failure: StoreError) -> StoreError {
        failure.at(self.node.address())
    }
}

/// Marks the failure of a check that the node did not run, so that it can be decided on its own.
#[derive(Debug)]
struct NotRun;

impl fmt::Display for NotRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the node did not run the call")
    }
}

impl Error for NotRun {}

fn was_not_run(failure: &StoreError) -> bool {
    failure.source().is_some_and(|source| source.is::<NotRun>())
}

/// Whether the node did not run the call, because another node serves its slot or the script has to be sent in full.
fn was_not_read(error: &RedisError) -> bool {
    use ServerErrorKind as Kind;
    matches!(error.kind(), ErrorKind::Server(Kind::Moved | Kind::Ask | Kind::TryAgain | Kind::NoScript))
        || error::may_go_elsewhere(&error::from_redis(error.clone()))
}

impl fmt::Debug for OneNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OneNode").field("address", &self.node.address()).finish_non_exhaustive()
    }
}

impl CounterStore for OneNode {
    fn promises(&self) -> Promises {
        self.calls.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.calls.claim(claims).await
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Answers {
        let owned: Vec<_> = slices.iter().map(|claims| self.calls.owned(claims)).collect();
        let singles: Option<Vec<_>> =
            owned.iter().map(|slice| Single::of_slice(slice, self.calls.time)).collect();
        match singles {
            Some(singles) => self.decide(&singles, slices).await,
            None => self.calls.claim_many(slices).await,
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.calls.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.calls.reset(claims).await
    }
}
