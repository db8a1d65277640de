//! Buckets that limits of several rates share, in random sequences: invariants for any limits in any order.

use std::time::Duration;

use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Answer, Claim, Claims, MeterId, Mode, Receipt, Refund};
use ratelimit_core::{Algorithm, Clock as _, DynCounterStore, Limit, StoreError, SystemClock, Timestamp};

use crate::bench::{Bench, limit};
use crate::case::Case;
use crate::clock::START;
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;
use crate::random::Random;

/// The number of sequences of each kind that every store gets. A store without a server gets up to ten times as many, as
/// long as they take less than [`LONGER`].
const SEQUENCES: usize = 340;

/// The time for further sequences, far below the time limit of a case.
const LONGER: Duration = Duration::from_secs(10);

/// The number of sequences that run together: each step of all of them is one call.
const TOGETHER: usize = 20;

/// The number of steps of a sequence.
const STEPS: u64 = 12;

/// The name of every limit: they share a meter.
const NAME: &str = "shared";

pub(super) fn cases() -> Vec<Case> {
    Case::for_each(
        &[Kind::Bucket, Kind::Leaky, Kind::Queue],
        "changes/any-sequence",
        "In any sequence of limits on one bucket: no span admits more than the largest burst and the fastest rate, nor more \
         under one limit than that limit allows; a charge costs its units; a refund returns units that have not drained.",
        any_sequence,
    )
}

async fn any_sequence(bench: Bench, kind: Kind) -> CaseResult {
    let most = if bench.space.address().is_some() { SEQUENCES } else { SEQUENCES * 10 };
    let mut random = bench.random();
    let (mut begun, mut now) = (0, START);
    let clock = SystemClock::new();
    let enough = clock.now() + LONGER;
    while begun < SEQUENCES || (begun < most && clock.now() < enough) {
        // Most sequences run together, and some alone, because stores may treat single calls differently.
        let size = if random.chance(50) { TOGETHER } else { 1 };
        let new = |nth| Sequence::new(kind, begun + nth, &mut random);
        let mut group = (0..size).map(new).collect::<CaseResult<Vec<_>>>()?;
        for _ in 0..STEPS {
            // One clock for all, because a store may remove meters by the time of any caller.
            now = group[random.place(size)].later(now, &mut random);
            group.iter_mut().for_each(|sequence| sequence.now = now);
            step(&bench, &mut group, size > 1).await?;
            tokio::task::yield_now().await; // a store in this process may never yield
        }
        begun += size;
    }
    Ok(())
}

