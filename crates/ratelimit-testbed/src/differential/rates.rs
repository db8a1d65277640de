//! Buckets that several limits share, with limits that change.

use ratelimit_core::meter::{Bucket, MAX_RATES, MAX_UNITS, Meter, State};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Refund};
use ratelimit_core::{CounterStore, Timestamp};

use super::{Differential, MAX_SEGMENT, Random, cost, instant, span};

/// What has happened in all histories, to check that each case was covered.
#[derive(Debug, Default)]
struct Counts {
    refused: u64,
    admitted: u64,
    /// Calls that left more than one debt, and those that left the maximum number of debts.
    several: u64,
    full: u64,
    /// Refunds that gave something back with several debts.
    refunds: u64,
}

impl<S: CounterStore> Differential<S> {
    /// Runs `seeds` random histories, of `steps` steps each, of buckets that several limits charge in turn.
    pub async fn rates(&mut self, seeds: u64, steps: usize) {
        let mut counts = Counts::default();
        for seed in 1..=seeds {
            println!("seed {seed} of rates"); // shown if it fails
            let key = format!("rates {seed}").into_bytes();
            let mut history = History::new(seed, &key);
            if history.plans.len() > MAX_RATES {
                self.fill(&mut history).await;
            }
            for _ in 0..steps {
                history.change();
                self.charge(&mut history, &mut counts).await;
                self.give_back(&mut history, &mut counts).await;
            }
            self.map.clear();
        }
        println!("{counts:?}");
        let Counts { refused, admitted, several, full, refunds } = counts;
        assert!(refused.min(admitted).min(several) > 5 * seeds, "one-sided: {counts:?}");
        assert!(refunds > seeds / 2 && full > seeds / 10, "one-sided: {counts:?}");
    }

    /// Charges one bucket under all limits.
    async fn fill(&mut self, history: &mut History<'_>) {
        let (id, now) = (history.ids[0], Timestamp::from_nanos(history.now));
        let random = &mut history.random;
        let claims =
            history.plans.iter().map(|meter| [Claim { id, cost: 1 + random.below(3), meter: *meter }]);
        let claims: Vec<_> = claims.collect();
        let slices: Vec<_> =
            claims.iter().map(|claim| Claims::new(now, Mode::Force, claim).unwrap()).collect();
        self.claim_many(&slices).await;
    }

    /// One slice or several; of one limit, for which some stores have a fast path, or of any.
    async fn charge(&mut self, history: &mut History<'_>, counts: &mut Counts) {
        let random = &mut history.random;
        let (size, same) = (random.pick(&[1, 1, 1, 1, 3, 6]), random.below(2) == 0);
        let mut meter = random.pick(&history.plans);
        let mut draws = Vec::new();
        for _ in 0..size {
            meter = if same { meter } else { random.pick(&history.plans) };
            history.now = instant(random, history.now, self.back, span(&meter), history.hint);
            let mut claim = |id| {
                let cost = if random.below(2) == 0 { 1 } else { cost(random, meter.limit()) };
                Claim { id, cost, meter }
            };
            let claims = history.ids.map(&mut claim);
            let part = random.pick(&[0..1, 0..1, 0..1, 1..2, 0..2].map(|part| (part.start, part.end)));
            let modes = [Mode::Charge, Mode::Charge, Mode::Charge, Mode::Charge, Mode::Peek, Mode::Force];
            draws.push((Timestamp::from_nanos(history.now), random.pick(&modes), claims, part));
        }
        let slices: Vec<Claims<'_>> = draws
            .iter()
            .map(|(now, mode, claims, part)| Claims::new(*now, *mode, &claims[part.0..part.1]).unwrap())
            .collect();
        let answers = match slices[..] {
            [one] => vec![self.claim(one).await],
            _ => self.claim_many(&slices).await,
        };
        for ((_, _, claims, part), answer) in draws.iter().zip(answers) {
            *if answer.admitted { &mut counts.admitted } else { &mut counts.refused } += 1;
            history.hint = answer.verdicts[0].fits_at.filter(|_| !answer.admitted);
            for (Claim { id, cost, meter }, verdict) in claims[part.0..part.1].iter().zip(&answer.verdicts) {
                if answer.charged && *cost > 0 {
                    let (id, cost, meter, receipt) = (*id, *cost, *meter, verdict.receipt);
                    history.charges.push(Refund { id, cost, meter, receipt });
                }
            }
        }
        let debts = self.debts(&history.ids[0]);
        counts.several += u64::from(debts > 1);
        counts.full += u64::from(debts == MAX_RATES);
    }

