//! The error of a call that an open breaker does not pass on.

use std::fmt;
use std::sync::Arc;

use crate::{StoreError, Timestamp};

/// Why the breaker is open.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) since: Timestamp,
    pub(super) last: StoreError,
}

/// A refused call. Its text is formatted only when it is printed, because a refusal has to be cheap.
pub(super) struct RefusedCall {
    pub(super) failed: Option<Arc<Failed>>,
    pub(super) now: Timestamp,
    /// When the next probe may begin.
    pub(super) until: Timestamp,
}

impl fmt::Display for RefusedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.until > self.now {
            write!(f, "the next attempt is in {:?}", self.until.since(self.now))?;
        } else {
            f.write_str("another call is attempting it now")?;
        }
        match &self.failed {
            Some(failed) => {
                let since = self.now.since(failed.since);
                write!(f, ", the first was {since:?} ago; the last failure: {}", failed.last)
            }
            None => Ok(()),
        }
    }
}
