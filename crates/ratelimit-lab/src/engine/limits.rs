//! What a replay has to know about limits: their shortest period, and whether they hold units.

use std::time::Duration;

use ratelimit_core::{Algorithm, Limit, Limits};

/// The shortest period of these limits; zero if none has a period.
pub(super) fn shortest<'l>(limits: impl Iterator<Item = &'l Limit>) -> Duration {
    limits.map(Limit::period).filter(|period| !period.is_zero()).min().unwrap_or_default()
}

/// Whether one of these is a concurrency limit: a replay has to know when requests end.
pub(super) fn hold(limits: &Limits) -> bool {
    limits.iter().any(|limit| limit.algorithm() == Algorithm::Concurrency)
}