/// One claim of each sequence, with a peek before and after it; then refunds of some, and peeks at those.
async fn step(bench: &Bench, group: &mut [Sequence], together: bool) -> CaseResult {
    let asks: Vec<Ask> = group.iter_mut().map(Sequence::next).collect();
    let claims: Vec<[[Claim<'_>; 1]; 2]> =
        group.iter().zip(&asks).map(|(sequence, ask)| [sequence.look(), sequence.claim(ask)]).collect();
    let mut slices = Vec::new();
    for ([look, claim], sequence) in claims.iter().zip(&*group) {
        for (mode, claim) in [(Mode::Peek, look), (Mode::Charge, claim), (Mode::Peek, look)] {
            slices.push(Claims::new(sequence.now, mode, claim)?);
        }
    }
    let answers = decide(bench, &slices, together).await?;
    for ((sequence, ask), answers) in group.iter_mut().zip(&asks).zip(answers.chunks(3)) {
        sequence.check(ask, answers)?;
    }
    give_back(bench, group, together).await
}

async fn give_back(bench: &Bench, group: &mut [Sequence], together: bool) -> CaseResult {
    let chosen = group.iter_mut().enumerate();
    let chosen: Vec<_> = chosen.filter_map(|(nth, sequence)| Some((nth, sequence.choose()?))).collect();
    let Some(now) = chosen.first().map(|(nth, _)| group[*nth].now) else { return Ok(()) };
    let refunds: Vec<Refund<'_>> = chosen.iter().map(|(nth, charge)| group[*nth].refund(*charge)).collect();
    bench.store.dyn_refund(now, &refunds).await?;
    let looks: Vec<[Claim<'_>; 1]> = chosen.iter().map(|(nth, _)| group[*nth].look()).collect();
    let slices: Result<Vec<_>, _> = looks.iter().map(|look| Claims::new(now, Mode::Peek, look)).collect();
    let answers = decide(bench, &slices?, together).await?;
    for ((nth, charge), answer) in chosen.into_iter().zip(answers) {
        group[nth].check_refund(charge, &answer)?;
    }
    Ok(())
}

async fn decide(bench: &Bench, slices: &[Claims<'_>], together: bool) -> CaseResult<Vec<Answer>> {
    if together {
        let answers: Result<_, StoreError> = bench.store.dyn_claim_many(slices).await.into_iter().collect();
        return Ok(answers?);
    }
    let mut answers = Vec::new();
    for slice in slices {
        answers.push(bench.store.dyn_claim(*slice).await?);
    }
    Ok(answers)
}

/// Limits that alternate on one meter.
struct Sequence {
    key: String,
    limits: Vec<Limit>,
    /// Shows how much the bucket holds. Nothing is charged under it.
    large: Limit,
    now: Timestamp,
    random: Random,
    charges: Vec<Charge>,
    /// The units that the bucket owes after the last claim.
    owed: u64,
}

/// The next call.
struct Ask {
    limit: usize,
    cost: u64,
}

/// An admitted claim. `cost` is the part that was not refunded.
struct Charge {
    limit: usize,
    cost: u64,
    at: Timestamp,
    receipt: Receipt,
}

fn interval(limit: &Limit) -> u64 {
    match limit.meter_for(b"") {
        Meter::Bucket(bucket) => bucket.interval(),
        _ => 1,
    }
}

impl Sequence {
    fn new(kind: Kind, number: usize, random: &mut Random) -> CaseResult<Self> {
        let mut limits = Vec::new();
        for _ in 0..random.between(2, 5) {
            let (quota, burst) = (random.between(1, 60), random.between(1, 40));
            let period =
                std::time::Duration::from_millis([1, 1_000, 1_000, 60_000, 3_600_000][random.place(5)]);
            limits.push(kind.builder(quota, period).burst(burst).name(NAME).build()?);
        }
        let word = match kind {
            Kind::Leaky => "leaky ",
            Kind::Queue => "queue ",
            _ => "",
        };
        let large = limit(&format!("1/s {word}burst 1000000 name {NAME}"))?;
        let random = Random::new(random.bits());
        Ok(Self {
            key: format!("key {number}"),
            limits,
            large,
            now: START,
            random,
            charges: Vec::new(),
            owed: 0,
        })
    }

    fn id<'a>(&'a self, limit: &'a Limit) -> MeterId<'a> {
        MeterId { namespace: "", scope: limit.scope(), key: self.key.as_bytes() }
    }

    fn look(&self) -> [Claim<'_>; 1] {
        [Claim { id: self.id(&self.large), cost: 0, meter: self.large.meter_for(self.key.as_bytes()) }]
    }

    fn claim(&self, ask: &Ask) -> [Claim<'_>; 1] {
        let limit = &self.limits[ask.limit];
        [Claim { id: self.id(limit), cost: ask.cost, meter: limit.meter_for(self.key.as_bytes()) }]
    }

    /// The same instant, or a later one by a time that matters to one of the limits.
    fn later(&self, now: Timestamp, random: &mut Random) -> Timestamp {
        let limit = &self.limits[random.place(self.limits.len())];
        let passed = match random.below(4) {
            0 => 0,
            1 => random.below(interval(limit)),
            2 => random.below(interval(limit) * 3),
            _ => random.below(interval(limit) * limit.burst()),
        };
        Timestamp::from_nanos(now.as_nanos() + passed)
    }

    fn next(&mut self) -> Ask {
        let limit = self.random.place(self.limits.len());
        let burst = self.limits[limit].burst();
        let cost = if self.random.chance(50) { 1 } else { self.random.between(1, burst) };
        Ask { limit, cost }
    }

    fn owed(&self, look: &Answer) -> u64 {
        self.large.burst() - look.verdicts[0].remaining
    }

    fn check(&mut self, ask: &Ask, answers: &[Answer]) -> CaseResult {
        let [before, answer, after] = answers else { return Ok(()) };
        let (before, after) = (self.owed(before), self.owed(after));
        let burst = self.limits[ask.limit].burst();
        let verdict = answer.verdicts[0];
        ensure_eq!(answer.admitted, before + ask.cost <= burst, "admitted, {}", self.story(ask, before));
        let charged = if answer.admitted { ask.cost } else { 0 };
        ensure_eq!(after, before + charged, "owed after it, {}", self.story(ask, before));
        ensure_eq!(verdict.remaining, burst.saturating_sub(after), "remaining, {}", self.story(ask, before));
        self.owed = after;
        if answer.admitted {
            let (limit, cost, at, receipt) = (ask.limit, ask.cost, self.now, verdict.receipt);
            self.charges.push(Charge { limit, cost, at, receipt });
            self.check_spans(ask, before)?;
        }
        Ok(())
    }

    /// All spans that end now.
    fn check_spans(&self, ask: &Ask, before: u64) -> CaseResult {
        let burst = self.limits.iter().map(Limit::burst).max().unwrap_or(0);
        let fastest = self.limits.iter().map(interval).min().unwrap_or(1);
        let limit = &self.limits[ask.limit];
        let (mut all, mut of_own) = (0, 0);
        for charge in self.charges.iter().rev() {
            let span = self.now.as_nanos() - charge.at.as_nanos();
            all += charge.cost;
            ensure!(
                all <= burst + span / fastest,
                "{all} units in {span} ns under all limits, {}",
                self.story(ask, before)
            );
            if charge.limit == ask.limit {
                of_own += charge.cost;
                ensure!(
                    of_own <= limit.burst() + span / interval(limit),
                    "{of_own} units in {span} ns under {limit} alone, {}",
                    self.story(ask, before)
                );
            }
        }
        Ok(())
    }

    /// Sometimes chooses a charge to refund: the newest one under one of the limits, whose drained part is known.
    fn choose(&mut self) -> Option<usize> {
        let limit = self.random.place(self.limits.len());
        let newest = self.charges.iter().rposition(|charge| charge.limit == limit && charge.cost > 0);
        newest.filter(|_| self.random.chance(15))
    }

    fn refund(&self, charge: usize) -> Refund<'_> {
        let Charge { limit, cost, receipt, .. } = self.charges[charge];
        let limit = &self.limits[limit];
        Refund { id: self.id(limit), cost, meter: limit.meter_for(self.key.as_bytes()), receipt }
    }

    fn check_refund(&mut self, charge: usize, look: &Answer) -> CaseResult {
        let (before, after) = (self.owed, self.owed(look));
        let Charge { limit, cost, at, .. } = self.charges[charge];
        let story = self.story(&Ask { limit, cost }, before);
        ensure!(after <= before && after + cost >= before, "owed after a refund: {after}, {story}");
        // In a queue, others may wait for turns after it.
        let is_kept = after == before && self.limits[limit].algorithm() == Algorithm::LeakyQueue;
        if at == self.now && !is_kept {
            ensure_eq!(after, before - cost, "owed after a refund at once, {story}");
        }
        // The refund returned the part that had not drained, perhaps with a fraction of a unit. The rest was used.
        let part = u64::from(at < self.now);
        self.charges[charge].cost = cost.saturating_sub(before - after + part);
        Ok(())
    }

    fn story(&self, ask: &Ask, owed: u64) -> String {
        let limits: Vec<String> = self.limits.iter().map(ToString::to_string).collect();
        let Ask { limit, cost } = ask;
        format!(
            "{cost} under {} of [{}] on {:?} at {:?}, {owed} owed before",
            limits[*limit],
            limits.join("; "),
            self.key,
            self.now.since(START)
        )
    }
}
