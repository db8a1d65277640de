//! The crate `throttlecrab`. It needs exclusive access, so it is behind a mutex.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use throttlecrab::{PeriodicStore, RateLimiter};

use super::contestant::{Allow, Contestant, Limiter};
use crate::keys::Key;

pub(crate) struct Crab;

pub(crate) struct Locked {
    limiter: Mutex<RateLimiter<PeriodicStore>>,
    burst: i64,
    period: i64,
    /// The skipped seconds.
    skipped: AtomicU64,
}

/// Its default store scans all keys at every check while it is three quarters full, so this uses its plain store.
fn locked(burst: i64, period: i64) -> Locked {
    let limiter = Mutex::new(RateLimiter::new(PeriodicStore::new()));
    Locked { limiter, burst, period, skipped: AtomicU64::new(0) }
}

impl Contestant for Crab {
    type Limiter = Locked;
    type Short = Locked;

    fn build(&self, allow: Allow) -> Locked {
        locked(i64::from(allow.units()), 3_600)
    }

    fn short(&self) -> Locked {
        locked(100, 60)
    }
}

impl Limiter for Locked {
    #[inline]
    #[allow(clippy::disallowed_methods, reason = "its users pass the machine's time")]
    fn check(&self, key: &Key) -> bool {
        let now = SystemTime::now() + Duration::from_secs(self.skipped.load(Ordering::Relaxed));
        let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = limiter.rate_limit(&key.text, self.burst, self.burst, self.period, 1, now);
        answer.is_ok_and(|(allowed, _)| allowed)
    }

    fn expire(&self) {
        self.skipped.fetch_add(3_600, Ordering::Relaxed);
    }
}
