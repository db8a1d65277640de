//! Whose clock decides.

use crate::StoreError;
use crate::store::{Time, UrlOption};

/// Whose clock decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TimeSource {
    /// The caller's, that is, the limiter's clock. Synchronise the clocks of the machines that share the server.
    #[default]
    Caller,
    /// The server's, in microseconds; the limiter's clock is not used.
    Server,
}

impl TimeSource {
    /// Parses the value of an option in a store's URL: `caller` or `server`.
    ///
    /// # Errors
    /// If it is neither.
    pub fn from_option(option: &UrlOption<'_>) -> Result<Self, StoreError> {
        option.one_of(&[("caller", Self::Caller), ("server", Self::Server)])
    }
}

impl From<TimeSource> for Time {
    fn from(source: TimeSource) -> Self {
        match source {
            TimeSource::Caller => Self::Caller,
            TimeSource::Server => Self::Server,
        }
    }
}
