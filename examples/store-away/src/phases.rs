//! What the server goes through while the service is measured.

use crate::client::Answer;
use crate::service::Choice;

/// What the server does, and for how many seconds.
pub(crate) const PHASES: [(Phase, u64); 5] =
    [(Phase::Up, 3), (Phase::Frozen, 4), (Phase::Up, 4), (Phase::Killed, 4), (Phase::Up, 4)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Up,
    /// It has got SIGSTOP: it does not answer, and its connections stay open.
    Frozen,
    /// It has got SIGKILL: connections are refused.
    Killed,
}

/// The answers to all clients under one choice.
pub(crate) struct Run {
    pub(crate) choice: Choice,
    pub(crate) answers: Vec<Answer>,
}
