//! Refusals: the reason, and the data for a response.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;

use crate::Head;
use crate::absent::Absent;
use crate::headers::{self, Lines};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// A limit is used up: 429.
    QuotaExceeded,
    /// The client was refused too often, and is banned for a while ([`Algorithm::Ban`](ratelimit_core::Algorithm::Ban)): 429.
    Banned,
    /// The client is in a list of those to refuse ([`Policies::deny`](crate::Policies::deny)), or has sent the header several
    /// times by which the list identifies clients: 403.
    Denied,
    /// The store did not answer, and [`OnFailure`](crate::OnFailure) refuses in this case: 503.
    StoreUnavailable,
    /// The client did not send what the policy counts by, and [`Missing`](crate::Missing) refuses in this case: 400.
    Unidentified,
    /// The program did not provide what a policy counts by or a deny list needs, or its policies cannot be checked: 500. The log
    /// has the details.
    Misconfigured,
}

impl Reason {
    /// The status code for this reason.
    pub fn status(self) -> StatusCode {
        match self {
            Self::QuotaExceeded | Self::Banned => StatusCode::TOO_MANY_REQUESTS,
            Self::Denied => StatusCode::FORBIDDEN,
            Self::StoreUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unidentified => StatusCode::BAD_REQUEST,
            Self::Misconfigured => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

/// A refused request, with the data for a response.
pub struct Refusal<'a> {
    pub(super) refused: &'a Refused,
    pub(super) request: Head<'a>,
}

impl Refusal<'_> {
    /// Why the request is refused.
    pub fn reason(&self) -> Reason {
        self.refused.reason
    }

    /// The head of the request.
    pub fn request(&self) -> Head<'_> {
        self.request
    }

    /// How long to wait until the same request is admitted if nothing else is charged. `None` if waiting does not help.
    ///
    /// At most a second if a concurrency limit decided, because units may be released at any moment. If the store did not
    /// answer, the time of [`OnFailure::Closed`](crate::OnFailure::Closed).
    pub fn retry_after(&self) -> Option<Duration> {
        self.refused.retry_after
    }

    /// The value of `Retry-After`: [`retry_after`](Self::retry_after) in whole seconds, rounded up, at least one.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        self.refused.retry_after_seconds()
    }

    /// The names of the limits that refused, as in [`Plan`](crate::Plan); if the store did not answer, of those that
    /// could not be checked.
    pub fn violated_policies(&self) -> impl ExactSizeIterator<Item = &str> {
        self.refused.violated.iter().map(|name| &**name)
    }

    /// What the client can do, in one sentence.
    pub(super) fn in_words(&self) -> String {
        self.refused.in_words()
    }
}

impl Refused {
    /// The value of `Retry-After`.
    pub(crate) fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|wait| headers::whole_seconds(wait).max(1))
    }

    /// What the client can do, in one sentence.
    pub(crate) fn in_words(&self) -> String {
        if let Some(Absent::Several(header)) = &self.absent {
            return format!("the request has the header {header} more than once");
        }
        match (self.reason, self.retry_after_seconds()) {
            (Reason::QuotaExceeded | Reason::StoreUnavailable, Some(1)) => "try again in 1 second".to_owned(),
            (Reason::QuotaExceeded | Reason::StoreUnavailable, Some(seconds)) => {
                format!("try again in {seconds} seconds")
            }
            (Reason::Banned, Some(seconds)) => {
                format!("too many refused requests; further ones are refused for {seconds} seconds")
            }
            (Reason::Banned, None) => "too many refused requests".to_owned(),
            (Reason::QuotaExceeded, None) => {
                "the quota is used up for good, or the request costs more than can ever be admitted"
                    .to_owned()
            }
            (Reason::StoreUnavailable, None) => "try again later".to_owned(),
            (Reason::Denied, _) => "requests of this client are not served".to_owned(),
            (Reason::Unidentified, _) => match &self.absent {
                Some(Absent::Client(Some(header))) => format!("the request has no header {header}"),
                _ => "the request does not identify the client".to_owned(),
            },
            (Reason::Misconfigured, _) => "the request cannot be counted".to_owned(),
        }
    }
}

impl std::fmt::Debug for Refusal<'_> {
    /// Does not show the request, which contains secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Refusal")
            .field("reason", &self.reason())
            .field("retry_after", &self.retry_after())
            .field("violated_policies", &self.refused.violated)
            .finish()
    }
}

/// The data of a refusal, before the response is built.
pub(crate) struct Refused {
    pub(crate) reason: Reason,
    pub(crate) violated: Vec<Arc<str>>,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) lines: Lines,
    /// What the key of a policy or a list lacks, if that is why the request is refused.
    pub(crate) absent: Option<Absent>,
}
