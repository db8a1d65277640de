//! The sentence in a refusal that says what the client can do.

use super::refusal::{Reason, Refusal};

/// Returns what the client can do, in one sentence.
pub(super) fn detail(refusal: &Refusal<'_>) -> String {
    match (refusal.reason(), refusal.retry_after_seconds()) {
        (Reason::QuotaExceeded | Reason::StoreUnavailable, Some(1)) => "try again in 1 second".to_owned(),
        (Reason::QuotaExceeded | Reason::StoreUnavailable, Some(seconds)) => {
            format!("try again in {seconds} seconds")
        }
        (Reason::Banned, Some(seconds)) => {
            format!("too many refused requests; further ones are refused for {seconds} seconds")
        }
        (Reason::Banned, None) => "too many refused requests".to_owned(),
        (Reason::QuotaExceeded, None) => {
            "the quota is used up for good, or the request costs more than can ever be admitted".to_owned()
        }
        (Reason::StoreUnavailable, None) => "try again later".to_owned(),
        (Reason::Denied, _) => "requests of this client are not served".to_owned(),
        (Reason::Unidentified, _) => "the request does not identify the client".to_owned(),
        (Reason::Misconfigured, _) => "the request cannot be counted".to_owned(),
    }
}
