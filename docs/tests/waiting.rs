//! What the recipe on workers says: the room of a queue, and what a dropped wait has cost.

use std::time::Duration;

use ratelimit_memory::{Limit, MemoryStore, RateLimiter, Timestamp, TokioClock};

const MS: Duration = Duration::from_millis(1);

fn limiter(text: &str) -> RateLimiter<MemoryStore, TokioClock> {
    let limit: Limit = text.parse().unwrap();
    let clock = TokioClock::starting_at(Timestamp::from_secs(1_000_000));
    RateLimiter::new(MemoryStore::new(), limit).with_clock(clock)
}

#[tokio::test(start_paused = true)]
async fn a_queue_has_room_for_the_quota_of_a_period_unless_it_has_a_burst() {
    for (text, room) in [("2/s queue", 2), ("2/s queue burst 100", 100)] {
        let limiter = limiter(text);
        for place in 0..room {
            let decision = limiter.check("their-api").await.unwrap();
            assert_eq!((decision.allowed(), decision.delay()), (true, 500 * MS * place), "{text}");
        }
        assert!(!limiter.check("their-api").await.unwrap().allowed(), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_uses_a_turn_up_and_nothing_of_other_limits() {
    for (text, queue) in [("2/s queue burst 100", true), ("2/s burst 1", false), ("1/500ms log", false)] {
        let limiter = limiter(text);
        limiter.acquire("their-api").await.unwrap();
        tokio::time::timeout(100 * MS, limiter.acquire("their-api")).await.expect_err("it has to wait");
        let next = limiter.check("their-api").await.unwrap();
        match queue {
            true => assert_eq!(next.delay(), 900 * MS, "{text}"),
            false => assert!(next.retry_after().unwrap() <= 401 * MS, "{text}: {:?}", next.retry_after()),
        }
    }
}