    /// Sometimes refunds one of the last charges, wholly or partly, and peeks at the result.
    async fn give_back(&mut self, history: &mut History<'_>, counts: &mut Counts) {
        let random = &mut history.random;
        if random.below(3) > 0 || history.charges.is_empty() {
            return;
        }
        let nth = history.charges.len() - 1 - random.below(history.charges.len().min(6) as u64) as usize;
        let mut refunded = history.charges.swap_remove(nth);
        if random.below(3) == 0 {
            refunded.cost = random.below(refunded.cost) + 1;
        }
        if random.below(6) == 0 {
            refunded.meter = random.pick(&history.plans); // of another limit
        }
        let (id, meter, now) = (refunded.id, random.pick(&history.plans), Timestamp::from_nanos(history.now));
        let (debts, before) = (self.debts(&id), self.map.get(&id.to_bytes()).cloned());
        self.refund(now, refunded).await;
        let changed = before != self.map.get(&id.to_bytes()).cloned();
        counts.refunds += u64::from(changed && debts > 1);
        let look = [Claim { id, cost: 1, meter }];
        self.claim(Claims::new(now, Mode::Peek, &look).unwrap()).await;
    }

    fn debts(&self, id: &MeterId<'_>) -> usize {
        match self.map.get(&id.to_bytes()) {
            Some(State::Bucket(state)) => state.debts.len(),
            _ => 0,
        }
    }
}

/// Two buckets, and the limits that charge them.
struct History<'k> {
    random: Random,
    ids: [MeterId<'k>; 2],
    rates: Rates,
    plans: Vec<Meter>,
    now: u64,
    hint: Option<Timestamp>,
    charges: Vec<Refund<'k>>,
}

impl<'k> History<'k> {
    fn new(seed: u64, key: &'k [u8]) -> Self {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let rates = Rates::new(&mut random);
        let plans = random.pick(&[2, 2, 3, 3, 5, 24]);
        Self {
            ids: ["a", "b"].map(|scope| MeterId { namespace: "n", scope, key }),
            plans: (0..plans).map(|_| rates.meter(&mut random)).collect(),
            now: 1_700_000_000_000_000_000 + random.any(1 << 60),
            hint: None,
            charges: Vec::new(),
            random,
            rates,
        }
    }

    /// Sometimes changes a limit.
    fn change(&mut self) {
        if self.random.below(20) == 0 {
            let nth = self.random.below(self.plans.len() as u64) as usize;
            self.plans[nth] = self.rates.meter(&mut self.random);
        }
    }
}

/// The rates of one history: close enough to each other that their debts meet, or arbitrary.
struct Rates {
    fastest: u64,
    slowest: u64,
    burst: u64,
}

impl Rates {
    fn new(random: &mut Random) -> Self {
        let longest = MAX_SEGMENT * 1_000;
        let fastest = random.any(longest / 50).max(1);
        let apart = random.pick(&[3, 50, 1_000_000]);
        let slowest = fastest.saturating_mul(apart).min(longest);
        Self { fastest, slowest, burst: random.pick(&[3, 20, 1_000, MAX_UNITS]) }
    }

    fn meter(&self, random: &mut Random) -> Meter {
        loop {
            let interval = self.fastest + random.any(self.slowest - self.fastest);
            let burst = random.any(self.burst).max(1);
            if let Ok(bucket) = Bucket::with_interval(interval, burst) {
                let immediate = if random.below(3) == 0 { random.any(burst) } else { u64::MAX };
                return Meter::Bucket(bucket.with_immediate(immediate));
            }
        }
    }
}
