//! The SQL against core: random slices, decided by both, verdict by verdict, on limits that change while they are in use.
//!
//! `RATELIMIT_DIFFERENTIAL_SEEDS` is the number of random histories (default 150).
#![allow(clippy::cast_possible_truncation)] // random numbers that are small

mod common;

use std::collections::HashMap;
use std::time::Duration;

use common::Schema;
use ratelimit_core::{
    Answer, Bucket, Claim, Claims, CounterStore, Log, MAX_UNITS, Meter, MeterId, Mode, Refund, State,
    Timestamp, Window, decide, refund,
};
use ratelimit_postgres::{PostgresConfig, PostgresStore};

/// A small generator: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// Any magnitude up to `most`.
    fn any(&mut self, most: u64) -> u64 {
        let bits = self.below(64 - u64::from(most.leading_zeros()) + 1);
        self.below(1u64.checked_shl(bits as u32).unwrap_or(u64::MAX).max(1)).min(most)
    }
}

/// What is charged where, kept by both.
struct Both {
    store: PostgresStore,
    schema: Schema,
    map: HashMap<Vec<u8>, State>,
    /// Charges that can still be given back: meter's place, cost, receipt.
    receipts: Vec<(usize, u64, Timestamp)>,
}

impl Both {
    async fn new() -> Self {
        let schema = Schema::new();
        let config = PostgresConfig {
            // The test's clock is not the server's: nothing may be forgotten meanwhile.
            clock_slack: Duration::from_secs(86_400),
            ..schema.config()
        };
        let store = PostgresStore::connect_with(config).await.unwrap();
        store.migrate().await.unwrap();
        Self { store, schema, map: HashMap::new(), receipts: Vec::new() }
    }

    fn model(&mut self, claims: &Claims<'_>) -> Answer {
        let mut states: Vec<_> =
            claims.iter().map(|claim| self.map.get(&claim.id.to_bytes()).cloned()).collect();
        let answer = decide(claims, &mut states);
        if answer.charged {
            for (claim, state) in claims.iter().zip(states).filter(|(claim, _)| claim.cost > 0) {
                self.map.insert(claim.id.to_bytes(), state.unwrap());
            }
        }
        answer
    }

    async fn refund(&mut self, now: Timestamp, refunds: &[Refund<'_>]) {
        for given in refunds {
            let mut state = self.map.get(&given.id.to_bytes()).cloned();
            if refund(&given.meter, &mut state, given.cost, given.receipt, now) {
                self.map.insert(given.id.to_bytes(), state.unwrap());
            }
        }
        self.store.refund(now, refunds).await.unwrap();
    }
}

/// A meter whose limit changes while its identity stays.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Window { segment: u64, carried: u32, strict: bool, offset: u64 },
    Bucket { queue: bool },
    Log,
}

const MAX_SEGMENT: u64 = 3_660 * 86_400 * 1_000_000;

fn kind(random: &mut Random) -> Kind {
    match random.below(8) {
        0..5 => {
            let carried = random.pick(&[0, 1, 1, 1, 2, 3, 7, 60, 70]);
            let longest = MAX_SEGMENT / u64::from(carried.max(1));
            let segment = (random.any(longest)).max(1) * 1_000;
            let offset = if random.below(2) == 0 { 0 } else { random.below(segment / 1_000) * 1_000 };
            Kind::Window { segment, carried, strict: random.below(4) == 0, offset }
        }
        5 | 6 => Kind::Bucket { queue: random.below(3) == 0 },
        _ => Kind::Log,
    }
}

fn meter(kind: Kind, random: &mut Random) -> Meter {
    match kind {
        Kind::Window { segment, carried, strict, offset } => {
            let most = random.pick(&[3, 100, 10_000, MAX_UNITS]);
            let limit = if random.below(3) == 0 { most } else { random.any(most).max(1) };
            Meter::Window(Window::new(limit, segment, carried, strict, offset).unwrap())
        }
        Kind::Bucket { queue } => loop {
            let interval = random.any(MAX_SEGMENT * 1_000).max(1);
            let most = random.pick(&[1, 20, 1_000, MAX_UNITS]);
            if let Ok(bucket) = Bucket::with_interval(interval, random.any(most).max(1), queue) {
                return Meter::Bucket(bucket);
            }
        },
        Kind::Log => {
            let limit = random.pick(&[1, 2, 5, 17, 60, 300]);
            Meter::Log(Log::new(limit, random.pick(&[1_000, 1_000_000, 60_000_000_000])).unwrap())
        }
    }
}

/// A length of time that matters to a meter, in nanoseconds.
fn span(meter: &Meter) -> u64 {
    match meter {
        Meter::Window(window) => window.segment(),
        Meter::Bucket(bucket) => bucket.tolerance(),
        Meter::Log(log) => log.window(),
    }
}

