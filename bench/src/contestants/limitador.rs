//! The crate `limitador`, in memory.

use std::collections::HashMap;
use std::time::Duration;

use limitador::RateLimiter;
use limitador::limit::{Context, Limit, Namespace};

use super::contestant::{Allow, Contestant, Limiter};
use crate::keys::Key;

pub(crate) struct Limitador;

pub(crate) struct Counting {
    limiter: RateLimiter,
    namespace: Namespace,
}

/// More keys than in any family, so that none is evicted.
const CACHE: u64 = 20_000_000;

/// Short enough to wait for.
const SHORT: u64 = 4;

/// One limit for each value of `key`.
pub(crate) fn limit(units: u64, seconds: u64) -> Limit {
    let variable = "key".to_owned().try_into().unwrap_or_else(|error| panic!("limitador: {error}"));
    Limit::new("bench", units, seconds, [], [variable])
}

pub(crate) fn context(key: &str) -> Context<'static> {
    HashMap::from([("key".to_owned(), key.to_owned())]).into()
}

fn counting(units: u64, seconds: u64) -> Counting {
    let limiter = RateLimiter::new(CACHE);
    limiter.add_limit(limit(units, seconds));
    Counting { limiter, namespace: "bench".into() }
}

impl Contestant for Limitador {
    type Limiter = Counting;
    type Short = Counting;

    fn build(&self, allow: Allow) -> Counting {
        counting(u64::from(allow.units()), 3_600)
    }

    fn short(&self) -> Counting {
        counting(100, SHORT)
    }

    fn share(&self) -> u64 {
        10
    }
}

impl Limiter for Counting {
    fn check(&self, key: &Key) -> bool {
        let answer = self.limiter.check_rate_limited_and_update(&self.namespace, &context(&key.text), 1);
        answer.is_ok_and(|answer| !answer.limited)
    }

    /// It has no manual clock.
    fn expire(&self) {
        std::thread::sleep(Duration::from_secs(SHORT + 1));
    }
}
