//! A cluster: which node to ask, and what to do when that changes.
//!
//! Each node has connections of its own, so that one that is gone or frozen keeps nobody waiting who asks another. Who
//! serves which slot is asked anew, in the background, whenever something points to a change.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::ErrorKind;
use redis::{Cmd, RedisError, ServerErrorKind, Value};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::config::RedisConfig;
use crate::error::Failure;
use crate::flight::Flight;
use crate::keys::slot_of;
use crate::link::Lines;
use crate::nodes::Nodes;
use crate::script::Script;
use crate::topology::{Place, split_address};

/// How often a call lets itself be sent on.
const REDIRECTS: u32 = 8;

/// The pause before keys are looked for again that are moving between two nodes.
const PAUSE: Duration = Duration::from_millis(10);

/// A cluster and the connections to its nodes.
pub(crate) struct Cluster {
    nodes: Arc<Nodes>,
    survey: Flight<Result<(), Failure>>,
    address: String,
}

/// What to do after a node's reply.
enum Step {
    /// Ask this one.
    At(Place),
    /// Ask this one, once, and not for the next call.
    Asking(Place),
    /// Send the script along.
    InFull,
    /// Keys are on their way between two nodes: wait.
    Pause,
    /// Ask whoever serves the slot now.
    Elsewhere(Failure),
}

impl Cluster {
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, Failure> {
        let nodes = Nodes::new(config)?;
        let address = nodes.address();
        Ok(Self { nodes: Arc::new(nodes), survey: Flight::new(), address })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Finds the nodes, and connects to those that serve slots. One that is down now is found later.
    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        self.surveyed(deadline).await?;
        let mut tasks = JoinSet::new();
        for node in self.nodes.serving() {
            tasks.spawn(async move { node.connect(deadline).await });
        }
        while let Some(outcome) = tasks.join_next().await {
            match outcome {
                Ok(Err(failure)) if failure.kind() == ErrorKind::Denied => return Err(failure),
                _ => {}
            }
        }
        Ok(())
    }

    /// Sends a command to the node that serves the slot of `key`.
    pub(crate) async fn send(
        &self,
        mut cmd: Cmd,
        script: Option<&Script>,
        key: &[u8],
        deadline: Instant,
    ) -> Result<Value, Failure> {
        let slot = slot_of(key);
        let mut node = self.owner(slot, deadline).await?;
        let (mut asking, mut redirects, mut pause) = (false, 0, PAUSE);
        loop {
            let reply = node.line().send(&cmd, asking, deadline).await;
            let step = match reply {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(error)) => self.step(error, &node)?,
                Err(failure) => Step::Elsewhere(failure),
            };
            redirects += 1;
            match (step, script) {
                (Step::InFull, Some(script)) => cmd = script.call_in_full(&cmd),
                (Step::Elsewhere(failure), _) if redirects <= REDIRECTS => {
                    (node, asking) = (self.other_owner(slot, &node, failure, deadline).await?, false);
                }
                (Step::Pause, _) if Instant::now() + pause < deadline => {
                    sleep_until(Instant::now() + pause).await;
                    (redirects, pause, asking) = (0, pause * 2, false);
                    node = self.owner(slot, deadline).await?;
                }
                (Step::At(place), _) if redirects <= REDIRECTS => {
                    (node, asking) = (self.nodes.moved(slot, &place), false);
                    self.survey_soon();
                }
                (Step::Asking(place), _) if redirects <= REDIRECTS => {
                    (node, asking) = (self.nodes.at(&place), true);
                }
                _ => {
                    let moving = Failure::new(ErrorKind::Unreachable, "the cluster is moving slots");
                    return Err(moving.at(node.address()));
                }
            }
        }
    }

    /// What to do when `node` has replied with an error.
    fn step(&self, error: RedisError, node: &Lines) -> Result<Step, Failure> {
        use ServerErrorKind as Kind;
        let redis::ErrorKind::Server(kind) = error.kind() else {
            return Err(Failure::from_redis(error).at(node.address()));
        };
        let place = || {
            let (address, _) = error.redirect_node()?;
            let (host, port) = split_address(address)?;
            // No host: the one that has answered.
            let here = || split_address(node.address()).map(|(host, _)| host);
            Some((if host.is_empty() { here()? } else { host }, port))
        };
        let step = match (kind, place()) {
            (Kind::Moved, Some(place)) => Step::At(place),
            (Kind::Ask, Some(place)) => Step::Asking(place),
            (Kind::NoScript, _) => Step::InFull,
            (Kind::TryAgain, _) => Step::Pause,
            _ => {
                let failure = Failure::from_redis(error).at(node.address());
                if !failure.may_go_elsewhere() {
                    return Err(failure);
                }
                Step::Elsewhere(failure)
            }
        };
        Ok(step)
    }

    /// The node that serves a slot.
    async fn owner(&self, slot: u16, deadline: Instant) -> Result<Arc<Lines>, Failure> {
        if let Some(node) = self.nodes.owner(slot) {
            return Ok(node);
        }
        self.surveyed(deadline).await?;
        self.nodes.owner(slot).ok_or_else(|| {
            Failure::new(ErrorKind::Unreachable, "no node of the cluster serves the key").at(&self.address)
        })
    }

    /// The node that has taken a slot over from one that failed; the failure, if nobody has.
    async fn other_owner(
        &self,
        slot: u16,
        failed: &Arc<Lines>,
        failure: Failure,
        deadline: Instant,
    ) -> Result<Arc<Lines>, Failure> {
        if !failure.may_go_elsewhere() {
            self.survey_soon();
            return Err(failure);
        }
        let other = || self.nodes.owner(slot).filter(|owner| !Arc::ptr_eq(owner, failed));
        if let Some(other) = other() {
            return Ok(other);
        }
        // Without a survey this failure says more than that of the survey.
        let _ = self.surveyed(deadline).await;
        other().ok_or(failure)
    }

    /// Waits until it is known who serves what, unless that was asked just now.
    async fn surveyed(&self, deadline: Instant) -> Result<(), Failure> {
        if self.nodes.is_fresh() {
            return Ok(());
        }
        let survey = self.survey.join(|| self.nodes.clone().survey());
        match timeout_at(deadline, survey).await {
            Ok((outcome, _)) => outcome.unwrap_or_else(|| Err(Failure::stopped())),
            Err(_) => {
                Err(Failure::new(ErrorKind::Timeout, "no connection within the time limit").at(&self.address))
            }
        }
    }

    /// Asks who serves what, and waits for nothing.
    fn survey_soon(&self) {
        if !self.nodes.is_fresh() {
            self.survey.begin(|| self.nodes.clone().survey());
        }
    }
}
