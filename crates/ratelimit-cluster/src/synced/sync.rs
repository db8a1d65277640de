//! One synchronization: sends all pending usages to the shared store and applies its readings. Whatever happens, each usage is
//! then confirmed, pending again, or unsure.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use ratelimit_core::kit::OwnedName;
use ratelimit_core::meter::{MAX_UNITS, Meter};
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claim, Claims, MAX_CLAIMS, Mode, Receipt, Refund};
use ratelimit_core::{CounterStore, StoreError, Timestamp};

use super::request::{Request, Return, requests};
use super::{Synced, is_unreachable};
use crate::ledger::{Reading, Usage};
use crate::table::lock;
use crate::unanswered;

impl<S: CounterStore> Synced<S> {
    /// Sends all pending usages in batches, of which several are in flight at once. The usages of one meter are in the same
    /// batch, so they are sent in order.
    pub(super) async fn send_pending(&self, now: Timestamp) -> Result<(), StoreError> {
        let size = self.config.batch_size.max(1);
        let mut parts = self.resets.take_parts(&self.ledger, size);
        let is_after_failure = self.has_failed.swap(true, Ordering::Relaxed);
        for usages in &mut parts {
            let is_log = |usage: &Usage| matches!(usage.meter, Meter::Log(_));
            let has_left = |usage: &Usage| {
                is_log(usage) && !usage.units.is_reading() && usage.units.have_left(&usage.meter, now)
            };
            usages.retain(|usage| !has_left(usage));
            self.ledger.exclude_unsure_from_refunds(usages);
            if is_after_failure {
                self.ledger.limit(usages, now);
            }
        }
        let batches: VecDeque<_> = parts.into_iter().map(|usages| Batch::new(self, now, usages)).collect();
        let count = self.config.concurrent_batches.clamp(1, batches.len().max(1));
        let batches = Mutex::new(batches);
        let send_in_turn = || async {
            let mut result = Ok(());
            loop {
                let next = lock(&batches).pop_front();
                let Some(mut batch) = next else { return result };
                if let Err(error) = batch.send(size).await {
                    if is_unreachable(&error) {
                        // The other batches would only wait as long. Dropping them makes their usages pending again.
                        let rest = std::mem::take(&mut *lock(&batches));
                        drop(rest);
                    }
                    result = Err(error);
                }
            }
        };
        let result = join_all((0..count).map(|_| send_in_turn())).await.into_iter().fold(Ok(()), Result::and);
        self.has_failed.store(result.is_err(), Ordering::Relaxed);
        result
    }
}

/// Usages that were taken from the ledger. Those that were not sent return to the ledger when the batch is finished or
/// dropped.
struct Batch<'n, S> {
    node: &'n Synced<S>,
    now: Timestamp,
    usages: Vec<Usage>,
    /// The progress of each usage.
    stages: Vec<Stage>,
    /// The usages of logs that were sent, each with the number of readings before it.
    changed: Vec<(usize, usize)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not sent, or certainly not applied.
    Pending,
    /// Sent, and not answered.
    Sent,
    /// Applied by the store.
    Confirmed,
}

/// Readings of the store with the indices of their usages.
type Readings = Vec<(usize, Reading)>;

impl<'n, S> Batch<'n, S> {
    fn new(node: &'n Synced<S>, now: Timestamp, usages: Vec<Usage>) -> Self {
        let stages = vec![Stage::Pending; usages.len()];
        Self { node, now, usages, stages, changed: Vec::new() }
    }

    /// Makes usages pending again that were not sent, and marks those as unsure that may have been applied. Returns all.
    fn finish(&mut self) -> Vec<Usage> {
        let Synced { ledger, resets, unsure, .. } = self.node;
        let usages = std::mem::take(&mut self.usages);
        let stages = || usages.iter().zip(&self.stages);
        // The oldest last, because each goes before what is pending by then.
        for (usage, _) in stages().rev().filter(|(_, stage)| **stage == Stage::Pending) {
            resets.if_no_reset_is_pending(usage, |usage| ledger.put_back(vec![usage.clone()]));
        }
        for (usage, stage) in stages() {
            match stage {
                Stage::Pending => {}
                Stage::Sent => {
                    unsure.fetch_add(1, Ordering::Relaxed);
                    resets.if_no_reset_is_pending(usage, |usage| ledger.mark_unsure(usage));
                }
                Stage::Confirmed => resets.if_no_reset_is_pending(usage, |usage| ledger.confirm(usage)),
            }
        }
        usages
    }
}

