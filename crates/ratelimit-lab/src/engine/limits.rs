//! What a replay has to know of limits.

use std::time::Duration;

use ratelimit_core::{Algorithm, Limit, Limits};

/// The shortest period of these limits; zero if none has a period.
pub(super) fn shortest<'l>(limits: impl Iterator<Item = &'l Limit>) -> Duration {
    limits.map(Limit::period).filter(|period| !period.is_zero()).min().unwrap_or_default()
}

/// # Errors
/// If one of these limits what is held at once.
pub(super) fn can_be_replayed(limits: &Limits) -> anyhow::Result<()> {
    match limits.iter().find(|limit| limit.algorithm() == Algorithm::Concurrency) {
        Some(limit) => anyhow::bail!(
            "{limit}: a concurrency limit cannot be replayed, since a log does not say when requests ended; leave it out"
        ),
        None => Ok(()),
    }
}
