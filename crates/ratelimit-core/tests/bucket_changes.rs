//! A bucket whose limit changes, or that several limits share, compared with its definition: a debt for each rate.

use proptest::prelude::*;
use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, MAX_RATES, Meter, State};
use ratelimit_core::store::Mode;

/// A claim under one of several limits.
#[derive(Clone, Copy, Debug)]
struct Step {
    after: u64,
    limit: usize,
    cost: u64,
    forced: bool,
}

/// Instants are whole multiples of this, and intervals are it times a power of two, so that nothing is rounded.
const GRAIN: u64 = 64;
const START: u64 = 1 << 60;

fn meter(bucket: Bucket) -> Meter {
    Meter::Bucket(bucket)
}

/// Buckets with intervals of 64, 128, ... 4096 ns.
fn even_limits() -> impl Strategy<Value = Vec<Bucket>> {
    let limit =
        (0..7u32, 1..30u64).prop_map(|(power, burst)| Bucket::with_interval(GRAIN << power, burst).unwrap());
    prop::collection::vec(limit, 1..6)
}

/// Buckets with any intervals.
fn any_limits() -> impl Strategy<Value = Vec<Bucket>> {
    limits(prop_oneof![1..50u64, 1..5_000u64, 1..1_000_000u64])
}

/// Buckets of up to a million units per second, a rate up to which each can be represented.
fn usual_limits() -> impl Strategy<Value = Vec<Bucket>> {
    limits(prop_oneof![1_000..5_000u64, 1_000..1_000_000u64])
}

/// All of the burst, or part of it.
fn any_immediate() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), 1..20u64]
}

fn limits(interval: impl Strategy<Value = u64>) -> impl Strategy<Value = Vec<Bucket>> {
    let limit = (interval, prop_oneof![1..8u64, 1..80u64], any_immediate()).prop_map(
        |(interval, burst, immediate)| {
            Bucket::with_interval(interval, burst).unwrap().with_immediate(immediate)
        },
    );
    prop::collection::vec(limit, 1..6)
}

fn steps(longest: u64, forced: bool) -> impl Strategy<Value = Vec<Step>> {
    let after = prop_oneof![2 => Just(0), 6 => 0..longest / 20, 2 => 0..longest];
    let step = (after, 0..6usize, prop_oneof![Just(1), 0..12u64], 0..8u8).prop_map(
        move |(after, limit, cost, of)| Step {
            after: after / GRAIN * GRAIN,
            limit,
            cost,
            forced: forced && of == 0,
        },
    );
    prop::collection::vec(step, 1..60)
}

/// The definition: the units of each rate form a debt. The slowest debt drains at its rate. Each faster debt drains at
/// what the slower ones leave of its rate.
struct Debts {
    /// By falling interval, in parts of a unit that are divisible by all intervals.
    debts: Vec<(u64, u64)>,
    at: u64,
}

/// A unit.
const UNIT: u64 = GRAIN << 6;

impl Debts {
    fn new(limits: &[Bucket]) -> Self {
        let mut intervals: Vec<u64> = limits.iter().map(Bucket::interval).collect();
        intervals.sort_unstable_by(|one, other| other.cmp(one));
        intervals.dedup();
        Self { debts: intervals.into_iter().map(|interval| (interval, 0)).collect(), at: START }
    }

    fn drain(&mut self, now: u64) {
        let mut drained = 0;
        for (interval, debt) in &mut self.debts {
            let at_most = (now - self.at) * (UNIT / *interval) - drained;
            drained += at_most.min(*debt);
            *debt -= at_most.min(*debt);
        }
        self.at = now;
    }

    fn owed(&self) -> u64 {
        self.debts.iter().map(|(_, debt)| debt).sum()
    }

    fn debt(&mut self, interval: u64) -> &mut u64 {
        self.debts.iter_mut().find(|(of, _)| *of == interval).map(|(_, debt)| debt).unwrap()
    }
}

