//! A store that may be contended passes the cases with concurrent calls, although any of them may return a contention error.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use ratelimit_conformance::broken_stores::{Call, Flaw, TableStore};
use ratelimit_conformance::{BoxError, Outcome, Space, Subject, Suite};
use ratelimit_core::{
    Answer, Claims, Clock, CounterStore, Decisions, DynCounterStore, ErrorKind, Promises, Refund, StoreError,
    SystemClock, Time, Timestamp,
};
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

/// Makes one call at a time. Any other call fails.
#[derive(Debug)]
struct Contending<F: Flaw> {
    store: TableStore<F>,
    busy: AtomicBool,
    /// The number of calls that have failed.
    failed: Arc<AtomicUsize>,
}

impl<F: Flaw> Contending<F> {
    async fn alone<T>(&self, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
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
        self.alone(self.store.claim(claims)).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.alone(self.store.refund(now, refunds)).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.alone(self.store.reset(claims)).await
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
    let cases = ["atomic/", "storms/", "deadlocks/", "refunds/next-to", "waiting/acquire-many", "handles/"];
    passes::<Conservative>(&cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contention_errors_are_excused_at_the_servers_time() {
    passes::<ConservativeServer>(&["server-time/exact-burst"]).await;
}
