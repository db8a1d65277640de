//! The crate `governor`.

use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock, FakeRelativeClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use super::contestant::{Allow, Contestant, Limiter};
use crate::keys::Key;

type Keyed<K, S, C> = RateLimiter<K, DashMapStateStore<K, S>, C, NoOpMiddleware<<C as Clock>::Instant>>;

/// With strings as keys, hashed by `S`.
#[derive(Default)]
pub(crate) struct Strings<S>(PhantomData<S>);

/// With numbers as keys.
pub(crate) struct Numbers;

fn quota(burst: u32, period: Duration) -> Quota {
    let burst = NonZeroU32::new(burst).unwrap_or(NonZeroU32::MIN);
    Quota::with_period(period / burst.get())
        .map_or(Quota::per_second(burst), |quota| quota.allow_burst(burst))
}

fn lasting(allow: Allow) -> Quota {
    quota(allow.units(), Duration::from_secs(3_600))
}

fn short() -> Quota {
    quota(100, Duration::from_secs(60))
}

impl<S: BuildHasher + Clone + Default + Send + Sync + 'static> Contestant for Strings<S> {
    type Limiter = Keyed<String, S, DefaultClock>;
    type Short = Keyed<String, S, FakeRelativeClock>;

    fn build(&self, allow: Allow) -> Self::Limiter {
        RateLimiter::dashmap_with_clock_and_hasher(lasting(allow), DefaultClock::default(), S::default())
    }

    fn short(&self) -> Self::Short {
        RateLimiter::dashmap_with_clock_and_hasher(short(), FakeRelativeClock::default(), S::default())
    }
}

impl Contestant for Numbers {
    type Limiter = Keyed<u64, std::hash::RandomState, DefaultClock>;
    type Short = Keyed<u64, std::hash::RandomState, FakeRelativeClock>;

    fn build(&self, allow: Allow) -> Self::Limiter {
        RateLimiter::dashmap_with_clock(lasting(allow), DefaultClock::default())
    }

    fn short(&self) -> Self::Short {
        RateLimiter::dashmap_with_clock(short(), FakeRelativeClock::default())
    }
}

macro_rules! limiter {
    ($key:ty, $field:ident, $clock:ty $(, $period:expr)?) => {
        impl<S: BuildHasher + Clone + Send + Sync> Limiter for Keyed<$key, S, $clock> {
            #[inline]
            fn check(&self, key: &Key) -> bool {
                self.check_key(&key.$field).is_ok()
            }

            $(
                fn expire(&self) {
                    self.clock().advance($period);
                }
            )?

            /// The cleanup that its users have to run.
            fn clean(&self) {
                self.retain_recent();
            }
        }
    };
}

limiter!(String, text, DefaultClock);
limiter!(u64, number, DefaultClock);
limiter!(String, text, FakeRelativeClock, Duration::from_secs(3_600));
limiter!(u64, number, FakeRelativeClock, Duration::from_secs(3_600));
