//! All doors decide as a limiter in this process does, under each kind of limit.

use ratelimit_core::{Limits, RateLimiter, Request};
use ratelimit_memory::MemoryStore;
use serde_json::json;

use crate::support::*;

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

/// Whether it was admitted, and what remains.
type Decided = (bool, u64);

/// One of the doors of a server of its own.
enum Door {
    Http(Http),
    Redis(Redis),
    Grpc(tonic::client::Grpc<tonic::transport::Channel>),
}

impl Door {
    async fn decide(&mut self, policy: &str, key: &str, cost: u64) -> Decided {
        match self {
            Self::Http(http) => {
                let body = json!({ "policy": policy, "key": ["1", key], "cost": cost });
                let answer = http.post("/v1/check", &body).await.json();
                (answer["allowed"] == true, answer["remaining"].as_u64().unwrap())
            }
            Self::Redis(redis) => {
                let numbers =
                    redis.numbers(&["RL.CHECK", policy, &format!("1 + {key}"), &cost.to_string()]).await;
                (numbers[0] == 0, u64::try_from(numbers[2]).unwrap())
            }
            Self::Grpc(grpc) => {
                let mut request = request("d", vec![descriptor(&[(policy, "1"), ("user", key)])]);
                request.descriptors[0].hits_addend = Some(cost);
                let response = should(grpc, request).await.unwrap();
                (response.overall_code == 1, u64::from(response.statuses[0].limit_remaining))
            }
        }
    }
}

#[tokio::test]
async fn every_door_decides_as_a_limiter_does() {
    let file: String = (0..)
        .zip(LIMITS)
        .map(|(place, limit): (usize, &str)| {
            let limits: Vec<String> = limit.split("; ").map(|limit| format!("{limit:?}")).collect();
            let limits = limits.join(", ");
            format!("[[policies]]\nname = \"p{place}\"\nkey = [\"p{place}\", \"user\"]\nlimit = [{limits}]\n")
        })
        .collect();
    let limits: Vec<Limits> = LIMITS.iter().map(|limit| limit.parse().unwrap()).collect();
    let mut started = Vec::new();
    for _ in 0..3 {
        started.push(Started::with(&file, &[]).await);
    }
    let mut doors = [
        Door::Http(started[0].http()),
        Door::Redis(started[1].redis().await),
        Door::Grpc(started[2].grpc().await),
    ];
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
        for door in &mut doors {
            let decided = door.decide(&policy, &key, cost).await;
            assert_eq!(decided, expected, "step {step}: {cost} of {key} under {}", LIMITS[place]);
        }
    }
    assert!((100..500).contains(&refusals), "{refusals}");
}
