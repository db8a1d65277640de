//! What a replay has to know about limits: their shortest period, and whether it can decide them.

use std::time::Duration;

use ratelimit_core::{Algorithm, Limit, Limits};

/// The shortest period of these limits; zero if none has a period.
pub(super) fn shortest<'l>(limits: impl Iterator<Item = &'l Limit>) -> Duration {
    limits.map(Limit::period).filter(|period| !period.is_zero()).min().unwrap_or_default()
}

/// Checks that a log has all that these limits need.
///
/// # Errors
/// If one of them is a concurrency limit.
pub(super) fn can_be_replayed(limits: &Limits) -> anyhow::Result<()> {
    match limits.iter().find(|limit| limit.algorithm() == Algorithm::Concurrency) {
        Some(limit) => anyhow::bail!(
            "{limit}: a concurrency limit cannot be replayed, since a log does not say when requests ended; leave it out"
        ),
        None => Ok(()),
    }
}
