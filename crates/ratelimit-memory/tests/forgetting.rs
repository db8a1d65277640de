//! Which meters are removed and when, and what happens at the bound.

use std::fmt::Display;
use std::time::Duration;

use ratelimit_memory::core::store::Applied;
use ratelimit_memory::core::{ErrorKind, IntoLimits};
use ratelimit_memory::{
    CheckError, Limit, Limits, ManualClock, MemoryConfig, MemoryStore, RateLimiter, Request, Timestamp,
    WhenFull,
};

type Limiter = RateLimiter<MemoryStore, ManualClock>;

const START: Timestamp = Timestamp::from_secs(1_000);

fn limiter(config: MemoryConfig, limits: impl IntoLimits) -> Limiter {
    RateLimiter::new(MemoryStore::with_config(config), limits).with_clock(ManualClock::at(START))
}

fn unbounded(text: &str) -> Limiter {
    limiter(MemoryConfig::default(), limit(text))
}

fn bounded(max_keys: usize, when_full: WhenFull, text: &str) -> Limiter {
    limiter(MemoryConfig::default().max_keys(max_keys).when_full(when_full), limit(text))
}

fn limit(text: &str) -> Limit {
    text.parse().unwrap()
}

fn admits(limiter: &Limiter, key: impl Display) -> bool {
    limiter.check_now(&format!("{key}")).unwrap().allowed()
}

fn is_known(limiter: &Limiter, key: &str) -> bool {
    limiter.peek_now(key).unwrap().remaining() < limiter.limits()[0].burst()
}

#[test]
fn one_off_keys_leave_little_more_than_the_live_meters() {
    for text in ["10/s fixed", "10/s", "10/s precision 100ms", "10/s log", "10/s burst 10", "10/s queue"] {
        let limiter = unbounded(text);
        // One key per millisecond. It matters for at most 2 s, and is kept for one second more, rounded up.
        let (live, mut most) = (4_000, 0);
        for key in 0..200_000 {
            assert!(admits(&limiter, key));
            limiter.clock().advance(Duration::from_millis(1));
            if key % 97 == 0 {
                most = most.max(limiter.store().len());
            }
        }
        assert!(most <= live * 8 / 7 + 500, "{text}: {most}");
    }
}

#[test]
fn a_burst_is_forgotten_under_the_traffic_of_one_known_key() {
    let limiter = unbounded("10/s burst 10");
    for key in 0..20_000 {
        admits(&limiter, key);
    }
    assert_eq!(limiter.store().len(), 20_000);
    limiter.clock().advance(Duration::from_secs(10));
    // Eight meters for one in 32 charges.
    for _ in 0..20_000 * 32 / 8 + 50_000 {
        limiter.clock().advance(Duration::from_millis(100));
        assert!(admits(&limiter, "known"));
    }
    assert_eq!(limiter.store().len(), 1);
}

#[test]
fn meters_are_kept_until_they_expire_and_then_forgotten() {
    // The victim's second unit is refused as long as its meter is kept; the traffic of others sweeps all the time.
    for (text, forget_after) in [
        ("1/10s burst 1", 10),
        ("1/10s log", 10),
        ("1/10s fixed", 10),
        ("1/10s", 20),
        ("1/10s precision 1s", 11),
    ] {
        let limiter = unbounded(text);
        assert!(admits(&limiter, "victim"));
        let mut key = 0;
        let mut traffic = || {
            (0..2_000).for_each(|_| {
                key += 1;
                admits(&limiter, key);
            });
        };
        // A claim that is a second late still finds the meter just before it has become irrelevant, plus the slack.
        limiter.clock().set(START + (Duration::from_secs(forget_after + 1) - Duration::from_nanos(1)));
        traffic();
        limiter.clock().set(START);
        assert!(!admits(&limiter, "victim"), "{text}");
        let before = limiter.store().len();
        limiter.clock().set(START + Duration::from_secs(forget_after + 2));
        traffic();
        assert!(limiter.store().len() < before + 2_000, "{text}: nothing was forgotten");
        limiter.clock().set(START);
        assert!(admits(&limiter, "victim"), "{text}: forgotten too late");
    }
}

#[test]
fn a_claim_far_in_the_future_forgets_few_meters() {
    let limiter = unbounded("1/hour burst 1");
    (0..1_000).for_each(|key| assert!(admits(&limiter, key)));
    limiter.clock().advance(Duration::from_secs(1_000_000));
    assert!(admits(&limiter, "ahead"));
    limiter.clock().set(START);
    assert!(limiter.store().len() >= 1_001 - 8);
    (0..1_000).for_each(|_| _ = admits(&limiter, "other"));
    assert!(limiter.store().len() >= 1_001 - 8);
}

