//! The decision on a request.

use std::time::Duration;

/// The decision on a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) is_admitted: bool,
    /// Of a refused request: the time after which it would be admitted if no other request came before. `None` if no wait
    /// helps.
    pub(crate) wait: Option<Duration>,
    /// Whether a configuration file refuses it for another reason than a limit.
    pub(crate) refused_otherwise: bool,
    /// Whether a queue delays the request.
    pub(crate) is_delayed: bool,
    /// How long a queue delays it.
    pub(crate) delay: Duration,
    /// Of a configuration file: the names of the limits that refused, or the status and the reason of another refusal.
    pub(crate) refused_by: Vec<String>,
}
