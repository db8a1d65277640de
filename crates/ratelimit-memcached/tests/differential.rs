//! The store against core: random slices, one by one and in batches, decided by both, verdict by verdict.
#![allow(clippy::cast_possible_truncation)] // random numbers that are small

mod common;

use std::collections::HashMap;
use std::time::Duration;

use ratelimit_core::{
    Answer, Bucket, Claim, Claims, CounterStore, Log, MAX_UNITS, Meter, MeterId, Mode, Refund, State,
    Timestamp, Window, decide, refund,
};
use ratelimit_memcached::{MemcachedConfig, MemcachedStore};

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
    store: MemcachedStore,
    map: HashMap<Vec<u8>, State>,
    /// Charges that can still be given back: meter's place, cost, receipt.
    receipts: Vec<(usize, u64, Timestamp)>,
}

impl Both {
    async fn new(server: &common::Server) -> Self {
        let config = MemcachedConfig {
            // The test's clock is not the server's: nothing may expire meanwhile.
            clock_slack: Duration::from_secs(86_400),
            ..server.config()
        };
        let store = MemcachedStore::connect_with(config).await.unwrap();
        Self { store, map: HashMap::new(), receipts: Vec::new() }
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

    async fn reset(&mut self, now: Timestamp, id: MeterId<'_>, meter: Meter) {
        let claims = [Claim { id, cost: 0, meter }];
        self.store.reset(Claims::new(now, Mode::Peek, &claims).unwrap()).await.unwrap();
        self.map.remove(&id.to_bytes());
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
        (0..=3, Some(hint)) => hint.saturating_add(random.below(3)).saturating_sub(1),
        (4, _) => (now / around.max(1) + 1).saturating_mul(around),
        (5, _) => now + random.below(around.max(1)),
        (6, _) => now + random.any(around.saturating_mul(3).min(1 << 58)),
        (7, _) => now + 1,
        _ => now,
    };
    // Not back: a window cannot tell that a claim is late. Not past the end of time.
    next.max(now).min(1 << 61)
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

/// A slice of some neighbouring rows.
struct Draw {
    now: u64,
    mode: Mode,
    first: usize,
    costs: Vec<u64>,
}

fn draw(random: &mut Random, rows: &[Row], now: &mut u64) -> Draw {
    let nth = random.below(rows.len() as u64) as usize;
    *now = instant(random, *now, span(&rows[nth].meter), rows[nth].hint);
    let mode =
        random.pick(&[Mode::Charge, Mode::Charge, Mode::Charge, Mode::Charge, Mode::Peek, Mode::Force]);
    let first = random.below(rows.len() as u64) as usize;
    let end = first + 1 + random.below((rows.len() - first) as u64) as usize;
    let cost = |row: &Row| match row.hint.is_some() && random.below(3) == 0 {
        true => 1,
        false => cost(random, row.meter.limit()),
    };
    Draw { now: *now, mode, first, costs: rows[first..end].iter().map(cost).collect() }
}

/// Slices of one key's meters, one by one and in batches, with refunds, resets and changes of limits between.
async fn run(both: &mut Both, seed: u64, steps: usize) -> [usize; 2] {
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
    for step in 0..steps {
        let nth = random.below(rows.len() as u64) as usize;
        match random.below(60) {
            0..6 => rows[nth].meter = meter(rows[nth].kind, &mut random),
            6 => {
                let id = MeterId { namespace: "n", scope: &rows[nth].scope, key: &key };
                both.reset(Timestamp::from_nanos(now), id, rows[nth].meter).await;
            }
            _ => {}
        }
        let size = if random.below(4) == 0 { 2 + random.below(6) } else { 1 };
        let draws: Vec<Draw> = (0..size).map(|_| draw(&mut random, &rows, &mut now)).collect();
        let claims: Vec<Vec<Claim<'_>>> = draws.iter().map(|draw| draw.claims(&rows, &key)).collect();
        let slices: Vec<Claims<'_>> =
            draws.iter().zip(&claims).map(|(draw, claims)| draw.slice(claims)).collect();
        let answers = match slices.as_slice() {
            [one] => vec![both.store.claim(*one).await],
            many => both.store.claim_many(many).await,
        };
        assert_eq!(answers.len(), slices.len());
        let mut hints = Vec::new();
        for ((draw, claims), answer) in draws.iter().zip(&slices).zip(answers) {
            let (expected, answer) = (both.model(claims), answer.unwrap());
            assert_eq!(answer, expected, "seed {seed}, step {step}, {} slices: {claims:?}", slices.len());
            counts[usize::from(answer.admitted)] += 1;
            for (place, verdict) in answer.verdicts.iter().enumerate() {
                hints.push((draw.first + place, verdict.fits_at.filter(|_| !verdict.fits)));
                if answer.charged && draw.costs[place] > 0 {
                    both.receipts.push((draw.first + place, draw.costs[place], verdict.receipt));
                }
            }
        }
        hints.into_iter().for_each(|(row, hint)| rows[row].hint = hint);
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

impl Draw {
    fn slice<'a>(&self, claims: &'a [Claim<'a>]) -> Claims<'a> {
        Claims::new(Timestamp::from_nanos(self.now), self.mode, claims).unwrap()
    }

    fn claims<'a>(&self, rows: &'a [Row], key: &'a [u8]) -> Vec<Claim<'a>> {
        let claim = |(row, cost): (&'a Row, &u64)| Claim {
            id: MeterId { namespace: "n", scope: &row.scope, key },
            cost: *cost,
            meter: row.meter,
        };
        rows[self.first..].iter().zip(&self.costs).map(claim).collect()
    }
}

#[tokio::test]
async fn the_store_decides_as_core_does() {
    let server = common::Server::start(&["-m", "256"]).await;
    let mut both = Both::new(&server).await;
    let seeds =
        std::env::var("RATELIMIT_DIFFERENTIAL_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(600);
    let mut counts = [0, 0];
    for seed in 1..=seeds {
        let some = run(&mut both, seed, 40).await;
        counts = [counts[0] + some[0], counts[1] + some[1]];
        both.map.clear();
    }
    println!("{} refused, {} admitted", counts[0], counts[1]);
    assert!(counts.iter().all(|count| *count > 10 * seeds as usize), "one-sided: {counts:?}");
    assert_eq!(server.stat("evictions"), 0);
}
