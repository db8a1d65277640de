//! The limiters of this repository, with the store in memory.

use std::time::Duration;

use ratelimit_memory::{Clock, Limit, ManualClock, MemoryStore, RateLimiter, SystemClock};

use super::contestant::{Allow, Contestant, Limiter};
use crate::keys::Key;

/// Ours with the default algorithm.
pub(crate) const OURS: &str = "ours";
/// Ours as a token bucket.
pub(crate) const OURS_GCRA: &str = "ours, gcra";
/// Ours with fixed windows.
pub(crate) const OURS_FIXED: &str = "ours, fixed";

/// Our limiter with one of the algorithms, given by the options of its limits.
pub(crate) struct Ours {
    pub(crate) options: &'static str,
}

/// The names of the contestants, and the options of their limits.
const FORMS: &[(&str, &str)] = &[
    (OURS, ""),
    (OURS_FIXED, " fixed"),
    (OURS_GCRA, " burst UNITS"),
    ("ours, segmented", " precision 10m"),
    ("ours, strict", " precision 10m strict"),
    ("ours, leaky", " leaky burst UNITS"),
    ("ours, queue", " queue burst UNITS"),
    ("ours, log", " log"),
];

/// The options of the contestant with this name.
pub(crate) fn options(name: &str) -> Option<&'static str> {
    FORMS.iter().find(|(form, _)| *form == name).map(|(_, options)| *options)
}

/// The names of all contestants.
pub(crate) fn forms() -> impl Iterator<Item = &'static str> {
    FORMS.iter().map(|(name, _)| *name)
}

impl Ours {
    fn limit(&self, units: u32, period: &str) -> Limit {
        let most = if self.options == " log" { units.min(100_000) } else { units };
        let text = format!("{most}/{period}{}", self.options.replace("UNITS", &most.to_string()));
        text.parse().unwrap_or_else(|error| panic!("{text:?}: {error}"))
    }
}

impl Contestant for Ours {
    type Limiter = RateLimiter<MemoryStore, SystemClock>;
    type Short = RateLimiter<MemoryStore, ManualClock>;

    fn build(&self, allow: Allow) -> Self::Limiter {
        RateLimiter::new(MemoryStore::new(), self.limit(allow.units(), "h"))
    }

    fn short(&self) -> Self::Short {
        let clock = ManualClock::at(SystemClock::new().now());
        RateLimiter::new(MemoryStore::new(), self.limit(100, "min")).with_clock(clock)
    }
}

impl Limiter for RateLimiter<MemoryStore, SystemClock> {
    #[inline]
    fn check(&self, key: &Key) -> bool {
        self.check_now(key.text.as_str()).is_ok_and(|decision| decision.allowed())
    }
}

impl Limiter for RateLimiter<MemoryStore, ManualClock> {
    #[inline]
    fn check(&self, key: &Key) -> bool {
        self.check_now(key.text.as_str()).is_ok_and(|decision| decision.allowed())
    }

    fn expire(&self) {
        self.clock().advance(Duration::from_secs(3_600));
    }
}
