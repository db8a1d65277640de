//! The decision on a request.

use std::time::Duration;

/// The decision on a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) is_admitted: bool,
    /// Until the same request is admitted if nothing else is; `None` if it never is.
    pub(crate) wait: Option<Duration>,
    /// Whether a queue delays it.
    pub(crate) is_delayed: bool,
    /// By how much.
    pub(crate) delay: Duration,
    /// The limits that refused, by their names in the configuration file.
    pub(crate) refused_by: Vec<String>,
}