#[test]
fn peeks_refusals_and_costs_of_zero_store_nothing() {
    let limits = Limits::new([limit("5/s"), limit("2/s name less")]).unwrap();
    let limiter = limiter(MemoryConfig::default(), limits);
    limiter.peek_now("user:7").unwrap();
    assert!(!limiter.check_now(Request::new("user:7").cost(3)).unwrap().allowed());
    assert!(limiter.check_now(Request::new("user:7").cost(0)).unwrap().allowed());
    assert_eq!(limiter.store().len(), 0);
    assert!(limiter.check_now("user:7").unwrap().allowed());
    assert_eq!(limiter.store().len(), 2);
}

#[test]
fn fully_refunded_meters_are_forgotten() {
    for text in ["10/day fixed", "10/day", "10/day log", "10/day burst 10"] {
        let limiter = unbounded(text);
        for key in 0..1_000 {
            let key = key.to_string();
            let decision = limiter.check_now(&key).unwrap();
            limiter.refund_now(&decision);
        }
        limiter.clock().advance(Duration::from_secs(2));
        // 128 rounds of eight visit every shard.
        (0..TWICE_ROUND).for_each(|_| _ = limiter.check_now(Request::new("known").cost(1)).unwrap());
        (0..1_000).for_each(|key| _ = admits(&limiter, format!("new {key}")));
        assert!(limiter.store().len() <= 1_001, "{text}: {}", limiter.store().len());
    }
}

/// This many charges of a known key move the sweep around an almost empty store twice.
const TWICE_ROUND: usize = 2 * 32 * 1_024 / 8;

#[test]
fn a_full_store_evicts_the_idle_and_keeps_the_busy() {
    let limiter = bounded(1_000, WhenFull::Evict, "60/min burst 60");
    for _ in 0..60 {
        assert!(admits(&limiter, "busy"));
    }
    for key in 0..50_000 {
        assert!(admits(&limiter, key));
        assert!(limiter.store().len() <= 1_000);
    }
    assert!(!admits(&limiter, "busy"));
    assert!(limiter.store().len() > 900);
}

#[test]
fn of_windows_with_the_same_end_the_least_charged_is_evicted() {
    let limiter = bounded(1_000, WhenFull::Evict, "60/hour fixed");
    for _ in 0..60 {
        (0..100).for_each(|key| assert!(admits(&limiter, format!("busy {key}"))));
    }
    (0..50_000).for_each(|key| assert!(admits(&limiter, key)));
    let exhausted = (0..100).filter(|key| !admits(&limiter, format!("busy {key}"))).count();
    assert_eq!(exhausted, 100);
}

#[test]
fn a_full_store_evicts_expired_meters_before_live_ones() {
    let limiter = bounded(256, WhenFull::Evict, "1/min burst 1");
    (0..128).for_each(|key| assert!(admits(&limiter, format!("old {key}"))));
    limiter.clock().advance(Duration::from_secs(60));
    (0..128).for_each(|key| assert!(admits(&limiter, format!("live {key}"))));
    limiter.clock().advance(Duration::from_secs(2));
    (0..100).for_each(|key| assert!(admits(&limiter, format!("new {key}"))));
    let live = (0..128).filter(|key| is_known(&limiter, &format!("live {key}"))).count();
    // It checks only a sample, and evicts a live meter if there is no expired one in it.
    assert!(live >= 112, "{live}");
}

#[test]
fn a_full_store_refuses_new_keys_and_keeps_known_ones() {
    let limiter = bounded(2, WhenFull::Refuse, "2/min burst 2");
    assert!(admits(&limiter, "a"));
    assert!(admits(&limiter, "b"));
    let Err(CheckError::Store(error)) = limiter.check_now("c") else { panic!("it should be full") };
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Full, Applied::No));
    // Several claims with one new key do not charge the known one either.
    assert!(limiter.check_now(Request::new("a").and("c")).is_err());
    assert_eq!(limiter.peek_now("a").unwrap().remaining(), 1);
    assert!(admits(&limiter, "a") && !admits(&limiter, "a"));
    // A refusal needs no room, and neither does a peek.
    assert!(!limiter.check_now(Request::new("a").and("c")).unwrap().allowed());
    assert_eq!(limiter.peek_now("c").unwrap().remaining(), 2);
    // Expired meters make room.
    limiter.clock().advance(Duration::from_secs(62));
    assert!(admits(&limiter, "c"));
}

#[test]
fn a_slice_evicts_other_meters_to_make_room() {
    let limiter = bounded(2, WhenFull::Evict, "9/min burst 9");
    assert!(admits(&limiter, "light"));
    (0..5).for_each(|_| assert!(admits(&limiter, "heavy")));
    assert!(limiter.check_now(Request::new("new").and("light")).unwrap().allowed());
    assert_eq!(limiter.peek_now("light").unwrap().remaining(), 7);
    assert!(!is_known(&limiter, "heavy"));
}

