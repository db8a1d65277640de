//! The decision on a request.

use ratelimit_core::{Clock, CounterStore};

use crate::settle::After;
use crate::verdict::Verdict;

/// The decision on a request, and what to do when the request has ended.
pub(crate) struct Decided<S: CounterStore + 'static, C: Clock + 'static> {
    pub(crate) verdict: Verdict,
    pub(crate) after: Option<After<S, C>>,
}
