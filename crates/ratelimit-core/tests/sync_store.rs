//! A synchronous store that has just the methods that an implementer has to write.

mod common;

use std::time::Duration;

use common::MapStore;
use futures::executor::block_on;
use ratelimit_core::store::{Answer, Claims, Decisions, Promises, Refund, Time};
use ratelimit_core::{
    CounterStore, Limit, ManualClock, RateLimiter, StoreError, SyncCounterStore, Timestamp,
};

/// How much the store's own clock is ahead of the callers'.
const AHEAD: Duration = Duration::from_secs(3_600);

#[derive(Debug)]
struct Store {
    inner: MapStore,
    time: Time,
}

impl Store {
    fn at_its_time<'c>(&self, claims: Claims<'c>) -> Claims<'c> {
        if self.time == Time::Server { claims.at(claims.now() + AHEAD) } else { claims }
    }
}

impl CounterStore for Store {
    fn promises(&self) -> Promises {
        Promises::new(Decisions::Exact, self.time)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.inner.claim(self.at_its_time(claims)).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.inner.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.inner.reset(claims).await
    }
}

impl SyncCounterStore for Store {
    fn reset_now(&self, claims: Claims<'_>) {
        block_on(self.reset(claims)).unwrap();
    }
}

#[test]
fn sync_and_async_calls_decide_alike() {
    for time in [Time::Caller, Time::Server] {
        let limiter = || {
            let clock = ManualClock::at(Timestamp::from_secs(1_000_000));
            let store = Store { inner: MapStore::default(), time };
            RateLimiter::new(store, "2/min burst 2".parse::<Limit>().unwrap()).with_clock(clock)
        };
        let (at_once, otherwise) = (limiter(), limiter());
        for nth in 0..4 {
            let decision = at_once.check_now("k").unwrap();
            assert_eq!(decision, block_on(otherwise.check("k")).unwrap(), "{time:?} {nth}");
            assert_eq!(decision.allowed(), nth < 2);
            assert!(
                decision.retry_after().is_none_or(|wait| wait <= Duration::from_secs(30)),
                "{decision:?}"
            );
        }
        let decision = at_once.charge_now("other").unwrap();
        at_once.refund_now(&decision);
        at_once.reset_now("k").unwrap();
        assert!(
            at_once.peek_now("other").unwrap().remaining() == 2 && at_once.check_now("k").unwrap().allowed()
        );
    }
}
