//! Random claims, refunds and resets get, verdict by verdict, the answers of `decide` on a map.

mod common;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use common::{Random, Schema};
use ratelimit_core::{
    Answer, Claim, Claims, CounterStore, Limit, MAX_UNITS, Meter, MeterId, Mode, Refund, State, Timestamp,
    decide, refund,
};
use ratelimit_postgres::PostgresStore;

/// Each line is one meter on a key, with limits that follow one another on it.
const METERS: [&[&str]; 16] = [
    &["5/2s fixed", "9/2s fixed", "2/2s fixed"],
    &["5/2s", "40/2s", "3/2s"],
    &["997/2s name c", "1009/2s name c"],
    &["5/2s precision 500ms", "11/2s precision 500ms"],
    &["50/2s precision 100ms strict", "30/2s precision 100ms strict"],
    &["31/2s precision 100ms", "37/2s precision 100ms"],
    &["5/2s log", "8/2s log", "2/2s log"],
    &["70/2s log name d", "60/2s log name d"],
    &["5/2s burst 3", "5/2s burst 9"],
    &["7/2s burst 5 name b", "13/2s burst 5 name b", "2/3s burst 20 name b"],
    &["5/2s leaky", "6/2s leaky"],
    &["5/2s queue", "3/2s queue"],
    &["5/2s staggered", "7/2s staggered"],
    &["999999999999999/2s name e", "999999999999998/2s name e"],
    &["999999999999999/7s precision 1s", "900000000000000/7s precision 1s"],
    &["1000000/s burst 1000000", "1000000/s burst 900000"],
];

const LONG: [u8; 300] = [0xa5; 300];
const KEYS: [&[u8]; 5] = [b"", b"a", b"\0\xff:'\"", &LONG, b"last"];

#[derive(Default)]
struct Model(HashMap<Vec<u8>, State>);

impl Model {
    fn claim(&mut self, claims: Claims<'_>) -> Answer {
        let mut states: Vec<_> =
            claims.iter().map(|claim| self.0.get(&claim.id.to_bytes()).cloned()).collect();
        let answer = decide(&claims, &mut states);
        for (claim, state) in claims.iter().zip(states) {
            if let (Some(state), true) = (state, answer.charged && claim.cost > 0) {
                self.0.insert(claim.id.to_bytes(), state);
            }
        }
        answer
    }

    fn refund(&mut self, now: Timestamp, given: &Refund<'_>) {
        let mut state = self.0.get(&given.id.to_bytes()).cloned();
        if refund(&given.meter, &mut state, given.cost, given.receipt, now) {
            self.0.extend(state.map(|state| (given.id.to_bytes(), state)));
        }
    }

    /// What would just fit on this meter.
    fn remaining(&self, id: MeterId<'_>, meter: Meter, now: Timestamp) -> u64 {
        let fresh = meter.fresh();
        let state = self.0.get(&id.to_bytes()).filter(|state| meter.owns(state)).unwrap_or(&fresh);
        meter.verdict(state, 0, now, None).remaining
    }
}

struct Run {
    store: PostgresStore,
    model: Model,
    random: Random,
    limits: Vec<Vec<Limit>>,
    newest: Timestamp,
    admitted: usize,
    decided: usize,
}

impl Run {
    /// Mostly a little later than before, at times long after, at times up to a second back.
    fn now(&mut self) -> Timestamp {
        let quiet = self.random.one(&[1_u64, 50_000, 150_000_000, 150_000_000, 2_500_000_000]);
        let step = self.random.below(usize::try_from(quiet).unwrap());
        self.newest = self.newest + Duration::from_nanos(step as u64);
        let late = if self.random.below(3) == 0 { self.random.below(1_000_000_001) } else { 0 };
        Timestamp::from_nanos(self.newest.as_nanos() - late as u64)
    }

    fn cost(&mut self, id: MeterId<'_>, meter: Meter, now: Timestamp) -> u64 {
        let room = self.model.remaining(id, meter, now);
        match self.random.below(16) {
            0 => 0,
            1..=3 => room,
            4..=6 => room + 1,
            7 => room / 2,
            8 => meter.limit(),
            9 => meter.limit() + 1,
            10 if self.random.below(8) == 0 => {
                self.random.one(&[u64::MAX, MAX_UNITS, MAX_UNITS + 1, 1 << 62])
            }
            _ => 1 + self.random.below(3) as u64,
        }
    }