#[test]
fn a_slice_never_evicts_its_own_meters() {
    let limits = Limits::new([limit("9/s"), limit("9/s burst 9"), limit("9/s log")]).unwrap();
    let config = MemoryConfig::default().max_keys(4);
    let limiter = limiter(config, limits);
    for key in 0..100 {
        let key = key.to_string();
        limiter.check_now(&key).unwrap();
        limiter.check_now(&key).unwrap();
        let remaining: Vec<u64> =
            limiter.peek_now(&key).unwrap().each().map(|status| status.remaining()).collect();
        assert_eq!(remaining, [7, 7, 7]);
        assert!(limiter.store().len() <= 4);
    }
    // More meters than the bound cannot be charged together. This removes no other meter.
    let known = limiter.store().len();
    let Err(CheckError::Store(error)) = limiter.check_now(Request::new("x").and("y")) else {
        panic!("it should be full")
    };
    assert_eq!(error.kind(), ErrorKind::Full);
    assert_eq!(limiter.store().len(), known);
}

/// The release is by a decision from before a change of the lease.
#[tokio::test]
async fn a_release_under_a_shorter_lease_leaves_the_units_of_others() {
    let limiter = RateLimiter::without_limits(MemoryStore::new()).with_clock(ManualClock::at(START));
    let check = |key: &'static str, text: &str| {
        limiter.check_now(Request::new(key).limits(limit(text))).unwrap().into_owned()
    };
    let short = check("k", "20 at once lease 1min");
    for _ in 0..19 {
        assert!(check("k", "20 at once lease 10min").allowed());
    }
    limiter.release(&short).await.unwrap();
    for second in 0..500 {
        limiter.clock().advance(Duration::from_secs(1));
        // Charges of other keys remove what has expired.
        check("other", &format!("1/s name n{second}"));
    }
    assert!(check("k", "20 at once lease 10min").allowed());
    assert!(!check("k", "20 at once lease 10min").allowed(), "19 are still at work");
}

#[test]
fn a_store_without_capacity_fails_claims() {
    for when_full in [WhenFull::Evict, WhenFull::Refuse] {
        let limiter = bounded(0, when_full, "1/s");
        assert!(limiter.check_now("a").is_err());
        assert!(limiter.peek_now("a").unwrap().allowed());
    }
}

#[tokio::test]
async fn reset_forgets_only_the_named_meters() {
    let limiter = unbounded("1/day");
    for key in 0..1_000 {
        assert!(admits(&limiter, key));
    }
    for key in (0..1_000).step_by(2) {
        limiter.reset(&key.to_string()).await.unwrap();
    }
    assert_eq!(limiter.store().len(), 500);
    for key in 0..1_000 {
        assert_eq!(admits(&limiter, key), key % 2 == 0, "{key}");
    }
}

#[test]
fn a_meter_of_another_kind_with_the_same_name_starts_fresh() {
    // Limits of different kinds never share a scope, unless a period is divided into another number of segments; claims
    // that you build yourself may.
    use ratelimit_memory::core::SyncCounterStore;
    use ratelimit_memory::core::meter::{Bucket, Log, Meter, Window};
    use ratelimit_memory::core::store::{Claim, Claims, MeterId, Mode};
    let id = MeterId { namespace: "", scope: "s", key: b"key" };
    let window = |carried| Meter::Window(Window::new(5, 1_000_000, carried, false, 0).unwrap());
    let bucket = Meter::Bucket(Bucket::new(5, 1_000_000, 5).unwrap());
    let log = Meter::Log(Log::new(5, 1_000_000).unwrap());
    let all = [window(0), window(1), window(5), bucket, log];
    let store = MemoryStore::new();
    let mut last = None;
    // From each to each other, in one store.
    for meter in all.iter().flat_map(|first| all.iter().flat_map(move |then| [first, then])) {
        let claims = [Claim { id, cost: 5, meter: *meter }];
        let charge = || store.claim_now(Claims::new(START, Mode::Charge, &claims).unwrap()).unwrap().admitted;
        assert_eq!(charge(), last != Some(meter), "{meter:?} after {last:?}");
        assert!(!charge(), "{meter:?} twice, after {last:?}");
        assert_eq!(store.len(), 1);
        last = Some(meter);
    }
}

#[test]
fn debug_output_shows_no_key() {
    let limiter = unbounded("1/s");
    admits(&limiter, "secret");
    let text = format!("{:?}", limiter.store());
    assert!(text.contains("len: 1") && text.contains("shards: 1024") && !text.contains("secret"), "{text}");
}
