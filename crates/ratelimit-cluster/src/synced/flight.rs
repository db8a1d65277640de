//! What is being told: whatever happens on the way, each usage is then told, to be told, or unsure.

use std::collections::{HashSet, VecDeque};
use std::future::poll_fn;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;

use ratelimit_core::{
    Answer, Applied, Claim, Claims, CounterStore, ErrorKind, MAX_CLAIMS, Refund, StoreError, Timestamp,
};

use super::Synced;
use super::ask::{Ask, Return, asks};
use super::resets::Resets;
use crate::ledger::{Ledger, Reading, Usage};
use crate::names::lock;

/// Tells all that is pending, in several flights, of which some are under way at once. What was charged to one meter goes with
/// one of them, and so in its order.
pub(super) async fn tell_all<S: CounterStore>(node: &Synced<S>, now: Timestamp) -> Result<(), StoreError> {
    let batch = node.config.batch.max(1);
    let parts = node.resets.take_parts(&node.ledger, batch).into_iter();
    let flights: VecDeque<_> = parts.map(|usages| Flight::new(node, usages)).collect();
    let count = node.config.at_once.clamp(1, flights.len().max(1));
    let flights = Mutex::new(flights);
    let tell_some = || async {
        let mut done = Ok(());
        loop {
            let next = lock(&flights).pop_front();
            let Some(mut flight) = next else { return done };
            if let Err(error) = flight.tell(&node.shared, batch, now).await {
                if is_out_of_reach(&error) {
                    // The rest would only wait for the store as long. They land where they are.
                    let rest = std::mem::take(&mut *lock(&flights));
                    drop(rest);
                }
                done = Err(error);
            }
        }
    };
    together((0..count).map(|_| tell_some())).await.into_iter().fold(Ok(()), Result::and)
}