impl<S: CounterStore> Batch<'_, S> {
    /// Sends all usages and applies the readings.
    async fn send(&mut self, size: usize) -> Result<(), StoreError> {
        let Synced { ledger, resets, .. } = self.node;
        let (mut readings, mut result) = (Vec::with_capacity(self.usages.len()), Ok(()));
        for is_last in [false, true] {
            let (mut claims, mut returns) = (Vec::new(), Vec::new());
            let waiting = if is_last { self.waiting() } else { HashSet::new() };
            for (nth, usage) in self.usages.iter().enumerate() {
                if is_sent_last(usage) == is_last && !waiting.contains(&usage.name) {
                    requests(ledger, nth, usage, self.now, &mut claims, &mut returns);
                    // Only the last usage of a meter needs a reading: earlier ones would be outdated.
                    let next = self.usages.get(nth + 1);
                    if next.is_some_and(|next| next.name == usage.name) {
                        claims.pop_if(|request| request.mode == Mode::Peek);
                    }
                }
            }
            combine(&mut returns, &self.usages);
            let refunded = self.refund(&returns, readings.len()).await;
            result = if refunded.is_err() { refunded } else { result };
            for chunk in claims.chunks(size) {
                if result.as_ref().is_err_and(is_unreachable) {
                    break; // the rest would only wait as long
                }
                let claimed = self.claim(chunk, &mut readings).await;
                result = if claimed.is_err() { claimed } else { result };
            }
            if result.as_ref().is_err_and(is_unreachable) {
                break;
            }
        }
        let usages = self.finish();
        for (nth, reading) in newest_readings(&usages, readings, &self.changed) {
            if resets.counts(&usages[nth], &reading) {
                resets.if_no_reset_is_pending(&usages[nth], |usage| ledger.apply_reading(usage, reading));
            }
        }
        result
    }

    /// Meters of which charges were not sent, or not applied. Refunds of a log may belong to them.
    fn waiting(&self) -> HashSet<OwnedName> {
        let pending = self.usages.iter().zip(&self.stages).filter(|(_, stage)| **stage == Stage::Pending);
        let charges = pending.map(|(usage, _)| usage).filter(|usage| !is_sent_last(usage));
        let charges = charges.filter(|usage| !usage.units.is_reading());
        charges.map(|usage| usage.name.clone()).collect()
    }

    async fn refund(&mut self, returns: &[Return], readings: usize) -> Result<(), StoreError> {
        let alike = returns.chunk_by(|one, other| one.is_as_of_now() == other.is_as_of_now());
        for chunk in alike.flat_map(calls) {
            chunk.iter().for_each(|returned| self.stages[returned.usages.clone()].fill(Stage::Sent));
            let logs = chunk.iter().filter(|returned| matches!(returned.scope.meter, Meter::Log(_)));
            self.changed.extend(logs.map(|returned| (returned.usages.start, readings)));
            let names: Vec<_> =
                chunk.iter().map(|returned| self.usages[returned.usages.start].name.id()).collect();
            let now = chunk.iter().map(|returned| returned.as_of(self.now)).min().unwrap_or(self.now);
            let refunds = chunk.iter().zip(&names).map(|(returned, id)| Refund {
                id: returned.scope.id(id),
                cost: returned.cost,
                meter: returned.scope.meter,
                receipt: Receipt::at(returned.receipt(now)),
            });
            let refunds: Vec<Refund<'_>> = refunds.collect();
            let result = self.node.shared.refund(now, &refunds).await;
            let stage = stage_after(&result);
            chunk.iter().for_each(|returned| self.stages[returned.usages.clone()].fill(stage));
            result?;
        }
        Ok(())
    }

    /// Sends some requests in one call of the store, and returns its last failure.
    async fn claim(&mut self, requests: &[Request], readings: &mut Readings) -> Result<(), StoreError> {
        let names: Vec<_> = requests.iter().map(|request| self.usages[request.usage].name.id()).collect();
        let claims = requests.iter().zip(&names).map(|(request, id)| [request.scope.claim(id, request.cost)]);
        let claims: Vec<[Claim<'_>; 1]> = claims.collect();
        let slices = claims
            .iter()
            .zip(requests)
            .filter_map(|(claim, request)| Claims::new(request.at, request.mode, claim).ok());
        let slices: Vec<Claims<'_>> = slices.collect(); // all are valid: each has one claim
        for request in requests.iter().filter(|request| request.charges()) {
            self.stages[request.usage] = Stage::Sent;
        }
        let mut answers = self.node.shared.claim_many(&slices).await.into_iter();
        let mut result = Ok(());
        for request in requests {
            let answer = answers.next().unwrap_or_else(|| Err(unanswered("synced")));
            if request.charges() {
                self.stages[request.usage] = stage_after(&answer);
                if let Meter::Log(_) = request.scope.meter {
                    self.changed.push((request.usage, readings.len()));
                }
            }
            match answer.map(|answer: Answer| answer.verdicts.first().copied()) {
                Ok(Some(verdict)) => match request.reading(&verdict) {
                    Some(reading) => readings.push((request.usage, reading)),
                    None => {
                        let add = |usage: &Usage| self.node.ledger.add_sent(usage, verdict.receipt.instant());
                        self.node.resets.if_no_reset_is_pending(&self.usages[request.usage], add);
                    }
                },
                Ok(None) => {}
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

impl<S> Drop for Batch<'_, S> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// The refunds of each call. All of one usage are in one call, because a usage is sent again if its call fails.
fn calls(mut returns: &[Return]) -> impl Iterator<Item = &[Return]> {
    std::iter::from_fn(move || {
        let mut size = returns.len().min(MAX_CLAIMS);
        while size < returns.len() && returns[size - 1].usages == returns[size].usages {
            size -= 1;
        }
        let (call, later) = returns.split_at(size);
        returns = later;
        (!call.is_empty()).then_some(call)
    })
}

/// Whether a usage is sent after the others: a log is refunded after it was charged, because the store then knows the units,
/// and this node knows their instant there.
fn is_sent_last(usage: &Usage) -> bool {
    matches!(usage.meter, Meter::Log(_)) && usage.units.is_refund()
}

/// Combines refunds of units that the store has charged at once. Those that are as of now come last.
fn combine(returns: &mut Vec<Return>, usages: &[Usage]) {
    returns.sort_by_key(Return::is_as_of_now);
    returns.dedup_by(|later, first| {
        let name = |returned: &Return| &usages[returned.usages.start].name;
        let is_one = first.is_of_same_charge(later)
            && first.usages.end == later.usages.start
            && name(first) == name(later);
        if is_one {
            first.usages.end = later.usages.end;
            first.cost = first.cost.saturating_add(later.cost).min(MAX_UNITS);
        }
        is_one
    });
}

/// Keeps only the last reading of each meter or segment. An earlier reading lacks the units that were sent after it, and
/// claims made in between would be decided by it.
///
/// A log is never decided by a reading from before its last change.
fn newest_readings(usages: &[Usage], readings: Readings, changed: &[(usize, usize)]) -> Readings {
    let first: HashMap<_, _> = changed.iter().map(|(nth, first)| (usages[*nth].name.id(), *first)).collect();
    let mut seen = HashSet::new();
    let mut last: Readings = readings
        .into_iter()
        .enumerate()
        .rev()
        .filter(|(place, (nth, _))| first.get(&usages[*nth].name.id()).is_none_or(|first| place >= first))
        .map(|(_, found)| found)
        .filter(|(nth, reading)| {
            let place = match reading {
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
        Ok(_) => Stage::Confirmed,
        Err(error) if error.applied() == Applied::No => Stage::Pending,
        Err(_) => Stage::Sent,
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicUsize};
    use std::task::Poll;
    use std::time::Duration;

    use futures::executor::block_on;
    use ratelimit_core::store::{MeterId, Mode, Promises};
    use ratelimit_core::{ErrorKind, Limit, SyncCounterStore as _};
    use ratelimit_memory::MemoryStore;

    use super::*;
    use crate::SyncConfig;

    const START: Timestamp = Timestamp::from_secs(1_800_000_000);
    const KEYS: u16 = 1_500;

    /// A slow store that records how many batches are in flight at once, and the order of the charges.
    #[derive(Debug, Default)]
    struct Slow {
        store: MemoryStore,
        fails: AtomicBool,
        calls: AtomicUsize,
        in_flight: AtomicUsize,
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
            let call = self.calls.fetch_add(1, Ordering::SeqCst);
            self.most.fetch_max(self.in_flight.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            // Some take longer than others.
            let mut left = call % 3 + 2;
            poll_fn(|context| {
                left -= 1;
                context.waker().wake_by_ref();
                if left == 0 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.in_flight.fetch_sub(1, Ordering::SeqCst);
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
            assert!(node.claim_one_now(now, Mode::Charge, &claim.id, claim.cost, &claim.meter).unwrap().0);
        }
        (shared, node)
    }

    #[test]
    fn several_batches_are_in_flight_and_each_meter_is_sent_in_order() {
        for at_once in [1, 3] {
            let (shared, node) = charged(SyncConfig::default().concurrent_batches(at_once));
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
    fn an_unreachable_store_ends_the_run_and_all_is_sent_the_next_time() {
        let (shared, node) = charged(SyncConfig::default().concurrent_batches(3));
        let now = START + Duration::from_secs(60);
        shared.fails.store(true, Ordering::SeqCst);
        assert!(block_on(node.sync(now)).is_err());
        assert_eq!(shared.calls.load(Ordering::SeqCst), 3);
        shared.fails.store(false, Ordering::SeqCst);
        block_on(node.sync(now)).unwrap();
        assert_eq!((lock(&shared.charges).len(), node.unsure()), (2 * usize::from(KEYS), 0));
    }
}
