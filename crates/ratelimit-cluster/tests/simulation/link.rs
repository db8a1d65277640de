//! The way from a node to the shared store: slow, cut at times, losing answers and delivering claims twice.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use ratelimit_core::store::{Answer, Claims, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, ErrorKind, StoreError, Timestamp};
use ratelimit_memory::MemoryStore;

use crate::random::Random;

/// A node's way to the store.
#[derive(Clone, Debug)]
pub(crate) struct Link(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    shared: Arc<MemoryStore>,
    random: Mutex<Random>,
    is_cut: AtomicBool,
    is_calm: AtomicBool,
    trips: AtomicU64,
}

impl Link {
    pub(crate) fn new(shared: Arc<MemoryStore>, random: Random) -> Self {
        let (is_cut, is_calm, trips) = (AtomicBool::new(false), AtomicBool::new(false), AtomicU64::new(0));
        Self(Arc::new(Parts { shared, random: Mutex::new(random), is_cut, is_calm, trips }))
    }

    /// From now on it is slow, and does nothing worse.
    pub(crate) fn calm(&self) {
        self.0.is_calm.store(true, Ordering::SeqCst);
    }

    /// Whether something goes wrong.
    fn mishap(&self, permille: u64) -> bool {
        !self.0.is_calm.load(Ordering::SeqCst) && self.chance(permille)
    }

    pub(crate) fn cut(&self, cut: bool) {
        self.0.is_cut.store(cut, Ordering::SeqCst);
    }

    pub(crate) fn trips(&self) -> u64 {
        self.0.trips.load(Ordering::SeqCst)
    }

    fn chance(&self, permille: u64) -> bool {
        self.0.random.lock().unwrap().chance(permille)
    }

    /// Some polls pass; meanwhile others go on and the clock moves.
    async fn delay(&self) {
        let mut left = if self.chance(500) { 0 } else { self.0.random.lock().unwrap().below(6) };
        poll_fn(|_| {
            if left == 0 {
                return Poll::Ready(());
            }
            left -= 1;
            Poll::Pending
        })
        .await;
    }

    async fn there(&self) -> Result<(), StoreError> {
        self.0.trips.fetch_add(1, Ordering::SeqCst);
        self.delay().await;
        if self.0.is_cut.load(Ordering::SeqCst) || self.mishap(5) {
            return Err(StoreError::new("link", ErrorKind::Unreachable, "it is cut"));
        }
        Ok(())
    }

    async fn back(&self) -> Result<(), StoreError> {
        self.delay().await;
        if self.0.is_cut.load(Ordering::SeqCst) || self.mishap(10) {
            return Err(StoreError::new("link", ErrorKind::Timeout, "the answer is lost"));
        }
        Ok(())
    }
}

impl CounterStore for Link {
    fn promises(&self) -> Promises {
        self.0.shared.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        self.there().await?;
        let answer = self.0.shared.claim(claims).await?;
        if claims.mode() == Mode::Charge && self.mishap(10) {
            self.0.shared.claim(claims).await?; // the same request once more
        }
        self.back().await?;
        Ok(answer)
    }

    /// One trip for all of them.
    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        let fail = |error: &StoreError| StoreError::new("link", error.kind(), "in one trip with others");
        if let Err(error) = self.there().await {
            return slices.iter().map(|_| Err(fail(&error))).collect();
        }
        let mut answers = Vec::new();
        for claims in slices {
            let answer = self.0.shared.claim(*claims).await;
            if claims.mode() == Mode::Force && self.mishap(10) {
                let _ = self.0.shared.claim(*claims).await; // the same request once more
            }
            answers.push(answer);
        }
        match self.back().await {
            Ok(()) => answers,
            Err(error) => slices.iter().map(|_| Err(fail(&error))).collect(),
        }
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        self.there().await?;
        self.0.shared.refund(now, refunds).await?;
        self.back().await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        self.there().await?;
        self.0.shared.reset(claims).await?;
        self.back().await
    }
}
