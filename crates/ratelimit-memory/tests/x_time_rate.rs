//! The figures of the tests of Go's `golang.org/x/time/rate` (rate/rate_test.go), replayed on a queue: `NewLimiter(10, 2)` is
//! `10/s queue burst 1000 immediate 2`, `ReserveN` is `reserve`, `AllowN` is `reserve` with a longest wait of zero, `CancelAt` is
//! `refund`. Instants are in tenths of a second, as there.
//!
//! Not replayed, because there is nothing like it: limits of zero and of `Inf` events, negative numbers of events,
//! `SetBurst` on a limiter (a limit is a value here).

use std::time::Duration;

use ratelimit_core::{
    Acquire, AcquireError, Decision, Limit, Limits, ManualClock, RateLimiter, Request, Timestamp,
};
use ratelimit_memory::MemoryStore;

const TENTH: Duration = Duration::from_millis(100);
const START: Timestamp = Timestamp::from_secs(1_800_000_000);
/// `InfDuration`.
const ANY: u32 = u32::MAX;

struct Lim(RateLimiter<MemoryStore, ManualClock>);

impl Lim {
    fn new(rate: u64, burst: u64) -> Self {
        let limit = format!("{rate}/s queue burst 1000 immediate {burst} name lim").parse::<Limit>().unwrap();
        Self(RateLimiter::new(MemoryStore::new(), limit).with_clock(ManualClock::at(START)))
    }

    fn at(&self, tenths: u32) -> &RateLimiter<MemoryStore, ManualClock> {
        self.0.clock().set(START + TENTH * tenths);
        &self.0
    }

    /// The instant of the turn, if there is one within the longest wait.
    fn reserve(&self, t: u32, n: u64, longest: u32) -> (Option<u32>, Decision<'_>) {
        let decision =
            self.at(t).reserve_now(Request::new("k").cost(n), TENTH.saturating_mul(longest)).unwrap();
        let act = decision.now() + decision.delay();
        let act = u32::try_from(act.since(START).as_millis() / TENTH.as_millis()).unwrap();
        (decision.allowed().then_some(act), decision)
    }

    fn reserves(&self, calls: &[(u32, u64, u32)]) {
        for &(t, n, act) in calls {
            assert_eq!(self.reserve(t, n, ANY).0, Some(act), "{n} at t{t}");
        }
    }

    fn allows(&self, calls: &[(u32, u64, bool)]) {
        for &(t, n, allowed) in calls {
            assert_eq!(self.reserve(t, n, 0).0.is_some(), allowed, "{n} at t{t}");
        }
    }

    fn cancel(&self, t: u32, decision: &Decision<'_>) {
        self.at(t).refund_now(decision);
    }
}

#[test]
fn test_limiter_burst_1() {
    // They never admit two events of a burst of one; a queue admits them when it is empty. So that call is left out.
    Lim::new(10, 1).allows(&[
        (0, 1, true),
        (0, 1, false),
        (0, 1, false),
        (1, 1, true),
        (1, 1, false),
        (1, 1, false),
        (2, 1, true),
        (2, 1, false),
    ]);
}

#[test]
fn test_limiter_burst_3() {
    Lim::new(10, 3).allows(&[
        (0, 2, true),
        (0, 2, false),
        (0, 1, true),
        (0, 1, false),
        (1, 4, false),
        (2, 1, true),
        (3, 1, true),
        (4, 1, true),
        (4, 1, true),
        (4, 1, false),
        (4, 1, false),
        (9, 3, true),
        (9, 0, true),
    ]);
}

#[test]
fn test_limiter_jump_backwards() {
    // After a step back of the clock, two tokens are left as there. They add a token for the time that passes again after it,
    // which nobody has waited for; here the first comes at t2.
    Lim::new(10, 3).allows(&[
        (1, 1, true),
        (0, 1, true),
        (0, 1, true),
        (0, 1, false),
        (0, 1, false),
        (1, 1, false),
        (2, 1, true),
        (2, 1, false),
    ]);
}

#[test]
fn test_long_running_qps() {
    let lim = Lim::new(100, 100);
    let mut allowed = 0_u32;
    for step in 0..2_500 {
        lim.0.clock().set(START + Duration::from_millis(2) * step);
        allowed += u32::from(lim.0.reserve_now("k", Duration::ZERO).unwrap().allowed());
    }
    assert!((599..=601).contains(&allowed), "{allowed}, where they have at most 601 and at least 599");
}

#[test]
fn test_simple_reserve() {
    Lim::new(10, 2).reserves(&[(0, 2, 0), (0, 2, 2), (3, 2, 4)]);
}