    /// The parts of a random slice: the place of a limit, the limit, the key.
    fn parts(&mut self) -> Vec<(usize, usize, usize)> {
        let mut seen = HashSet::new();
        let number = self.random.one(&[1, 1, 1, 2, 2, 3, 4]);
        let mut parts: Vec<_> = (0..number)
            .map(|_| {
                let meter = self.random.below(METERS.len());
                (meter, self.random.below(METERS[meter].len()), self.random.below(KEYS.len()))
            })
            .collect();
        parts.retain(|(meter, _, key)| seen.insert((*meter, *key)));
        parts
    }

    async fn round(&mut self) {
        let now = self.now();
        let number = self.random.one(&[1, 1, 1, 2, 5]);
        let limits = self.limits.clone();
        let mut asked = Vec::new();
        for _ in 0..number {
            let mode = self.random.one(&[
                Mode::Charge,
                Mode::Charge,
                Mode::Charge,
                Mode::Charge,
                Mode::Peek,
                Mode::Force,
            ]);
            let mut claims = Vec::new();
            for (meter, limit, key) in self.parts() {
                let limit = &limits[meter][limit];
                let id = MeterId { namespace: "model", scope: limit.scope(), key: KEYS[key] };
                let meter = limit.meter_for(KEYS[key]);
                let cost = self.cost(id, meter, now);
                // Now and then a huge forced charge; most of the time it would only fill everything up.
                let cost = if mode == Mode::Force && self.random.below(4) > 0 { cost.min(2) } else { cost };
                claims.push(Claim { id, cost, meter });
            }
            asked.push((mode, claims));
        }
        let slices: Vec<_> =
            asked.iter().map(|(mode, claims)| Claims::new(now, *mode, claims).unwrap()).collect();
        let answers = match &slices[..] {
            [one] => vec![self.store.claim(*one).await],
            many => self.store.claim_many(many).await,
        };
        assert_eq!(answers.len(), slices.len());
        let mut last = None;
        for (slice, answer) in slices.iter().zip(answers) {
            let before: Vec<_> =
                slice.iter().map(|claim| self.model.0.get(&claim.id.to_bytes()).cloned()).collect();
            let answer = answer.unwrap();
            assert_eq!(answer, self.model.claim(*slice), "{}: {slice:?} on {before:?}", self.decided);
            self.decided += 1;
            self.admitted += usize::from(answer.admitted);
            last = Some((slice, answer));
        }
        if let Some((slice, answer)) = last {
            self.afterwards(slice, &answer).await;
        }
    }

    /// At times gives back or forgets what was claimed.
    async fn afterwards(&mut self, slice: &Claims<'_>, answer: &Answer) {
        let last = self.random.below(6);
        if answer.charged && last == 0 {
            let later = self.random.one(&[0, 300_000_000, 1_700_000_000]);
            let now = slice.now() + Duration::from_nanos(later);
            let less = self.random.below(2) as u64;
            let given: Vec<_> = slice
                .iter()
                .zip(&answer.verdicts)
                .map(|(claim, verdict)| {
                    let cost = claim.cost.saturating_sub(less);
                    Refund { id: claim.id, cost, meter: claim.meter, receipt: verdict.receipt }
                })
                .collect();
            self.store.refund(now, &given).await.unwrap();
            given.iter().for_each(|given| self.model.refund(now, given));
        } else if last == 1 {
            let given = slice[0].id;
            self.store.reset(&[given]).await.unwrap();
            self.model.0.remove(&given.to_bytes());
        }
    }
}

async fn run(seed: u64, slices: usize) {
    let schema = Schema::new();
    let limits =
        METERS.iter().map(|texts| texts.iter().map(|text| text.parse().unwrap()).collect()).collect();
    let newest = Timestamp::from_secs(1_000_000);
    let store = schema.store().await;
    let mut run =
        Run { store, model: Model::default(), random: Random(seed), limits, newest, admitted: 0, decided: 0 };
    while run.decided < slices {
        run.round().await;
    }
    let share = run.admitted * 100 / run.decided;
    assert!((20..90).contains(&share), "{share} % admitted: the numbers test too little");
}

#[tokio::test]
async fn the_store_answers_like_the_model() {
    run(7, 20_000).await;
}

#[tokio::test]
async fn and_with_other_numbers() {
    run(20_261_121, 20_000).await;
}