fn at(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// How many units are owed, counting partly drained ones in full: the same for every caller.
fn owed(state: &State, now: u64) -> u64 {
    let large = meter(Bucket::with_interval(7, 1_000_000_000).unwrap());
    large.limit() - large.verdict(state, 0, at(now), None).remaining
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10_000, ..ProptestConfig::default() })]

    #[test]
    fn units_drain_at_the_rate_that_they_were_charged_at(limits in even_limits(), steps in steps(60_000, true)) {
        let (mut debts, mut state, mut now) = (Debts::new(&limits), meter(limits[0]).fresh(), START);
        for step in steps {
            now += step.after;
            debts.drain(now);
            prop_assert_eq!(owed(&state, now), debts.owed().div_ceil(UNIT));
            let bucket = limits[step.limit % limits.len()];
            let fits = step.cost == 0 || debts.owed() + step.cost * UNIT <= bucket.burst() * UNIT;
            prop_assert_eq!(meter(bucket).fits(&state, step.cost, at(now)), fits, "{:?} on {:?}", step, state);
            if fits || step.forced {
                meter(bucket).charge(&mut state, step.cost, at(now));
                *debts.debt(bucket.interval()) += step.cost * UNIT;
            }
        }
    }

    /// For all limits, in any order.
    #[test]
    fn no_span_admits_more_than_the_largest_burst_and_fastest_rate(limits in any_limits(), steps in steps(3_000_000, false)) {
        let (mut state, mut now) = (meter(limits[0]).fresh(), START);
        let mut admitted: Vec<(u64, u64, usize)> = Vec::new();
        for step in steps {
            now += step.after;
            let limit = step.limit % limits.len();
            if meter(limits[limit]).fits(&state, step.cost, at(now)) {
                meter(limits[limit]).charge(&mut state, step.cost, at(now));
                admitted.push((now, step.cost, limit));
            }
        }
        let burst = limits.iter().map(Bucket::burst).max().unwrap();
        let interval = limits.iter().map(Bucket::interval).min().unwrap();
        let within = |burst: u64, interval: u64, of: &dyn Fn(usize) -> bool| {
            let events: Vec<_> = admitted.iter().filter(|(_, _, limit)| of(*limit)).collect();
            (0..events.len()).all(|first| {
                let mut units = 0;
                events[first..].iter().all(|(now, cost, _)| {
                    units += cost;
                    units <= burst + (now - events[first].0) / interval
                })
            })
        };
        prop_assert!(within(burst, interval, &|_| true), "all limits together: {:?}", admitted);
        for (place, limit) in limits.iter().enumerate() {
            prop_assert!(within(limit.burst(), limit.interval(), &|of| of == place), "limit {}: {:?}", place, admitted);
        }
    }

    /// A charge adds its units to what is owed, under every limit, and never costs more than them later.
    #[test]
    fn a_charge_costs_its_units(limits in any_limits(), steps in steps(3_000_000, true), one in 0..60usize, later in 0..3_000_000u64) {
        let (mut with, mut without, mut now) = (meter(limits[0]).fresh(), meter(limits[0]).fresh(), START);
        let one = one % steps.len();
        for (place, step) in steps.iter().enumerate() {
            now += step.after;
            let meter = meter(limits[step.limit % limits.len()]);
            let before = owed(&with, now);
            meter.charge(&mut with, step.cost, at(now));
            prop_assert_eq!(owed(&with, now), before + step.cost);
            if place != one {
                meter.charge(&mut without, step.cost, at(now));
            }
        }
        for now in [now, now + later / 100, now + later] {
            let (with, without) = (owed(&with, now), owed(&without, now));
            prop_assert!(with >= without && with <= without + steps[one].cost, "{} with it, {} without", with, without);
        }
    }

    /// A verdict's figures come true, on a bucket that has been charged under other limits.
    #[test]
    fn the_figures_of_a_verdict_come_true(
        limits in any_limits(), steps in steps(3_000_000, true), cost in 0..90u64,
    ) {
        let (mut state, mut now) = (meter(limits[0]).fresh(), START);
        for step in steps {
            now += step.after;
            let bucket = limits[step.limit % limits.len()];
            let meter = meter(bucket);
            let verdict = meter.verdict(&state, cost, at(now), None);
            prop_assert_eq!(verdict.fits, meter.fits(&state, cost, at(now)));
            prop_assert!(meter.fits(&state, verdict.remaining, at(now)));
            prop_assert!(!meter.fits(&state, verdict.remaining + 1, at(now)));
            match verdict.fits_at {
                None => prop_assert!(cost > bucket.burst()),
                Some(instant) if verdict.fits => prop_assert_eq!(instant, at(now)),
                Some(instant) => {
                    prop_assert!(instant > at(now) && meter.fits(&state, cost, instant));
                    prop_assert!(!meter.fits(&state, cost, at(instant.as_nanos() - 1)));
                }
            }
            prop_assert_eq!(owed(&state, verdict.reset_at.as_nanos()), 0);
            if verdict.reset_at > at(now) {
                prop_assert!(owed(&state, verdict.reset_at.as_nanos() - 1) > 0);
                prop_assert_eq!(meter.forget_at(&state), verdict.reset_at);
            }
            prop_assert!(bucket.is_queue() || verdict.ready_at == at(now), "only a queue delays");
            let mut in_one_go = state.clone();
            let mode = if step.forced { Mode::Force } else { Mode::Charge };
            let decided = meter.claim(&mut in_one_go, step.cost, at(now), mode);
            prop_assert_eq!(decided.0, step.forced || meter.fits(&state, step.cost, at(now)));
            let charged = (decided.0 && step.cost > 0).then(|| meter.charge(&mut state, step.cost, at(now)));
            prop_assert_eq!(decided.1, meter.verdict(&state, step.cost, at(now), charged));
            prop_assert_eq!(&in_one_go, &state);
            let State::Bucket(bucket) = &state else { unreachable!() };
            prop_assert!(bucket.debts.is_sorted_by(|one, other| one.interval < other.interval));
            prop_assert_eq!(State::from_bytes(&state.to_bytes()), Ok(state.clone()));
        }
    }

    /// Unless somebody may wait for a turn: an immediate refund leaves nothing of the charge, whatever was charged under other limits meanwhile, but for a
    /// nanosecond of rounding per rate. A later one returns at most what was charged.
    #[test]
    fn a_refund_gives_back_what_was_charged(
        limits in usual_limits(), steps in steps(3_000_000, true), cost in 1..50u64, others in prop::collection::vec((0..6usize, 1..30u64), 0..8),
        later in 0..300_000u64,
    ) {
        let (mut state, mut now) = (meter(limits[0]).fresh(), START);
        for step in &steps {
            now += step.after;
            meter(limits[step.limit % limits.len()]).charge(&mut state, step.cost, at(now));
        }
        let charging = meter(limits[steps[0].limit % limits.len()].with_immediate(u64::MAX));
        let (before, receipt) = (owed(&state, now), charging.charge(&mut state, cost, at(now)).receipt);
        for (limit, cost) in &others {
            meter(limits[limit % limits.len()]).charge(&mut state, *cost, at(now));
        }
        let others: u64 = others.iter().map(|(_, cost)| cost).sum();
        let mut at_once = state.clone();
        charging.refund(&mut at_once, cost, receipt, at(now));
        prop_assert!(owed(&at_once, now) >= before + others);
        let rounded = limits.len() as u64;
        prop_assert!(owed(&at_once, now + rounded) <= before + others, "{:?}", at_once);
        let now = now + later;
        let before = owed(&state, now);
        charging.refund(&mut state, cost, receipt, at(now));
        prop_assert!(owed(&state, now) <= before && owed(&state, now) + cost >= before);
    }

    /// A charge that is the last one under its limit: the refund returns what has not drained of it, and nothing else.
    #[test]
    fn a_refund_gives_back_what_has_not_drained(
        limits in even_limits(), steps in steps(60_000, true), cost in 1..50u64, others in prop::collection::vec((0..9_000u64, 0..6usize, 1..9u64), 0..9),
    ) {
        let (mut debts, mut state, mut now) = (Debts::new(&limits), meter(limits[0]).fresh(), START);
        let mut charge = |debts: &mut Debts, after: u64, limit: Bucket, cost: u64| {
            now += after / GRAIN * GRAIN;
            debts.drain(now);
            *debts.debt(limit.interval()) += cost * UNIT;
            (now, meter(limit).charge(&mut state, cost, at(now)).receipt)
        };
        for step in &steps {
            charge(&mut debts, step.after, limits[step.limit % limits.len()], step.cost);
        }
        let refunded = limits[steps[0].limit % limits.len()].with_immediate(u64::MAX);
        let (mut now, receipt) = charge(&mut debts, 0, refunded, cost);
        for (after, limit, cost) in &others {
            let limit = limits[limit % limits.len()];
            if limit.interval() != refunded.interval() {
                now = charge(&mut debts, *after, limit, *cost).0;
            }
        }
        let debt = debts.debt(refunded.interval());
        *debt -= (*debt).min(cost * UNIT);
        meter(refunded).refund(&mut state, cost, receipt, at(now));
        prop_assert_eq!(owed(&state, now), debts.owed().div_ceil(UNIT));
    }

    #[test]
    fn beyond_max_rates_the_slowest_rates_are_kept_separate(
        intervals in prop::collection::btree_set(1..100_000u64, MAX_RATES + 1..MAX_RATES * 2), order in any::<u64>(), later in 0..1_000_000u64,
    ) {
        let mut intervals: Vec<u64> = intervals.into_iter().collect();
        let (mut state, mut total) = (meter(Bucket::with_interval(1, 1).unwrap()).fresh(), 0);
        let fastest = intervals[0];
        let turned = (order % 97) as usize % intervals.len();
        intervals.rotate_left(turned);
        for (place, interval) in intervals.iter().enumerate() {
            let cost = 1 + place as u64 % 3;
            total += cost;
            meter(Bucket::with_interval(*interval, 100).unwrap()).charge(&mut state, cost, at(START));
            prop_assert_eq!(owed(&state, START), total);
        }
        let State::Bucket(bucket) = &state else { unreachable!() };
        prop_assert_eq!(bucket.debts.len(), MAX_RATES);
        prop_assert!(owed(&state, START + later) >= total.saturating_sub(later / fastest));
    }
}