/// The first instant that is admitted, one off it, and around the edges: where mistakes would show.
fn instant(random: &mut Random, now: u64, around: u64, hint: Option<Timestamp>) -> u64 {
    let hinted = hint.map(Timestamp::as_nanos).filter(|hint| *hint < (1 << 62));
    let next = match (random.below(10), hinted) {
        (0..3, Some(hint)) => hint.saturating_add(random.below(3)).saturating_sub(1),
        (3, _) => now.saturating_sub(random.below(1_000_000_000)),
        (4, _) => (now / around.max(1) + 1).saturating_mul(around),
        (5, _) => now + random.below(around.max(1)),
        (6, _) => now + random.any(around.saturating_mul(3).min(1 << 58)),
        (7, _) => now + 1,
        _ => now,
    };
    // Not back by more than a store owes, not past the end of time.
    next.max(now.saturating_sub(1_000_000_000)).min(1 << 61)
}

fn cost(random: &mut Random, limit: u64) -> u64 {
    match random.below(12) {
        0 => 0,
        1 => limit,
        2 => limit + 1,
        3 => random.pick(&[MAX_UNITS, MAX_UNITS + 1, u64::MAX]),
        4..7 => random.any(limit),
        7 | 8 => random.below(limit / 2 + 1) + 1,
        _ => 1 + random.below(limit / 10 + 1),
    }
}

struct Row {
    scope: String,
    kind: Kind,
    meter: Meter,
    hint: Option<Timestamp>,
}

/// Slices of one key's meters, in batches, with refunds and changes of limits between.
async fn run(both: &mut Both, seed: u64, slices: usize) -> [usize; 2] {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut counts = [0, 0];
    let key = format!("key {seed}").into_bytes();
    let rows = 1 + random.below(3) as usize;
    let mut now = 1_700_000_000_000_000_000 + random.any(1 << 60);
    let mut rows: Vec<Row> = (0..rows)
        .map(|nth| {
            let kind = kind(&mut random);
            Row { scope: format!("{nth}"), kind, meter: meter(kind, &mut random), hint: None }
        })
        .collect();
    both.receipts.clear();
    for step in 0..slices {
        if random.below(10) == 0 {
            let nth = random.below(rows.len() as u64) as usize;
            rows[nth].meter = meter(rows[nth].kind, &mut random);
        }
        let nth = random.below(rows.len() as u64) as usize;
        now = instant(&mut random, now, span(&rows[nth].meter), rows[nth].hint);
        let mode =
            random.pick(&[Mode::Charge, Mode::Charge, Mode::Charge, Mode::Charge, Mode::Peek, Mode::Force]);
        let first = random.below(rows.len() as u64) as usize;
        let end = first + 1 + random.below((rows.len() - first) as u64) as usize;
        let claims: Vec<_> = rows[first..end]
            .iter()
            .map(|row| Claim {
                id: MeterId { namespace: "n", scope: &row.scope, key: &key },
                cost: if row.hint.is_some() && random.below(3) == 0 {
                    1
                } else {
                    cost(&mut random, row.meter.limit())
                },
                meter: row.meter,
            })
            .collect();
        let claims = Claims::new(Timestamp::from_nanos(now), mode, &claims).unwrap();
        let expected = both.model(&claims);
        let answer = both.store.claim(claims).await.unwrap();
        assert_eq!(answer, expected, "seed {seed}, step {step}: {claims:?}");
        counts[usize::from(answer.admitted)] += 1;
        let costs: Vec<_> = claims.iter().map(|claim| claim.cost).collect();
        for (place, verdict) in answer.verdicts.iter().enumerate() {
            rows[first + place].hint = verdict.fits_at.filter(|_| !verdict.fits);
            if answer.charged && costs[place] > 0 {
                both.receipts.push((first + place, costs[place], verdict.receipt));
            }
        }
        if random.below(8) == 0 && !both.receipts.is_empty() {
            let which = random.below(both.receipts.len() as u64) as usize;
            let (row, cost, receipt) = both.receipts.swap_remove(which);
            let cost = if random.below(3) == 0 { random.below(cost) + 1 } else { cost };
            let id = MeterId { namespace: "n", scope: &rows[row].scope, key: &key };
            let given = Refund { id, cost, meter: rows[row].meter, receipt };
            both.refund(Timestamp::from_nanos(now), &[given]).await;
        }
    }
    counts
}

