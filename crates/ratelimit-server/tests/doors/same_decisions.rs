//! All doors decide as a limiter in this process does, under each kind of limit.

use ratelimit_core::{Limits, RateLimiter, Request};
use ratelimit_memory::MemoryStore;

use crate::each_door::{Doors, policies};

/// By the month and longer, so that nothing comes back while a slow machine runs the test.
const LIMITS: [&str; 9] = [
    "40/30d",
    "40/30d fixed",
    "40/30d precision 1d strict",
    "40/30d log",
    "40/30d burst 25",
    "40/30d leaky burst 25",
    "40 in total",
    "30 at once lease 1d",
    "60/30d log; 25/7d log name week",
];

#[tokio::test]
async fn every_door_decides_as_a_limiter_does() {
    let file = policies(&LIMITS);
    let limits: Vec<Limits> = LIMITS.iter().map(|limit| limit.parse().unwrap()).collect();
    let mut doors = Doors::open(&file).await;
    let reference = RateLimiter::without_limits(MemoryStore::new());
    let (mut seed, mut refusals) = (1_u64, 0);
    let mut random = move |most: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % (most + 1)
    };
    for step in 0..600 {
        let place = usize::try_from(random(8)).unwrap();
        let (policy, key, cost) = (format!("p{place}"), format!("user {}", random(2)), random(9));
        let name = format!("{policy} {key}");
        let decision = reference.check(Request::new(&name).cost(cost).limits(&limits[place])).await.unwrap();
        let expected = (decision.allowed(), decision.remaining());
        refusals += usize::from(!decision.allowed());
        for door in &mut doors.each {
            let decided = door.ask(&policy, &key, cost).await;
            let decided = (decided.allowed, decided.remaining);
            assert_eq!(decided, expected, "step {step}: {cost} of {key} under {}", LIMITS[place]);
        }
    }
    assert!((100..500).contains(&refusals), "{refusals}");
}