#[test]
fn test_mix() {
    let lim = Lim::new(10, 2);
    lim.reserves(&[(0, 2, 0)]);
    lim.allows(&[(1, 2, false)]);
    lim.reserves(&[(1, 2, 2)]);
    lim.allows(&[(3, 1, true)]);
}

#[test]
fn test_cancel_last() {
    let lim = Lim::new(10, 2);
    lim.reserves(&[(0, 2, 0)]);
    let (act, last) = lim.reserve(0, 2, ANY);
    assert_eq!(act, Some(2));
    lim.cancel(1, &last); // both tokens back
    lim.reserves(&[(1, 2, 2)]);
}

#[test]
fn test_cancel_too_late() {
    let lim = Lim::new(10, 2);
    lim.reserves(&[(0, 2, 0)]);
    let (_, used) = lim.reserve(0, 2, ANY);
    // There, a turn that has come cannot be cancelled. Here a refund says that it was not used: a token has not drained yet.
    lim.cancel(3, &used);
    lim.reserves(&[(3, 2, 3)]);
}

#[test]
fn test_cancel_0_tokens() {
    let lim = Lim::new(10, 2);
    lim.reserves(&[(0, 2, 0)]);
    let (_, first) = lim.reserve(0, 1, ANY);
    lim.reserves(&[(0, 1, 2)]);
    lim.cancel(0, &first); // no token back
    lim.reserves(&[(0, 1, 3)]);
}

#[test]
fn test_cancel_1_token() {
    let lim = Lim::new(10, 2);
    lim.reserves(&[(0, 2, 0)]);
    let (_, second) = lim.reserve(0, 2, ANY);
    lim.reserves(&[(0, 1, 3)]);
    lim.cancel(2, &second);
    // They get one of two tokens back, and go on at t4. Here the turn at t3 keeps all.
    lim.reserves(&[(2, 2, 5)]);
}

#[test]
fn test_cancel_multi() {
    let lim = Lim::new(10, 4);
    lim.reserves(&[(0, 4, 0)]);
    let (_, a) = lim.reserve(0, 3, ANY);
    lim.reserves(&[(0, 1, 4)]);
    let (act, c) = lim.reserve(0, 1, ANY);
    assert_eq!(act, Some(5));
    lim.cancel(1, &c); // the token is back
    lim.cancel(1, &a);
    // They get two of three tokens back as well, and go on at t5.
    lim.reserves(&[(1, 3, 7)]);
}

#[test]
fn test_reserve_jump_back() {
    let lim = Lim::new(10, 2);
    // They give out the second turn at t1, which exceeds limit and burst, as their test says.
    lim.reserves(&[(1, 2, 1), (0, 1, 2), (2, 2, 4)]);
    assert_eq!(lim.reserve(0, 2, 1).0, None, "too late, and nothing is charged");
    lim.reserves(&[(2, 1, 5)]);
}

#[test]
fn test_reserve_set_limit() {
    // Turns that were assigned stay, and the next one is assigned as if their units left at the new rate. As their test says of
    // theirs, this exceeds limit and burst once.
    let lim = Lim::new(5, 2);
    lim.reserves(&[(0, 2, 0), (0, 2, 4)]);
    let fast = Limits::from("10/s queue burst 1000 immediate 2 name lim".parse::<Limit>().unwrap());
    let request = Request::new("k").limits(&fast);
    assert_eq!(lim.at(2).check_now(request).unwrap().delay(), TENTH * 2);
}

#[test]
fn test_reserve_max() {
    let lim = Lim::new(10, 2);
    let acts = [2, 1, 1].map(|n| lim.reserve(0, n, 1).0);
    assert_eq!(acts, [Some(0), Some(1), None], "the third would have to wait longer than one tenth");
}

#[tokio::test]
async fn test_wait() {
    let lim = Lim::new(10, 3);
    let wait =
        |n, timeout| lim.0.acquire_with(Request::new("k").cost(n), Acquire::default().timeout(timeout));
    wait(2, None).await.unwrap();
    // TestWaitTimeout: three more would come in two tenths.
    let late = wait(3, Some(TENTH)).await.unwrap_err();
    assert!(matches!(late, AcquireError::Deadline(_)), "{late}");
    // TestWaitSimple: act-later.
    let turn = lim.0.reserve_now(Request::new("k").cost(3), Duration::MAX).unwrap();
    assert_eq!(turn.delay(), TENTH * 2);
    // TestWaitCancel: three tokens back, so two can be had at once after one more tenth.
    lim.cancel(1, &turn);
    assert_eq!(lim.reserve(1, 2, 0).0, Some(1));
}