fn bucket(text: &str) -> Meter {
    text.parse::<ratelimit_core::Limit>().unwrap().meter_for(b"k")
}

fn admits(meter: &Meter, state: &mut State, now: u64, most: u64) -> u64 {
    (0..most)
        .take_while(|_| {
            let fits = meter.fits(state, 1, at(now));
            if fits {
                meter.charge(state, 1, at(now));
            }
            fits
        })
        .count() as u64
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn alternating_plans_do_not_circumvent_a_limit() {
    let (slow, fast) = (bucket("1/min burst 50"), bucket("300/min burst 1"));
    let mut state = slow.fresh();
    let mut admitted = [0, 0];
    for tick in 0..300 {
        let now = START + tick * SECOND / 5;
        admitted[0] += admits(&slow, &mut state, now, 100);
        admitted[1] += admits(&fast, &mut state, now, 100);
    }
    assert_eq!(admitted, [50, 0]);

    let (slow, fast) = (bucket("10/min burst 10"), bucket("3000/min burst 100"));
    let mut state = slow.fresh();
    let mut admitted = [0, 0];
    for tick in 0..60 {
        let now = START + tick * SECOND;
        admitted[0] += admits(&slow, &mut state, now, 100);
        admitted[1] += admits(&fast, &mut state, now + SECOND / 2, 1);
    }
    assert_eq!(admitted, [19, 60]); // ten, and one every six seconds
}

#[test]
fn drained_units_stay_drained_when_the_limit_changes() {
    let (minute, second) = (bucket("1/min burst 10"), bucket("60/min burst 10"));
    for (before, after, later, left) in
        [(second, minute, 9, 9), (minute, second, 59, 0), (minute, second, 60, 1)]
    {
        let mut state = before.fresh();
        before.charge(&mut state, 10, at(START));
        let now = at(START + later * SECOND);
        assert_eq!(after.verdict(&state, 1, now, None).remaining, left);
        assert_eq!(before.verdict(&state, 1, now, None).remaining, left);
    }
    let (before, after) = (bucket("60/min burst 10"), bucket("1/min burst 20"));
    let mut state = before.fresh();
    before.charge(&mut state, 10, at(START));
    let charged = after.charge(&mut state, 1, at(START + 5 * SECOND));
    let verdict = after.verdict(&state, 1, at(START + 5 * SECOND), Some(charged));
    assert_eq!((verdict.remaining, verdict.reset_at), (14, at(START + 65 * SECOND)));
    assert_eq!(after.verdict(&state, 1, at(START + 11 * SECOND), None).remaining, 19);
}

#[test]
fn a_receipt_holds_when_the_rate_has_changed() {
    let (fast, slow) = (bucket("1000/s burst 10000"), bucket("10/s burst 10000"));
    let mut state = fast.fresh();
    let charged = fast.charge(&mut state, 10_000, at(START));
    fast.refund(&mut state, 9_900, charged.receipt, at(START));
    assert_eq!(slow.verdict(&state, 0, at(START), None).remaining, 9_900);
}

#[test]
fn queues_release_evenly_at_each_rate() {
    let (slow, fast) = (bucket("60/min queue burst 60"), bucket("600/min queue burst 60"));
    let mut state = slow.fresh();
    let mut turns = |meter: &Meter, count| -> Vec<u64> {
        (0..count)
            .map(|_| (meter.charge(&mut state, 1, at(START)).ready_at.as_nanos() - START) / 1_000_000)
            .collect()
    };
    assert_eq!(turns(&slow, 3), [0, 1_000, 2_000]);
    // At its own rate, after those before it.
    assert_eq!(turns(&fast, 3), [300, 400, 500]);
    // After all before it, and at its own rate after those of the same rate.
    assert_eq!(turns(&slow, 2), [3_000, 4_000]);
    assert_eq!(turns(&fast, 2), [800, 900]);
}
