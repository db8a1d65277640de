//! A cluster: which node a call is sent to, and what happens when that changes.
//!
//! Each node has its own connections, so a node that is down or frozen does not delay calls to the others. If a node fails
//! or reports that a slot has moved, a survey in the background finds out which node serves which slot.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::try_join_all;
use ratelimit_core::{ErrorKind, StoreError};
use redis::{Cmd, ConnectionInfo, RedisError, ServerErrorKind, Value};
use tokio::time::{Instant, sleep_until};

use crate::config::RedisConfig;
use crate::config::node_address::NodeAddress;
use crate::error::{self, ERRORS};
use crate::servers::discovery::Discovery;
use crate::servers::nodes::Nodes;
use crate::servers::server::Server;
use crate::wire::keys::slot_of;
use crate::wire::script::{first_key, in_full};

/// How many redirects a call follows.
const REDIRECTS: u32 = 8;

/// The first pause before a call on keys that are moving between two nodes is retried.
const PAUSE: Duration = Duration::from_millis(10);

/// A cluster and the connections to its nodes.
pub(crate) struct Cluster {
    nodes: Arc<Nodes>,
    survey: Discovery,
    address: String,
}

/// What to do with a call that a node has answered with an error.
enum Step {
    /// Send the call to this node.
    At(NodeAddress),
    /// Send the call to this node after an `ASKING`; the next call still goes to the node that serves the slot.
    Asking(NodeAddress),
    /// Send the call with the whole script.
    InFull,
    /// The keys are moving between two nodes: wait, then send the call again.
    Pause,
    /// Send the call to the node that serves the slot now.
    Elsewhere(StoreError),
}

impl Cluster {
    pub(crate) fn new(nodes: &[ConnectionInfo], config: &RedisConfig) -> Result<Self, StoreError> {
        let nodes = Arc::new(Nodes::new(nodes, config)?);
        let survey = Discovery::new({
            let nodes = nodes.clone();
            move || nodes.clone().survey()
        });
        Ok(Self { address: nodes.address(), nodes, survey })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The node that serves a slot, if it is known. If it has stopped answering, a survey begins.
    pub(crate) fn owner(&self, slot: u16) -> Option<Arc<Server>> {
        let node = self.nodes.owner(slot)?;
        if node.is_silent() {
            self.survey_soon();
        }
        Some(node)
    }

    /// The nodes that serve slots, as far as they are known.
    pub(crate) fn serving(&self) -> Vec<Arc<Server>> {
        self.nodes.serving()
    }

    /// Finds the nodes and connects to those that serve slots. A node that is down now is connected later.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), StoreError> {
        self.surveyed(deadline).await?;
        let serving = self.nodes.serving();
        let connect = async |node: &Arc<Server>| match node.connect(deadline).await {
            Err(failure) if failure.kind() == ErrorKind::Denied => Err(failure),
            _ => Ok(()),
        };
        try_join_all(serving.iter().map(connect)).await.map(drop)
    }

    /// Sends a command to the node that serves the slot of its keys.
    pub(crate) async fn send(&self, mut cmd: Cmd, deadline: Instant) -> Result<Value, StoreError> {
        let slot = slot_of(first_key(&cmd));
        let mut node = self.find_owner(slot, deadline).await?;
        let (mut asking, mut redirects, mut pause) = (false, 0, PAUSE);
        loop {
            let reply = node.connection().send(&cmd, asking, deadline).await;
            let step = match reply {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => self.step(error, &node)?,
                Err(failure) => Step::Elsewhere(failure),
            };
            redirects += 1;
            match step {
                Step::InFull => cmd = in_full(&cmd).ok_or_else(error::strange_reply)?,
                Step::Elsewhere(failure) if redirects <= REDIRECTS => {
                    (node, asking) = (self.other_owner(slot, &node, failure, deadline).await?, false);
                }
                Step::Pause if Instant::now() + pause < deadline => {
                    sleep_until(Instant::now() + pause).await;
                    (redirects, pause, asking) = (0, pause * 2, false);
                    node = self.find_owner(slot, deadline).await?;
                }
                Step::At(place) if redirects <= REDIRECTS => {
                    (node, asking) = (self.nodes.moved(slot, &place), false);
                    self.survey_soon();
                }
                Step::Asking(place) if redirects <= REDIRECTS => {
                    (node, asking) = (self.nodes.at(&place), true);
                }
                _ => {
                    let moving = ERRORS.of(ErrorKind::Unreachable, "the cluster is moving slots");
                    return Err(moving.at(node.address()));
                }
            }
        }
    }

    /// What to do after `node` has replied with an error.
    fn step(&self, error: RedisError, node: &Server) -> Result<Step, StoreError> {
        use ServerErrorKind as Kind;
        let redis::ErrorKind::Server(kind) = error.kind() else {
            return Err(error::from_redis(error).at(node.address()));
        };
        let place = || {
            let (address, _) = error.redirect_node()?;
            let mut place = NodeAddress::of_address(address)?;
            if place.host.is_empty() {
                // The node that has replied.
                place.host = NodeAddress::of_address(node.address())?.host;
            }
            Some(place)
        };
        let step = match (kind, place()) {
            (Kind::Moved, Some(place)) => Step::At(place),
            (Kind::Ask, Some(place)) => Step::Asking(place),
            (Kind::NoScript, _) => Step::InFull,
            (Kind::TryAgain, _) => Step::Pause,
            _ => {
                let failure = error::from_redis(error).at(node.address());
                if !error::may_go_elsewhere(&failure) {
                    return Err(failure);
                }
                Step::Elsewhere(failure)
            }
        };
        Ok(step)
    }

    /// The node that serves a slot, after a survey if it is not known.
    async fn find_owner(&self, slot: u16, deadline: Instant) -> Result<Arc<Server>, StoreError> {
        if let Some(node) = self.owner(slot) {
            return Ok(node);
        }
        self.surveyed(deadline).await?;
        self.nodes.owner(slot).ok_or_else(|| {
            ERRORS.of(ErrorKind::Unreachable, "no node of the cluster serves the key").at(&self.address)
        })
    }

    /// The node that has taken over the slot of a failed node, or the failure if there is none.
    async fn other_owner(
        &self,
        slot: u16,
        failed: &Arc<Server>,
        failure: StoreError,
        deadline: Instant,
    ) -> Result<Arc<Server>, StoreError> {
        self.survey_soon();
        self.survey.other_than(failed, failure, || self.nodes.owner(slot), deadline).await
    }

    /// Waits for a survey of which node serves which slot, unless one has just ended.
    async fn surveyed(&self, deadline: Instant) -> Result<(), StoreError> {
        self.survey.wait(deadline).await.map_err(|failure| failure.at(&self.address))
    }

    /// Starts a survey of which node serves which slot, without waiting for it.
    pub(crate) fn survey_soon(&self) {
        self.survey.begin();
    }
}
