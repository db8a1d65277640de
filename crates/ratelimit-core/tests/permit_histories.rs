//! Permits under random histories: holders work, release, drop, lose the store for a while; at most as many hold as may.
//!
//! Time is tokio's paused one, for the timers and for the limiter, so a minute takes no time and a seed repeats its history.
#![cfg(feature = "tokio")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::{AWAY, MapStore, Mood, Random, Unsteady};
use ratelimit_core::clock::TokioClock;
use ratelimit_core::{Acquire, Limit, Limits, Permit, RateLimiter, Timestamp};
use tokio::time::sleep;

const MOST: usize = 3;
const LEASE: Duration = Duration::from_secs(6);
/// A permit whose renewals fail looks again after this time, so it notices this late that its lease has ended.
const NOTICED: Duration = Duration::from_millis(250);

/// A holder in a process of its own, with its own connection to the store.
struct Holder {
    limiter: Arc<RateLimiter<Unsteady, TokioClock>>,
    permit: std::sync::Mutex<Option<Permit>>,
    was_lost: AtomicBool,
}

impl Holder {
    fn holds(&self) -> bool {
        self.permit.lock().unwrap().as_ref().is_some_and(|permit| !permit.is_lost())
    }

    async fn live(&self, mut random: Random, admitted: &AtomicUsize) {
        let millis = |random: &mut Random, most| Duration::from_millis(random.below(most) as u64);
        for _ in 0..4 {
            sleep(millis(&mut random, 2_000)).await;
            let options = Acquire::default().timeout(millis(&mut random, 60_000));
            let Ok(decision) = self.limiter.acquire_with("k", options).await else { continue };
            admitted.fetch_add(1, Ordering::SeqCst);
            *self.permit.lock().unwrap() = Some(self.limiter.hold(decision));
            sleep(millis(&mut random, 5_000)).await;
            if random.below(3) == 0 {
                // For less than a lease, which loses nothing, or for longer.
                self.limiter.store().set(AWAY);
                sleep(millis(&mut random, 15_000)).await;
                self.limiter.store().set(Mood::Answers);
                sleep(millis(&mut random, 5_000)).await;
            }
            let permit = self.permit.lock().unwrap().take().unwrap();
            self.was_lost.fetch_or(permit.is_lost(), Ordering::SeqCst);
            if random.below(2) == 0 {
                permit.release().await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn at_most_as_many_hold_as_may() {
    let (mut lost, mut admitted) = (0, 0);
    for seed in 1..=40 {
        let shared = Arc::new(MapStore::default());
        let limit: Limit = format!("{MOST} at once lease {}s", LEASE.as_secs()).parse().unwrap();
        let clock = TokioClock::starting_at(Timestamp::from_secs(1_000));
        let holder = |_| {
            let store = Unsteady::of(shared.clone());
            let limiter = Arc::new(RateLimiter::new(store, limit.clone()).with_clock(clock));
            Arc::new(Holder {
                limiter,
                permit: std::sync::Mutex::default(),
                was_lost: AtomicBool::new(false),
            })
        };
        let holders: Vec<Arc<Holder>> = (0..8).map(holder).collect();
        let count = Arc::new(AtomicUsize::new(0));
        let lives = holders.iter().zip(0..).map(|(holder, number)| {
            let (holder, count) = (holder.clone(), count.clone());
            tokio::spawn(async move { holder.live(Random::new(seed * 100 + number), &count).await })
        });
        let lives: Vec<_> = lives.collect();
        let mut too_many = Duration::ZERO;
        while !lives.iter().all(tokio::task::JoinHandle::is_finished) {
            let step = Duration::from_millis(10);
            sleep(step).await;
            let held = holders.iter().filter(|holder| holder.holds()).count();
            too_many = if held > MOST { too_many + step } else { Duration::ZERO };
            assert!(too_many <= NOTICED + step * 2, "seed {seed}: {held} hold for {too_many:?}");
        }
        for life in lives {
            life.await.unwrap();
        }
        // What was dropped is released by a task.
        sleep(Duration::from_millis(10)).await;
        let limiter = RateLimiter::new(shared, limit).with_clock(clock);
        assert_eq!(limiter.peek("k").await.unwrap().remaining(), MOST as u64, "seed {seed}: units leaked");
        lost += holders.iter().filter(|holder| holder.was_lost.load(Ordering::SeqCst)).count();
        admitted += count.load(Ordering::SeqCst);
    }
    // The histories contain what they are about.
    assert!(lost > 50 && admitted > 500, "{lost} lost, {admitted} admitted");
}

/// The queue lets a caller wait for longer than the lease of the unit that it has been given.
#[tokio::test(start_paused = true)]
async fn units_are_held_while_their_caller_waits_for_its_turn() {
    let limits: Limits = "2 at once lease 60s; 1/min queue burst 10".parse().unwrap();
    let limiter = Arc::new(
        RateLimiter::new(MapStore::default(), limits)
            .with_clock(TokioClock::starting_at(Timestamp::from_secs(1_000))),
    );
    let first = limiter.acquire("k").await.unwrap();
    limiter.release(&first).await.unwrap();
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let limiter = limiter.clone();
        waiting.push(tokio::spawn(async move {
            let decision = limiter.acquire("k").await.unwrap().into_owned();
            let permit = limiter.hold(decision);
            sleep(Duration::from_secs(100)).await;
            assert!(!permit.is_lost());
            permit.release().await.unwrap();
        }));
        sleep(Duration::from_millis(1)).await;
    }
    // The first has its turn after one minute, the second after two. Each works for 100 seconds.
    for _ in 0..150 {
        let free = limiter.peek("k").await.unwrap().each().next().unwrap().remaining();
        assert_eq!(free, 0, "both units are held");
        sleep(Duration::from_secs(1)).await;
    }
    for waiting in waiting {
        waiting.await.unwrap();
    }
}

/// A store that is slower than its callers wait for applies renewals whose answers nobody gets.
#[tokio::test(start_paused = true)]
async fn renewals_whose_answers_are_lost_take_few_units() {
    let shared = Arc::new(MapStore::default());
    let limit: Limit = "20 at once lease 60s".parse().unwrap();
    let clock = TokioClock::starting_at(Timestamp::from_secs(1_000));
    let store = Unsteady::of(shared.clone());
    let limiter = Arc::new(RateLimiter::new(store, limit.clone()).with_clock(clock));
    let other = RateLimiter::new(shared, limit).with_clock(clock);
    let left = async || other.peek("k").await.unwrap().remaining();
    let permit = limiter.hold(limiter.check("k").await.unwrap());
    limiter.store().set(Mood::LosesAnswers);
    sleep(Duration::from_secs(59)).await;
    assert_eq!(left().await, 16, "one is held, and one was taken by each of three renewals");
    limiter.store().set(Mood::Answers);
    drop(permit);
    sleep(Duration::from_secs(61)).await;
    assert_eq!(left().await, 20);
    let permit = limiter.hold(limiter.check("k").await.unwrap());
    for _ in 0..20 {
        limiter.store().set(Mood::LosesAnswers);
        sleep(Duration::from_secs(27)).await;
        limiter.store().set(Mood::Answers);
        sleep(Duration::from_secs(20)).await;
        assert!(!permit.is_lost());
        assert!(left().await >= 16, "{} left", left().await);
    }
    drop(permit);
}
