//! The worked examples of the conformance suite that need no clock to be set, as far as they need none, through each door.
//! Their periods are in days, so that nothing comes back while a slow machine runs them.

use std::collections::BTreeSet;

use serde_json::json;

use crate::each_door::{Doors, policies};
use crate::support::*;

const DAY: u64 = 86_400;

/// How long a test may take, in seconds.
const SLACK: u64 = 600;

#[tokio::test]
async fn ten_a_minute() {
    for door in &mut Doors::open(&policies(&["10/30d"])).await.each {
        assert_eq!(door.drain("p0", "a", 20).await, 10);
        assert_eq!(door.drain("p0", "b", 20).await, 10);
    }
}

/// 10 in the shortest, 120 in the middle, 240 in the longest: at first the shortest refuses.
#[tokio::test]
async fn three_limits_at_once() {
    for door in &mut Doors::open(&policies(&["10/2d; 120/60d; 240/90d precision 1d"])).await.each {
        assert!(door.ask("p0", "a", 7).await.allowed);
        let refused = door.ask("p0", "a", 4).await;
        assert!(!refused.allowed && refused.remaining == 3, "{refused:?}");
        assert!(refused.wait.is_some_and(|wait| wait <= 4 * DAY), "the shortest one refuses: {refused:?}");
        assert!(door.ask("p0", "a", 3).await.allowed, "the refusal has charged nothing");
        assert!(!door.ask("p0", "a", 1).await.allowed);
    }
}

#[tokio::test]
async fn two_in_one_instant_are_two() {
    for door in &mut Doors::open(&policies(&["3/30d log"])).await.each {
        assert_eq!(door.drain("p0", "a", 5).await, 3);
    }
}

/// A hundred refusals make the wait no longer than one.
#[tokio::test]
async fn only_successes_count() {
    let limits = ["10/30d", "10/30d fixed", "10/30d log", "10/30d burst 10", "10/30d precision 5d"];
    for door in &mut Doors::open(&policies(&limits)).await.each {
        for (place, text) in limits.iter().enumerate() {
            let policy = format!("p{place}");
            assert_eq!(door.drain(&policy, "a", 10).await, 10, "{text}");
            let mut wait = door.ask(&policy, "a", 1).await.wait.unwrap();
            for _ in 0..100 {
                let again = door.ask(&policy, "a", 1).await;
                let next = again.wait.unwrap();
                assert!(
                    !again.allowed && next <= wait && wait - next < SLACK,
                    "{text}: {wait}, then {again:?}"
                );
                wait = next;
            }
        }
    }
}

/// A queue takes its burst and refuses what overflows, until one has left it.
#[tokio::test]
async fn a_queue_drains_at_a_regular_pace() {
    for door in &mut Doors::open(&policies(&["60/60d queue burst 5"])).await.each {
        assert_eq!(door.drain("p0", "a", 5).await, 5);
        let overflow = door.ask("p0", "a", 1).await;
        let wait = overflow.wait.unwrap();
        assert!(!overflow.allowed && (DAY - SLACK..=DAY).contains(&wait), "{overflow:?}");
    }
    let started = Started::with(&policies(&["60/60d queue burst 5"]), &[]).await;
    let http = started.http();
    for turn in 0..5 {
        let body = json!({ "policy": "p0", "key": ["1", "a"] });
        let answer = http.post("/v1/check", &body).await.json();
        let delay = answer["delay_ms"].as_u64().unwrap_or_default();
        let day = 1_000 * DAY * turn;
        assert!((day.saturating_sub(1_000 * SLACK)..=day).contains(&delay), "turn {turn}: {delay}");
    }
}

/// Staggered windows of different keys end at different instants.
#[tokio::test]
async fn not_everybody_at_once() {
    for door in &mut Doors::open(&policies(&["1/30d fixed staggered"])).await.each {
        let mut ends = BTreeSet::new();
        for number in 0..20 {
            let key = format!("user:{number}");
            let admitted = door.ask("p0", &key, 1).await;
            assert!(admitted.allowed, "{admitted:?}");
            ends.insert(admitted.wait.unwrap());
            assert!(!door.ask("p0", &key, 1).await.allowed);
        }
        assert!(ends.len() > 15, "20 keys' windows end at only {} instants", ends.len());
    }
}

/// An upgrade keeps the used units. Plans are asked for over HTTP; each door has the rest.
#[tokio::test]
async fn plans_known_at_the_request() {
    let file = policies(&["100/30d log"]);
    for door in &mut Doors::open(&file).await.each {
        assert_eq!(door.drain("p0", "a", 101).await, 100);
        assert_eq!(door.ask("p0", "other", 1).await.remaining, 99, "left to another subscriber");
    }
    let started = Started::with(&format!("{file}[plans.starter]\np0 = \"3000/30d log\"\n"), &[]).await;
    let http = started.http();
    let ask = async |cost: u64, plan: Option<&str>| {
        let body = json!({ "policy": "p0", "key": ["1", "a"], "cost": cost, "plan": plan });
        let answer = http.post("/v1/check", &body).await.json();
        (answer["allowed"] == true, answer["remaining"].as_u64().unwrap())
    };
    assert_eq!(ask(100, None).await, (true, 0));
    assert_eq!(ask(1, None).await, (false, 0));
    assert_eq!(ask(1, Some("starter")).await, (true, 2_899), "after the upgrade");
    assert_eq!(ask(1, None).await, (false, 0), "back in the free plan");
}
