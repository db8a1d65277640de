//! Random claims, refunds and resets get the same answers as `decide` on states that are never removed.

use std::collections::HashMap;
use std::time::Duration;

use ratelimit_memory::core::SyncCounterStore;
use ratelimit_memory::core::meter::{Meter, State, decide, refund};
use ratelimit_memory::core::store::{Answer, Claim, Claims, MeterId, Mode, Refund};
use ratelimit_memory::{Limit, MemoryConfig, MemoryStore, Timestamp};

const LIMITS: [&str; 9] = [
    "5/2s fixed",
    "5/2s",
    "5/2s precision 500ms",
    "5/2s precision 500ms strict",
    "5/2s log",
    "5/2s burst 3",
    "5/2s leaky",
    "5/2s queue",
    "5/2s staggered",
];

/// A small generator with the same numbers each time, so that failures are reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % bound
    }
}

#[derive(Default)]
struct Model(HashMap<Vec<u8>, State>);

impl Model {
    fn claim(&mut self, claims: Claims<'_>) -> Answer {
        let mut states: Vec<_> =
            claims.iter().map(|claim| self.0.get(&claim.id.to_bytes()).cloned()).collect();
        let answer = decide(&claims, &mut states);
        for (claim, state) in claims.iter().zip(states) {
            if let Some(state) = state {
                self.0.insert(claim.id.to_bytes(), state);
            }
        }
        answer
    }

    fn refund(&mut self, now: Timestamp, returned: &Refund<'_>) {
        let mut state = self.0.get(&returned.id.to_bytes()).cloned();
        if refund(&returned.meter, &mut state, returned.cost, returned.receipt, now) {
            self.0.extend(state.map(|state| (returned.id.to_bytes(), state)));
        }
    }
}

/// All combinations of a limit and one of a few keys.
fn meters(limits: &[Limit]) -> Vec<(MeterId<'_>, Meter)> {
    let keys: [&[u8]; 5] = [b"", b"a", b"key of sixteen b", b"a key that is longer than that", b"\0\xff:"];
    let of_key = |key: &'static [u8]| {
        limits.iter().map(move |limit| {
            (MeterId { namespace: "model", scope: limit.scope(), key }, limit.meter_for(key))
        })
    };
    keys.into_iter().flat_map(of_key).collect()
}

#[test]
fn the_store_answers_like_the_model() {
    let limits: Vec<Limit> = LIMITS.iter().map(|text| text.parse().unwrap()).collect();
    let meters = meters(&limits);
    let store = MemoryStore::with_config(MemoryConfig::default().shards(4));
    let (mut model, mut random) = (Model::default(), Random(7));
    let (mut newest, mut forgotten, mut admitted) = (Timestamp::from_secs(1_000), 0, 0);
    for round in 0..60_000 {
        let quiet = if random.below(200) == 0 { 5_000 } else { 150 };
        newest = newest + Duration::from_micros(random.below(quiet) as u64 * 1_000);
        // Up to a second late.
        let late = Duration::from_millis(random.below(1_001) as u64 * u64::from(random.below(3) == 0));
        let now = Timestamp::from_nanos(newest.as_nanos() - u64::try_from(late.as_nanos()).unwrap());
        let mode = [Mode::Charge, Mode::Charge, Mode::Charge, Mode::Peek, Mode::Force][random.below(5)];
        let (first, count) = (random.below(meters.len()), 1 + random.below(4));
        let claims: Vec<Claim<'_>> = (0..count)
            .map(|step| {
                let (id, meter) = meters[(first + step * 7) % meters.len()];
                Claim { id, cost: random.below(4) as u64, meter }
            })
            .collect();
        let asked = Claims::new(now, mode, &claims).unwrap();
        let before = store.len();
        let answer = store.claim_now(asked).unwrap();
        assert_eq!(answer, model.claim(asked), "{round}: {asked:?}");
        forgotten += usize::from(store.len() < before);
        admitted += usize::from(answer.admitted);
        if answer.charged && random.below(4) == 0 {
            let verdict = &answer.verdicts[0];
            let returned = Refund {
                id: claims[0].id,
                cost: claims[0].cost,
                meter: claims[0].meter,
                receipt: verdict.receipt,
            };
            store.refund_now(now, &[returned]);
            model.refund(now, &returned);
        }
        if random.below(50) == 0 {
            store.reset_now(Claims::new(now, mode, &claims[..1]).unwrap());
            model.0.remove(&claims[0].id.to_bytes());
        }
    }
    assert!(forgotten > 100 && (10_000..55_000).contains(&admitted), "{forgotten} {admitted}");
}
