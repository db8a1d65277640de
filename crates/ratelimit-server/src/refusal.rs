//! Why a request is not answered.

use std::fmt;

use http::StatusCode;
use ratelimit_core::CheckError;

/// Why a request is not answered: as a status of HTTP, and in words.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    text: String,
}

impl Refusal {
    pub(crate) fn new(status: StatusCode, text: impl fmt::Display) -> Self {
        Self { status, text: text.to_string() }
    }

    /// The question is wrong: the text says how.
    pub(crate) fn bad(text: impl fmt::Display) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// There is no such policy or domain.
    pub(crate) fn unknown(text: impl fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<CheckError> for Refusal {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::Store(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, format!("the store did not answer: {error}"))
            }
            error => Self::bad(error),
        }
    }
}
