//! A store that may be contended passes the cases with concurrent calls, although any of them may return a contention error.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use ratelimit_broken_stores::{Call, Flaw, TableStore};
use ratelimit_conformance::{BoxError, Outcome, Space, Subject, Suite};
use ratelimit_core::store::{Answer, Claims, Decisions, MeterId, Promises, Refund, Time};
use ratelimit_core::{Clock, CounterStore, DynCounterStore, ErrorKind, StoreError, SystemClock, Timestamp};
use tokio::task::yield_now;

/// A correct store that may refuse under contention.
#[derive(Debug, Default)]
struct Conservative;

impl Flaw for Conservative {
    const DECISIONS: Decisions = Decisions::Conservative;
}

/// The same at its server's time.
#[derive(Debug, Default)]
struct ConservativeServer;

impl Flaw for ConservativeServer {
    const DECISIONS: Decisions = Decisions::Conservative;
    const TIME: Time = Time::Server;

    fn instant(&self, _: Call, _: Timestamp) -> Timestamp {
        SystemClock::new().now()
    }
}

/// The same that may refuse only calls with several keys.
#[derive(Debug, Default)]
struct PerKey;

impl Flaw for PerKey {
    const DECISIONS: Decisions = Decisions::ExactPerKey;
}

/// Makes one call at a time, or one with several keys if calls with one are exact. Any other call fails.
#[derive(Debug)]
struct Contending<F: Flaw> {
    store: TableStore<F>,
    busy: AtomicBool,
    /// The number of calls that have failed.
    failed: Arc<AtomicUsize>,
}

impl<F: Flaw> Contending<F> {
    async fn alone<T>(
        &self,
        ids: impl IntoIterator<Item = MeterId<'_>>,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let keys: HashSet<&[u8]> = ids.into_iter().map(|id| id.key).collect();
        if F::DECISIONS == Decisions::ExactPerKey && keys.len() <= 1 {
            return call.await;
        }
        if self.busy.swap(true, Ordering::SeqCst) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(StoreError::new("contending", ErrorKind::Contended, "another call is in progress"));
        }
        yield_now().await;
        let result = call.await;
        self.busy.store(false, Ordering::SeqCst);
        result
    }
}

impl<F: Flaw> CounterStore for Contending<F> {
    fn promises(&self) -> Promises {
        self.store.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.alone(claims.iter().map(|claim| claim.id), self.store.claim(claims)).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.alone(refunds.iter().map(|refund| refund.id), self.store.refund(now, refunds)).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.alone(claims.iter().map(|claim| claim.id), self.store.reset(claims)).await
    }
}

struct OneStore<F: Flaw> {
    failed: Arc<AtomicUsize>,
    store: Arc<Contending<F>>,
}

impl<F: Flaw> OneStore<F> {
    fn new(failed: Arc<AtomicUsize>) -> Self {
        let busy = AtomicBool::new(false);
        let store = Arc::new(Contending::<F> { store: TableStore::default(), busy, failed: failed.clone() });
        Self { failed, store }
    }
}

#[async_trait]
impl<F: Flaw> Subject for OneStore<F> {
    fn name(&self) -> &str {
        "contending"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(Arc::new(Self::new(self.failed.clone())))
    }
}

#[async_trait]
impl<F: Flaw> Space for OneStore<F> {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        Ok(self.store.clone())
    }
}

const CONCURRENT: [&str; 7] = [
    "atomic/",
    "field-bugs/",
    "storms/",
    "deadlocks/",
    "refunds/next-to",
    "waiting/acquire-many",
    "handles/",
];

async fn passes<F: Flaw>(filters: &[&str]) {
    let failed = Arc::new(AtomicUsize::new(0));
    let report = Suite::default()
        .filters(filters.iter().copied())
        .run(&[Arc::new(OneStore::<F>::new(failed.clone()))])
        .await;
    let failed_cases: Vec<_> =
        report.cases.iter().filter(|case| matches!(case.outcome, Outcome::Failed(_))).collect();
    assert!(failed_cases.is_empty(), "{failed_cases:#?}");
    assert!(report.totals().passed > 0);
    assert!(failed.load(Ordering::SeqCst) > 0, "no call was contended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contention_errors_are_excused_in_every_case_with_concurrent_calls() {
    passes::<Conservative>(&CONCURRENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contention_errors_of_calls_with_several_keys_are_excused_if_one_key_is_exact() {
    passes::<PerKey>(&CONCURRENT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contention_errors_are_excused_at_the_servers_time() {
    passes::<ConservativeServer>(&["server-time/exact-burst"]).await;
}
