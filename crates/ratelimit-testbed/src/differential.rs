//! Random histories of claims, decided by a store and by core; all verdicts must be equal.
//!
//! `RATELIMIT_DIFFERENTIAL_SEEDS` sets the number of histories that [`Differential::histories`] runs.
#![allow(clippy::cast_possible_truncation, reason = "random numbers that are small")]

mod rates;

use std::collections::HashMap;
use std::time::Duration;

use ratelimit_core::meter::{Bucket, Log, MAX_UNITS, Meter, State, Window, decide, refund};
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Receipt, Refund};
use ratelimit_core::{CounterStore, Timestamp};

/// A small random number generator; the same seed gives the same numbers. The seed must not be zero.
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`; zero if `end` is zero.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A random element.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }

    /// A number of any magnitude up to `most`.
    pub fn any(&mut self, most: u64) -> u64 {
        let bits = self.below(64 - u64::from(most.leading_zeros()) + 1);
        self.below(1u64.checked_shl(bits as u32).unwrap_or(u64::MAX).max(1)).min(most)
    }
}

/// A meter whose limit changes while its identity stays.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A window of some segments.
    Window {
        /// In nanoseconds.
        segment: u64,
        /// The number of segments that count in addition to the newest.
        carried: u32,
        /// Whether the oldest counts in full.
        strict: bool,
        /// The offset of the segments' boundaries in nanoseconds.
        offset: u64,
    },
    /// A bucket.
    Bucket {
        /// Whether it is a queue, which delays requests.
        is_queue: bool,
    },
    /// A bucket whose units drain in steps.
    Steps {
        /// The length of a step in nanoseconds; zero if units never drain.
        step: u64,
    },
    /// A sliding log.
    Log,
}

/// The longest segment of a window, in microseconds.
pub const MAX_SEGMENT: u64 = 3_660 * 86_400 * 1_000_000;

/// A random kind.
pub fn kind(random: &mut Random) -> Kind {
    match random.below(10) {
        0..5 => {
            let carried = random.pick(&[0, 1, 1, 1, 2, 3, 7, 60, 70]);
            let longest = MAX_SEGMENT / u64::from(carried.max(1));
            let segment = (random.any(longest)).max(1) * 1_000;
            let offset = if random.below(2) == 0 { 0 } else { random.below(segment / 1_000) * 1_000 };
            Kind::Window { segment, carried, strict: random.below(4) == 0, offset }
        }
        5 | 6 => Kind::Bucket { is_queue: random.below(3) == 0 },
        7 | 8 => Kind::Steps { step: if random.below(4) == 0 { 0 } else { random.any(MAX_SEGMENT * 1_000) } },
        _ => Kind::Log,
    }
}

/// A meter of this kind with a random limit.
pub fn meter(kind: Kind, random: &mut Random) -> Meter {
    match kind {
        Kind::Window { segment, carried, strict, offset } => {
            let most = random.pick(&[3, 100, 10_000, MAX_UNITS]);
            let limit = if random.below(3) == 0 { most } else { random.any(most) };
            Meter::Window(Window::new(limit, segment, carried, strict, offset).unwrap())
        }
        Kind::Bucket { is_queue } => loop {
            let interval = random.any(MAX_SEGMENT * 1_000).max(1);
            let most = random.pick(&[1, 20, 1_000, MAX_UNITS]);
            let burst = random.any(most).max(1);
            if let Ok(bucket) = Bucket::with_interval(interval, burst) {
                let immediate = if is_queue { random.any(burst) } else { u64::MAX };
                return Meter::Bucket(bucket.with_immediate(immediate));
            }
        },
        Kind::Steps { step: 0 } => {
            let most = random.pick(&[1, 20, 1_000, MAX_UNITS]);
            Meter::Bucket(Bucket::in_total(random.any(most).max(1)).unwrap())
        }
        Kind::Steps { step } => loop {
            let [most_units, most] = [(); 2].map(|()| random.pick(&[1, 20, 1_000, MAX_UNITS]));
            let [units, burst] = [most_units, most].map(|most| random.any(most).max(1));
            if let Ok(bucket) = Bucket::in_steps(units, step, burst) {
                return Meter::Bucket(bucket);
            }
        },
        Kind::Log => {
            let limit = random.pick(&[1, 2, 5, 17, 60, 300]);
            Meter::Log(Log::new(limit, random.pick(&[1_000, 1_000_000, 60_000_000_000])).unwrap())
        }
    }
}

/// A duration that is relevant for a meter, in nanoseconds.
pub fn span(meter: &Meter) -> u64 {
    match meter {
        Meter::Window(window) => window.segment(),
        Meter::Bucket(bucket) if bucket.step() > 0 => bucket.step().min(1 << 58),
        Meter::Bucket(bucket) => bucket.tolerance(),
        Meter::Log(log) => log.window(),
    }
}

/// A random instant, often one at which an error would show: the instant `hint` from which a refused claim fits, one next
/// to it, or one around a boundary. At most `back` nanoseconds before `now`.
pub fn instant(random: &mut Random, now: u64, back: u64, around: u64, hint: Option<Timestamp>) -> u64 {
    let hinted = hint.map(Timestamp::as_nanos).filter(|hint| *hint < (1 << 62));
    let next = match (random.below(10), hinted) {
        (3, _) if back > 0 => now.saturating_sub(random.below(back)),
        (0..=3, Some(hint)) => hint.saturating_add(random.below(3)).saturating_sub(1),
        (4, _) => (now / around.max(1) + 1).saturating_mul(around),
        (5, _) => now + random.below(around.max(1)),
        (6, _) => now + random.any(around.saturating_mul(3).min(1 << 58)),
        (7, _) => now + 1,
        _ => now,
    };
    // Not beyond the largest instant.
    next.max(now.saturating_sub(back)).min(1 << 61)
}

/// A cost, often close to a threshold of the limit.
pub fn cost(random: &mut Random, limit: u64) -> u64 {
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

/// A store, and core's decisions on the same claims. Panics if they differ.
pub struct Differential<S> {
    /// The store.
    pub store: S,
    back: u64,
    map: HashMap<Vec<u8>, State>,
    /// Charges that can still be refunded: index of the meter, cost, receipt.
    receipts: Vec<(usize, u64, Receipt)>,
}

impl<S: CounterStore> Differential<S> {
    /// Compares an empty store with core. Claims may be older than earlier ones by up to `back`.
    pub fn new(store: S, back: Duration) -> Self {
        Self { store, back: back.as_nanos() as u64, map: HashMap::new(), receipts: Vec::new() }
    }

    /// The decision of core, from what it has charged so far.
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

    /// Decides one slice with both.
    pub async fn claim(&mut self, claims: Claims<'_>) -> Answer {
        let answer = self.store.claim(claims).await.unwrap();
        assert_eq!(answer, self.model(&claims), "{claims:?}");
        answer
    }

    /// Decides several slices with both, in one call of the store.
    pub async fn claim_many(&mut self, slices: &[Claims<'_>]) -> Vec<Answer> {
        let answers = self.store.claim_many(slices).await;
        assert_eq!(answers.len(), slices.len());
        let check = |(claims, answer): (&Claims<'_>, Result<Answer, _>)| {
            let answer = answer.unwrap();
            assert_eq!(answer, self.model(claims), "{claims:?} of {slices:?}");
            answer
        };
        slices.iter().zip(answers).map(check).collect()
    }

    /// Resets a slice's meters in both.
    pub async fn reset(&mut self, claims: Claims<'_>) {
        self.store.reset(claims).await.unwrap();
        claims.iter().for_each(|claim| _ = self.map.remove(&claim.id.to_bytes()));
    }

    async fn refund(&mut self, now: Timestamp, refunded: Refund<'_>) {
        let mut state = self.map.get(&refunded.id.to_bytes()).cloned();
        if refund(&refunded.meter, &mut state, refunded.cost, refunded.receipt, now) {
            self.map.insert(refunded.id.to_bytes(), state.unwrap());
        }
        self.store.refund(now, &[refunded]).await.unwrap();
    }

    /// Runs `seeds` random histories of `steps` steps each; `RATELIMIT_DIFFERENTIAL_SEEDS` overrides `seeds`.
    pub async fn histories(&mut self, seeds: u64, steps: usize) {
        let wanted = std::env::var("RATELIMIT_DIFFERENTIAL_SEEDS").ok().and_then(|text| text.parse().ok());
        let seeds = wanted.unwrap_or(seeds);
        let mut counts = [0, 0];
        for seed in 1..=seeds {
            println!("seed {seed}"); // shown if it fails
            self.history(seed, steps, &mut counts).await;
            self.map.clear();
        }
        println!("{} refused, {} admitted", counts[0], counts[1]);
        assert!(counts.iter().all(|count| *count > 10 * seeds), "one-sided: {counts:?}");
    }

    /// Slices of one key's meters, one by one and in batches, mixed with refunds, resets and changes of limits.
    async fn history(&mut self, seed: u64, steps: usize, counts: &mut [u64; 2]) {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let key = format!("key {seed}").into_bytes();
        let rows = 1 + random.below(3) as usize;
        let mut now = 1_700_000_000_000_000_000 + random.any(1 << 60);
        let mut rows: Vec<Row> = (0..rows)
            .map(|nth| {
                let kind = kind(&mut random);
                Row { scope: format!("{nth}"), kind, meter: meter(kind, &mut random), hint: None }
            })
            .collect();
        self.receipts.clear();
        for _ in 0..steps {
            let nth = random.below(rows.len() as u64) as usize;
            match random.below(60) {
                0..6 => rows[nth].meter = meter(rows[nth].kind, &mut random),
                6 => {
                    let claims = [Claim { id: rows[nth].id(&key), cost: 0, meter: rows[nth].meter }];
                    self.reset(Claims::new(Timestamp::from_nanos(now), Mode::Peek, &claims).unwrap()).await;
                }
                _ => {}
            }
            // One slice, several, or several charges of one claim each, for which stores have a fast path.
            let (size, plain) = match random.below(4) {
                0 => (2 + random.below(6), true),
                1 => (2 + random.below(6), false),
                _ => (1, false),
            };
            let draws: Vec<Draw> =
                (0..size).map(|_| Draw::new(&mut random, &rows, &mut now, self.back, plain)).collect();
            let claims: Vec<Vec<Claim<'_>>> = draws.iter().map(|draw| draw.claims(&rows, &key)).collect();
            let slices: Vec<Claims<'_>> =
                draws.iter().zip(&claims).map(|(draw, claims)| draw.slice(claims)).collect();
            let answers = match slices[..] {
                [one] => vec![self.claim(one).await],
                _ => self.claim_many(&slices).await,
            };
            let mut hints = Vec::new();
            for (draw, answer) in draws.iter().zip(answers) {
                counts[usize::from(answer.admitted)] += 1;
                for (place, verdict) in answer.verdicts.iter().enumerate() {
                    hints.push((draw.first + place, verdict.fits_at.filter(|_| !verdict.fits)));
                    if answer.charged && draw.costs[place] > 0 {
                        self.receipts.push((draw.first + place, draw.costs[place], verdict.receipt));
                    }
                }
            }
            hints.into_iter().for_each(|(row, hint)| rows[row].hint = hint);
            if random.below(8) == 0 && !self.receipts.is_empty() {
                let which = random.below(self.receipts.len() as u64) as usize;
                let (row, cost, receipt) = self.receipts.swap_remove(which);
                let cost = if random.below(3) == 0 { random.below(cost) + 1 } else { cost };
                let refunded = Refund { id: rows[row].id(&key), cost, meter: rows[row].meter, receipt };
                self.refund(Timestamp::from_nanos(now), refunded).await;
            }
        }
    }
}

/// One meter of a history.
struct Row {
    scope: String,
    kind: Kind,
    meter: Meter,
    hint: Option<Timestamp>,
}

impl Row {
    fn id<'a>(&'a self, key: &'a [u8]) -> MeterId<'a> {
        MeterId { namespace: "n", scope: &self.scope, key }
    }
}

/// A slice of some neighbouring rows.
struct Draw {
    now: u64,
    mode: Mode,
    first: usize,
    costs: Vec<u64>,
}

impl Draw {
    fn new(random: &mut Random, rows: &[Row], now: &mut u64, back: u64, plain: bool) -> Self {
        let nth = random.below(rows.len() as u64) as usize;
        *now = instant(random, *now, back, span(&rows[nth].meter), rows[nth].hint);
        let modes = [Mode::Charge, Mode::Charge, Mode::Charge, Mode::Charge, Mode::Peek, Mode::Force];
        let mode = if plain { Mode::Charge } else { random.pick(&modes) };
        let first = random.below(rows.len() as u64) as usize;
        let more = if plain { 0 } else { random.below((rows.len() - first) as u64) as usize };
        let cost = |row: &Row| {
            let one = if plain { random.below(3) > 0 } else { row.hint.is_some() && random.below(3) == 0 };
            if one { 1 } else { cost(random, row.meter.limit()) }
        };
        Self { now: *now, mode, first, costs: rows[first..=first + more].iter().map(cost).collect() }
    }

    fn slice<'a>(&self, claims: &'a [Claim<'a>]) -> Claims<'a> {
        Claims::new(Timestamp::from_nanos(self.now), self.mode, claims).unwrap()
    }

    fn claims<'a>(&self, rows: &'a [Row], key: &'a [u8]) -> Vec<Claim<'a>> {
        let claim = |(row, cost): (&'a Row, &u64)| Claim { id: row.id(key), cost: *cost, meter: row.meter };
        rows[self.first..].iter().zip(&self.costs).map(claim).collect()
    }
}