#[tokio::test]
async fn the_functions_decide_as_core_does() {
    let mut both = Both::new().await;
    let seeds =
        std::env::var("RATELIMIT_DIFFERENTIAL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(150);
    let mut counts = [0, 0];
    for seed in 1..=seeds {
        let some = run(&mut both, seed, 60).await;
        counts = [counts[0] + some[0], counts[1] + some[1]];
        both.map.clear();
    }
    println!("{} refused, {} admitted", counts[0], counts[1]);
    assert!(counts.iter().all(|count| *count > seeds as usize), "one-sided: {counts:?}");
}

/// Of a meter that can go the short way.
fn short_kind(random: &mut Random) -> Kind {
    match kind(random) {
        Kind::Window { segment, strict, offset, .. } => {
            Kind::Window { segment, carried: random.pick(&[0, 1, 1]), strict, offset }
        }
        Kind::Log => Kind::Bucket { queue: true },
        bucket => bucket,
    }
}

/// The short way decides what it can by itself: a wrong "no" of its own would only be slower, because the long way is asked.
#[tokio::test]
async fn the_short_way_needs_no_help() {
    let mut both = Both::new().await;
    both.schema.run("ALTER FUNCTION {s}.claim_v1 RENAME TO gone").await;
    let mut random = Random(5);
    let mut counts = [0, 0];
    for round in 0..400u64 {
        let kinds = [0; 3].map(|_| short_kind(&mut random));
        let mut meters = kinds.map(|kind| meter(kind, &mut random));
        let keys = [0, 1, 2].map(|nth| [round, nth].map(u64::to_be_bytes).concat());
        let ids = [0, 1, 2].map(|nth| MeterId { namespace: "n", scope: "s", key: &keys[nth] });
        let mut now = 1_700_000_000_000_000_000 + random.any(1 << 60);
        let mut hints = [None; 3];
        for _ in 0..20 {
            // One claim; several on one meter, at an instant each, often with one limit; one on each of several meters.
            let places: &[usize] = random.pick(&[&[0], &[0, 0], &[0; 5], &[0, 1], &[2, 0, 1], &[1, 0, 1]]);
            let still = random.below(2) == 0;
            let claims: Vec<_> = places
                .iter()
                .map(|nth| {
                    if random.below(3) == 0 && !still {
                        meters[*nth] = meter(kinds[*nth], &mut random);
                    }
                    let meter = meters[*nth];
                    now = if still {
                        now + random.below(1_000)
                    } else {
                        instant(&mut random, now, span(&meter), hints[*nth])
                    };
                    let cost = cost(&mut random, meter.limit()).max(1);
                    (Timestamp::from_nanos(now), [Claim { id: ids[*nth], cost, meter }])
                })
                .collect();
            let slices: Vec<_> =
                claims.iter().map(|(now, claim)| Claims::new(*now, Mode::Charge, claim).unwrap()).collect();
            let answers = both.store.claim_many(&slices).await;
            for ((slice, answer), nth) in slices.iter().zip(answers).zip(places) {
                let answer = answer.unwrap();
                assert_eq!(answer, both.model(slice), "round {round}: {slices:?}");
                counts[usize::from(answer.admitted)] += 1;
                hints[*nth] = answer.verdicts[0].fits_at.filter(|_| !answer.admitted);
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 2_000), "one-sided: {counts:?}");
}

/// Ten units of the segment before weigh five in its middle, and not a nanosecond sooner: alone, and beside another meter.
#[tokio::test]
async fn the_short_way_needs_no_help_with_a_tie() {
    let mut both = Both::new().await;
    both.schema.run("ALTER FUNCTION {s}.claim_v1 RENAME TO gone").await;
    let segment = 1_000_000_000;
    let meter = Meter::Window(Window::new(10, segment, 1, false, 0).unwrap());
    for keys in [&[b"a"][..], &[b"b", b"c"]] {
        let middle = 1_700_000_000_500_000_000 + segment;
        for (now, cost, fits) in [(middle - segment, 10, true), (middle - 1, 5, false), (middle, 5, true)] {
            let claims: Vec<_> = keys
                .iter()
                .map(|key| [Claim { id: MeterId { namespace: "n", scope: "s", key: &key[..] }, cost, meter }])
                .collect();
            let now = Timestamp::from_nanos(now);
            let slices: Vec<_> =
                claims.iter().map(|claim| Claims::new(now, Mode::Charge, claim).unwrap()).collect();
            for (slice, answer) in slices.iter().zip(both.store.claim_many(&slices).await) {
                let answer = answer.unwrap();
                assert_eq!(answer.admitted, fits, "{slice:?}");
                assert_eq!(answer, both.model(slice), "{slice:?}");
            }
        }
    }
}

/// Ties and near ties of the weighted comparison, `oldest * (S - e) = room * S` give or take one, at sizes where a double
/// cannot tell them apart.
#[tokio::test]
async fn ties_of_the_weighted_comparison_are_decided_exactly() {
    let mut both = Both::new().await;
    let mut random = Random(77);
    let mut counts = [0, 0];
    for round in 0..200u64 {
        let key = round.to_be_bytes();
        let id = MeterId { namespace: "", scope: "tie", key: &key };
        let carried = random.pick(&[1, 1, 2, 5]);
        let segment = (1 + random.any(MAX_SEGMENT / u64::from(carried) - 1)) * 1_000;
        // The largest counts make the closest ties.
        let oldest =
            if random.below(2) == 0 { MAX_UNITS - random.below(1_000) } else { random.any(MAX_UNITS).max(1) };
        // Some instant of the segment in which `oldest` is weighted, and a room that fits it as closely as can be.
        let elapsed = if random.below(4) == 0 { 0 } else { random.below(segment) };
        let tie = u128::from(oldest) * u128::from(segment - elapsed);
        let room = (tie.div_ceil(u128::from(segment)) as u64).min(MAX_UNITS - 1);
        let start = 1_700_000_000_000_000_000 / segment + 1;
        let window =
            |limit: u64| Meter::Window(Window::new(limit.max(1), segment, carried, false, 0).unwrap());
        let then = Timestamp::from_nanos(start * segment);
        let begin = (start + u64::from(carried)) * segment;
        if begin + segment >= 1 << 62 {
            continue;
        }
        let claim = [Claim { id, cost: oldest, meter: window(MAX_UNITS) }];
        let claims = Claims::new(then, Mode::Force, &claim).unwrap();
        assert_eq!(both.store.claim(claims).await.unwrap(), both.model(&claims));
        for limit in [room - 1, room, room + 1] {
            for nanos in [0, 1, 2, 999, 1_000, 1_001] {
                for at in [begin + elapsed.saturating_sub(nanos), begin + (elapsed + nanos).min(segment - 1)]
                {
                    // Fits iff `oldest` weighted is at most `limit - 1`... with a cost of one.
                    let claim = [Claim { id, cost: 1, meter: window((limit + 1).min(MAX_UNITS)) }];
                    let claims = Claims::new(Timestamp::from_nanos(at), Mode::Peek, &claim).unwrap();
                    let answer = both.store.claim(claims).await.unwrap();
                    assert_eq!(answer, both.model(&claims), "round {round}: {claims:?}");
                    counts[usize::from(answer.admitted)] += 1;
                    if carried == 1 && nanos < 2 {
                        charged_the_short_way(&mut both, claims, then, oldest, None).await;
                        // With a unit in the newest segment already, and room for it.
                        let claim = [Claim { meter: window((limit + 2).min(MAX_UNITS)), ..claim[0] }];
                        let claims = Claims::new(Timestamp::from_nanos(at), Mode::Peek, &claim).unwrap();
                        let begin = Some(Timestamp::from_nanos(begin));
                        charged_the_short_way(&mut both, claims, then, oldest, begin).await;
                    }
                }
            }
        }
    }
    assert!(counts.iter().all(|count| *count > 500), "{counts:?}");
}

/// The same claim as a charge, which goes the short way, alone and beside another meter's; a look at what it left tells whether
/// the server decided alike. Then all is as it was before. Where there is a `begin`, a unit was charged then.
async fn charged_the_short_way(
    both: &mut Both,
    claims: Claims<'_>,
    then: Timestamp,
    oldest: u64,
    begin: Option<Timestamp>,
) {
    for alone in [true, false] {
        if let Some(begin) = begin {
            let claims = Claims::new(begin, Mode::Force, &claims).unwrap();
            assert_eq!(both.store.claim(claims).await.unwrap(), both.model(&claims));
        }
        let charge = claims.with_mode(Mode::Charge);
        if alone {
            assert_eq!(both.store.claim(charge).await.unwrap(), both.model(&charge), "{charge:?}");
        } else {
            let beside = [Claim { id: MeterId { scope: "beside", ..claims[0].id }, ..claims[0] }];
            let beside = Claims::new(charge.now(), Mode::Charge, &beside).unwrap();
            for (slice, answer) in [charge, beside].iter().zip(both.store.claim_many(&[charge, beside]).await)
            {
                assert_eq!(answer.unwrap(), both.model(slice), "{slice:?}");
            }
        }
        let look = claims.with_mode(Mode::Peek);
        assert_eq!(both.store.claim(look).await.unwrap(), both.model(&look), "{look:?}");
        both.store.reset(claims).await.unwrap();
        both.map.remove(&claims[0].id.to_bytes());
        let claim = [Claim { cost: oldest, ..claims[0] }];
        let claims = Claims::new(then, Mode::Force, &claim).unwrap();
        assert_eq!(both.store.claim(claims).await.unwrap(), both.model(&claims));
    }
}
