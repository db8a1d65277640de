//! Resets of a `Synced` while it charges and synchronizes: a synchronization that began before a reset does not affect later
//! charges.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use proptest::prelude::*;
use ratelimit_cluster::Synced;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, Limit, StoreError, SyncCounterStore, Timestamp};
use ratelimit_memory::MemoryStore;

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const TEXTS: [&str; 6] = [
    "4/min fixed",
    "4/min",
    "4/min precision 15s strict",
    "4/min burst 4",
    "4/min queue burst 4",
    "4/min log",
];
const BURST: usize = 4;

/// A store that takes a step on the way there, and one on the way back.
#[derive(Debug, Default)]
struct Slow(MemoryStore);

async fn step() {
    let mut is_over = false;
    poll_fn(|_| if std::mem::replace(&mut is_over, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

impl CounterStore for Slow {
    fn promises(&self) -> Promises {
        self.0.promises()
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        step().await;
        let answer = self.0.claim(claims).await;
        step().await;
        answer
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        step().await;
        let done = self.0.refund(now, refunds).await;
        step().await;
        done
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        step().await;
        let done = self.0.reset(claims).await;
        step().await;
        done
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Charge,
    Sync,
    Reset,
    ResetNow,
    /// Of what is under way, this goes on.
    GoOn(prop::sample::Index),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Admitted,
    Begun,
    Ended,
}

struct Doing {
    what: Pin<Box<dyn Future<Output = ()>>>,
    is_reset: bool,
}

impl Doing {
    /// Whether it has come to its end.
    fn go_on(&mut self) -> bool {
        self.what.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }
}

/// What a node does by these steps and then to the end; its admissions, and the begins and ends of its resets.
fn events(text: &str, steps: &[Step]) -> Vec<Event> {
    let limit: Limit = text.parse().unwrap();
    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
    let claim = Claim { id, cost: 1, meter: limit.meter_for(b"k") };
    let node = Arc::new(Synced::new(Slow::default()));
    let mut events = Vec::new();
    let mut under_way: Vec<Doing> = Vec::new();
    let charge = |events: &mut Vec<Event>| {
        let admitted = node.claim_one_now(NOW, Mode::Charge, &claim.id, claim.cost, &claim.meter).unwrap().0;
        events.extend(admitted.then_some(Event::Admitted));
    };
    let sync = || {
        let node = node.clone();
        Doing { what: Box::pin(async move { node.sync(NOW).await.unwrap() }), is_reset: false }
    };
    for step in steps {
        match step {
            Step::Charge => charge(&mut events),
            Step::Sync => under_way.push(sync()),
            Step::Reset => {
                let (node, limit) = (node.clone(), limit.clone());
                let what = async move {
                    let id = MeterId { namespace: "", scope: limit.scope(), key: b"k" };
                    let claims = [Claim { id, cost: 0, meter: limit.meter_for(b"k") }];
                    node.reset(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await.unwrap();
                };
                under_way.push(Doing { what: Box::pin(what), is_reset: true });
                events.push(Event::Begun);
            }
            Step::ResetNow => {
                node.reset_now(Claims::new(NOW, Mode::Charge, &[claim]).unwrap());
                events.extend([Event::Begun, Event::Ended]);
            }
            Step::GoOn(_) if under_way.is_empty() => {}
            Step::GoOn(which) => {
                let which = which.index(under_way.len());
                if under_way[which].go_on() {
                    events.extend(under_way.remove(which).is_reset.then_some(Event::Ended));
                }
            }
        }
    }
    for _ in 0..3 {
        while !under_way.is_empty() {
            under_way.retain_mut(|doing| {
                let ended = doing.go_on();
                events.extend((ended && doing.is_reset).then_some(Event::Ended));
                !ended
            });
        }
        (0..=BURST).for_each(|_| charge(&mut events));
        under_way.push(sync());
    }
    events
}

/// Between any two instants no more than the limit is admitted, and once more for each reset that was under way meanwhile; and
/// after the last reset all of it.
fn check(text: &str, steps: &[Step]) -> Result<(), TestCaseError> {
    let events = events(text, steps);
    let mut under_way = 0;
    for (from, first) in events.iter().enumerate() {
        let (mut allowed, mut admitted) = (BURST * (1 + under_way), 0);
        for event in &events[from..] {
            match event {
                Event::Begun => allowed += BURST,
                Event::Ended => {}
                Event::Admitted => admitted += 1,
            }
            prop_assert!(
                admitted <= allowed,
                "{text}: {admitted} units of {allowed} from {from} on in {events:?}"
            );
        }
        match first {
            Event::Begun => under_way += 1,
            Event::Ended => under_way -= 1,
            Event::Admitted => {}
        }
    }
    let last = events.iter().rposition(|event| *event == Event::Begun).unwrap_or(0);
    let after = events[last..].iter().filter(|event| **event == Event::Admitted).count();
    prop_assert!(after >= BURST, "{text}: {after} units after the last reset in {events:?}");
    Ok(())
}

fn step_of_any_kind() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Charge),
        2 => Just(Step::Sync),
        1 => Just(Step::Reset),
        1 => Just(Step::ResetNow),
        8 => any::<prop::sample::Index>().prop_map(Step::GoOn),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn a_reset_admits_at_most_one_more_limit(
        text in prop::sample::select(&TEXTS[..]),
        steps in prop::collection::vec(step_of_any_kind(), 1..60),
    ) {
        check(text, &steps)?;
    }
}