/// Does all of them at once; gives what came of each.
async fn together<F: Future>(all: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = all.map(|one| (Box::pin(one), None)).collect();
    poll_fn(|context| {
        for (one, done) in all.iter_mut().filter(|(_, done)| done.is_none()) {
            if let Poll::Ready(output) = one.as_mut().poll(context) {
                *done = Some(output);
            }
        }
        if all.iter().all(|(_, done)| done.is_some()) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    all.into_iter().filter_map(|(_, done)| done).collect()
}

/// Usages that were taken from the ledger. Those that were not told go back when this lands, or is dropped.
struct Flight<'l> {
    ledger: &'l Ledger,
    resets: &'l Resets,
    /// How many were told of which it is not known whether they were taken.
    unsure: &'l AtomicU64,
    usages: Vec<Usage>,
    /// How far each has come.
    stages: Vec<Stage>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not sent, or surely not taken.
    Kept,
    /// Sent, and not answered.
    Sent,
    Told,
}

/// What the store has said, and of which usage.
type Readings = Vec<(usize, Reading)>;

impl<'l> Flight<'l> {
    fn new<S>(node: &'l Synced<S>, usages: Vec<Usage>) -> Self {
        let stages = vec![Stage::Kept; usages.len()];
        Self { ledger: &node.ledger, resets: &node.resets, unsure: &node.unsure, usages, stages }
    }

    /// Tells all, and settles what the store says.
    async fn tell<S: CounterStore>(
        &mut self,
        shared: &S,
        batch: usize,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let (mut claims, mut returns) = (Vec::new(), Vec::new());
        for (nth, usage) in self.usages.iter().enumerate() {
            asks(self.ledger, nth, usage, now, &mut claims, &mut returns);
        }
        let mut readings = Vec::with_capacity(claims.len());
        let mut done = self.give_back(shared, &returns, now).await;
        for some in claims.chunks(batch) {
            if done.as_ref().is_err_and(is_out_of_reach) {
                break; // the rest would only wait for the store as long
            }
            let claimed = self.claim(shared, some, &mut readings).await;
            done = if claimed.is_err() { claimed } else { done };
        }
        let told = self.land();
        for (nth, reading) in last_words(&told, readings) {
            if self.resets.counts(&told[nth], &reading) {
                self.resets.unless_reset(&told[nth], |usage| self.ledger.settle(usage, reading));
            }
        }
        done
    }

    async fn give_back<S: CounterStore>(
        &mut self,
        shared: &S,
        returns: &[Return],
        now: Timestamp,
    ) -> Result<(), StoreError> {
        for some in returns.chunks(MAX_CLAIMS) {
            some.iter().for_each(|given| self.stages[given.usage] = Stage::Sent);
            let names: Vec<_> = some.iter().map(|given| self.usages[given.usage].name.id()).collect();
            let refunds = some.iter().zip(&names).map(|(given, id)| Refund {
                id: given.scope.id(id),
                cost: given.cost,
                meter: given.scope.meter,
                receipt: given.receipt,
            });
            let refunds: Vec<Refund<'_>> = refunds.collect();
            let done = shared.refund(now, &refunds).await;
            let stage = stage_after(&done);
            for given in some {
                self.stages[given.usage] = stage;
                if stage == Stage::Told {
                    let untell = |usage: &Usage| self.ledger.untell(usage, given.receipt, given.cost);
                    self.resets.unless_reset(&self.usages[given.usage], untell);
                }
            }
            done?;
        }
        Ok(())
    }

    /// Puts some claims to the store. Gives the failure if there is one.
    async fn claim<S: CounterStore>(
        &mut self,
        shared: &S,
        asks: &[Ask],
        readings: &mut Readings,
    ) -> Result<(), StoreError> {
        let names: Vec<_> = asks.iter().map(|ask| self.usages[ask.usage].name.id()).collect();
        let claims = asks.iter().zip(&names).map(|(ask, id)| [ask.scope.claim(id, ask.cost)]);
        let claims: Vec<[Claim<'_>; 1]> = claims.collect();
        let slices =
            claims.iter().zip(asks).filter_map(|(claim, ask)| Claims::new(ask.at, ask.mode, claim).ok());
        let slices: Vec<Claims<'_>> = slices.collect(); // none is refused: each has one claim
        for ask in asks.iter().filter(|ask| ask.charges()) {
            self.stages[ask.usage] = Stage::Sent;
        }
        let mut answers = shared.claim_many(&slices).await.into_iter();
        let mut done = Ok(());
        for ask in asks {
            let answer = answers.next().unwrap_or_else(|| Err(unanswered()));
            if ask.charges() {
                self.stages[ask.usage] = stage_after(&answer);
            }
            match answer.map(|answer: Answer| answer.verdicts.first().map(|verdict| ask.reading(verdict))) {
                Ok(reading) => readings.extend(reading.map(|reading| (ask.usage, reading))),
                Err(error) => done = Err(error),
            }
        }
        done
    }

    /// Leaves what was not told to be told, and what may have been told as unsure; gives all.
    fn land(&mut self) -> Vec<Usage> {
        let usages = std::mem::take(&mut self.usages);
        for (usage, stage) in usages.iter().zip(&self.stages) {
            match stage {
                Stage::Kept => {
                    self.resets.unless_reset(usage, |usage| self.ledger.put_back([usage.clone()]));
                }
                Stage::Sent => {
                    self.unsure.fetch_add(1, Ordering::Relaxed);
                    self.resets.unless_reset(usage, |usage| self.ledger.unsure(usage));
                }
                Stage::Told => {}
            }
        }
        usages
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.land();
    }
}

/// Of what was said of one meter, or one segment of it, only the last: what came before does not contain what was told after
/// it, and whoever makes a claim in between would be decided on that.
fn last_words(usages: &[Usage], readings: Readings) -> Readings {
    let mut seen = HashSet::new();
    let mut last: Readings = readings
        .into_iter()
        .rev()
        .filter(|(nth, reading)| {
            let place = match reading {
                Reading::Told { .. } => return true, // each is a part of its own
                Reading::Window { segment, .. } => Some(*segment),
                Reading::Bucket(_) | Reading::Log { .. } => None,
            };
            seen.insert((usages[*nth].name.id(), place))
        })
        .collect();
    last.reverse();
    last
}

fn stage_after<T>(answer: &Result<T, StoreError>) -> Stage {
    match answer {
        Ok(_) => Stage::Told,
        Err(error) if error.applied() == Applied::No => Stage::Kept,
        Err(_) => Stage::Sent,
    }
}

pub(super) fn is_out_of_reach(error: &StoreError) -> bool {
    matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::Timeout)
}

#[cold]
fn unanswered() -> StoreError {
    let message = "the store gave fewer answers than it was asked for";
    StoreError::new("synced", ErrorKind::Server, message).maybe_applied()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::time::Duration;

    use futures::executor::block_on;
    use ratelimit_core::{Limit, MeterId, Mode, Promises, SyncCounterStore as _};
    use ratelimit_memory::MemoryStore;

    use super::*;
    use crate::synced::SyncConfig;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);
    const KEYS: u16 = 1_500;

    /// A store that takes a while, and notes how many batches are under way at once, and which charges came, in their order.
    #[derive(Debug, Default)]
    struct Slow {
        store: MemoryStore,
        fails: AtomicBool,
        trips: AtomicUsize,
        under_way: AtomicUsize,
        most: AtomicUsize,
        charges: Mutex<Vec<(Vec<u8>, String)>>,
    }

    impl CounterStore for Slow {
        fn promises(&self) -> Promises {
            self.store.promises()
        }

        async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
            self.store.claim(claims).await
        }

        async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
            let trip = self.trips.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(self.under_way.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Some take longer than others.
            let mut left = trip % 3 + 2;
            poll_fn(|context| {
                left -= 1;
                context.waker().wake_by_ref();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.under_way.fetch_sub(1, Ordering::SeqCst);
            if self.fails.load(Ordering::SeqCst) {
                let fail = |_| Err(StoreError::new("slow", ErrorKind::Unreachable, "on purpose"));
                return slices.iter().map(fail).collect();
            }
            let charges = slices.iter().filter(|slice| slice[0].cost > 0);
            lock(&self.charges)
                .extend(charges.map(|slice| (slice[0].id.key.to_vec(), slice[0].id.scope.to_owned())));
            self.store.claim_many(slices).await
        }

        async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
            self.store.refund(now, refunds).await
        }

        async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
            self.store.reset(claims).await
        }
    }

    /// A node that was charged in two segments of each key.
    fn charged(config: SyncConfig) -> (Arc<Slow>, Synced<Arc<Slow>>) {
        let shared = Arc::new(Slow::default());
        let node = Synced::with_config(shared.clone(), config);
        let limit: Limit = "9/min fixed".parse().unwrap();
        for (key, minute) in (0..KEYS).flat_map(|key| [(key, 0), (key, 1)]) {
            let key = key.to_be_bytes();
            let id = MeterId { namespace: "", scope: limit.scope(), key: &key };
            let claim = Claim { id, cost: 1, meter: limit.meter_for(&key) };
            let now = START + Duration::from_secs(60 * minute);
            assert!(
                node.claim_one_now(now, Mode::Charge, &claim.id, claim.cost, &claim.meter, |decided| decided)
                    .unwrap()
                    .0
            );
        }
        (shared, node)
    }

    #[test]
    fn several_are_told_at_once_and_each_meter_in_its_order() {
        for at_once in [1, 3] {
            let (shared, node) = charged(SyncConfig { at_once, ..SyncConfig::default() });
            let now = START + Duration::from_secs(60);
            block_on(node.sync(now)).unwrap();
            assert_eq!(shared.most.load(Ordering::SeqCst), at_once);
            let charges = lock(&shared.charges);
            assert_eq!(charges.len(), 2 * usize::from(KEYS));
            for key in (0..KEYS).map(u16::to_be_bytes) {
                let of_key = charges.iter().filter(|(of, _)| of == &key);
                let segments: Vec<_> = of_key.map(|(_, scope)| scope).collect();
                assert!(matches!(segments[..], [first, second] if first < second), "{key:?} {segments:?}");
            }
        }
    }

    #[test]
    fn no_more_are_begun_once_the_store_is_out_of_reach_and_all_are_told_the_next_time() {
        let (shared, node) = charged(SyncConfig { at_once: 3, ..SyncConfig::default() });
        let now = START + Duration::from_secs(60);
        shared.fails.store(true, Ordering::SeqCst);
        assert!(block_on(node.sync(now)).is_err());
        assert_eq!(shared.trips.load(Ordering::SeqCst), 3);
        shared.fails.store(false, Ordering::SeqCst);
        block_on(node.sync(now)).unwrap();
        assert_eq!((lock(&shared.charges).len(), node.unsure()), (2 * usize::from(KEYS), 0));
    }
}
