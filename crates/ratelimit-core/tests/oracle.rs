//! The meters compared with their definitions: every admitted unit is remembered, and the rule is applied to all of them.

use proptest::prelude::*;
use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, Log, Meter, State, Window};
use ratelimit_core::store::{Mode, Receipt};

/// One request per step; refunds refer to an earlier one.
#[derive(Clone, Debug)]
enum Step {
    Claim { after: i64, cost: u64 },
    Force { after: i64, cost: u64 },
    Refund { which: usize },
}

/// What an oracle remembers of one admitted request.
#[derive(Clone, Copy, Debug)]
struct Event {
    at: u64,
    cost: u64,
}

fn steps(most_cost: u64, longest: i64) -> impl Strategy<Value = Vec<Step>> {
    let after = prop_oneof![6 => 0..longest / 8, 2 => 0..longest * 3, 1 => -longest..0];
    let step = prop_oneof![
        8 => (after.clone(), 0..=most_cost).prop_map(|(after, cost)| Step::Claim { after, cost }),
        1 => (after, 0..=most_cost).prop_map(|(after, cost)| Step::Force { after, cost }),
        1 => (0..8usize).prop_map(|which| Step::Refund { which }),
    ];
    prop::collection::vec(step, 1..60)
}

/// Runs `steps` on the meter and on the oracle.
fn run(
    meter: &Meter,
    steps: &[Step],
    fits: impl Fn(&[Event], u64, u64) -> bool,
) -> Result<Vec<Event>, TestCaseError> {
    const START: u64 = 1_000_000_000_000_123_456;
    let (mut state, mut now, mut newest) = (meter.fresh(), START, 0);
    let mut events: Vec<Event> = Vec::new();
    let mut receipts: Vec<(Receipt, u64)> = Vec::new();
    for step in steps {
        let (after, cost, forced) = match *step {
            Step::Claim { after, cost } => (after, cost, false),
            Step::Force { after, cost } => (after, cost, true),
            Step::Refund { which } => {
                if receipts.is_empty() {
                    continue;
                }
                let which = which % receipts.len();
                let (receipt, cost) = receipts.remove(which);
                events.remove(which);
                if matches!(meter, Meter::Log(_)) {
                    // A log knows the latest instant only from its units.
                    newest = events.iter().map(|event| event.at).max().unwrap_or(0);
                }
                meter.refund(&mut state, cost, receipt, Timestamp::from_nanos(now));
                continue;
            }
        };
        now = now.saturating_add_signed(after);
        let instant = Timestamp::from_nanos(now);
        let expected = cost == 0 || fits(&events, now.max(newest), cost);
        prop_assert_eq!(meter.fits(&state, cost, instant), expected, "{:?} at {} on {:?}", step, now, state);
        consistent(meter, &state, cost, instant)?;
        if cost > 0 && (expected || forced) {
            let charged = meter.charge(&mut state, cost, instant);
            newest = newest.max(now);
            events.push(Event { at: newest, cost });
            receipts.push((charged.receipt, cost));
            consistent(meter, &state, cost, instant)?;
        }
    }
    Ok(events)
}

/// [`Meter::claim`] equals the steps that it combines.
fn claim_equals_its_steps(
    meter: &Meter,
    state: &State,
    cost: u64,
    now: Timestamp,
    mode: Mode,
) -> Result<(), TestCaseError> {
    let (mut in_one_go, mut in_steps) = (state.clone(), state.clone());
    let admitted = mode == Mode::Force || meter.fits(state, cost, now);
    let charged =
        (admitted && cost > 0 && mode != Mode::Peek).then(|| meter.charge(&mut in_steps, cost, now));
    let verdict = meter.verdict(&in_steps, cost, now, charged);
    prop_assert_eq!(meter.claim(&mut in_one_go, cost, now, mode), (admitted, verdict));
    prop_assert_eq!(in_one_go, in_steps);
    Ok(())
}

/// Tests a verdict's figures on the meter itself.
fn consistent(meter: &Meter, state: &State, cost: u64, now: Timestamp) -> Result<(), TestCaseError> {
    let verdict = meter.verdict(state, cost, now, None);
    for mode in [Mode::Charge, Mode::Peek, Mode::Force] {
        claim_equals_its_steps(meter, state, cost, now, mode)?;
    }
    let at = |nanos: u64| Timestamp::from_nanos(nanos);
    prop_assert_eq!(verdict.fits, meter.fits(state, cost, now));
    prop_assert!(verdict.remaining <= verdict.limit);
    let is_queue = matches!(meter, Meter::Bucket(bucket) if bucket.is_queue());
    let never_drains = matches!(meter, Meter::Bucket(bucket) if bucket.step() == i64::MAX as u64);
    prop_assert!(is_queue && cost > 0 || verdict.ready_at == now, "only a queue delays, and only units");
    prop_assert!(meter.fits(state, verdict.remaining, now));
    prop_assert!(!meter.fits(state, verdict.remaining + 1, now));
    match verdict.fits_at {
        None => prop_assert!(cost > meter.limit() || never_drains),
        Some(instant) if verdict.fits => prop_assert_eq!(instant, now),
        Some(instant) => {
            prop_assert!(instant > now);
            prop_assert!(meter.fits(state, cost, instant), "waiting until {:?} does not suffice", instant);
            let sooner = at(instant.as_nanos() - 1);
            prop_assert!(!meter.fits(state, cost, sooner), "waiting until {:?} is too long", instant);
        }
    }
    let remaining = |nanos: u64| meter.verdict(state, 0, at(nanos), None).remaining;
    if never_drains {
        let is_new = verdict.remaining == verdict.limit;
        prop_assert_eq!(verdict.reset_at, if is_new { now } else { Timestamp::MAX });
        return Ok(());
    }
    prop_assert_eq!(remaining(verdict.reset_at.as_nanos()), verdict.limit, "not as new at its reset");
    if verdict.reset_at > now && verdict.limit > 0 {
        prop_assert!(remaining(verdict.reset_at.as_nanos() - 1) < verdict.limit, "as new before its reset");
    }
    Ok(())
}

/// Units of the segments `first..=last`.
fn units(window: &Window, events: &[Event], first: i128, last: i128) -> u128 {
    let segment_of = |event: &&Event| i128::from((event.at + window.offset()) / window.segment());
    let inside = events.iter().filter(|event| (first..=last).contains(&segment_of(event)));
    inside.map(|event| u128::from(event.cost)).sum()
}

/// The rule of the window as documented, applied to all events.
fn window_fits(window: &Window, events: &[Event], now: u64, cost: u64) -> bool {
    let segment = u128::from(window.segment());
    let position = u128::from(now + window.offset());
    let (index, elapsed) = ((position / segment) as i128, position % segment);
    let carried = i128::from(window.carried());
    let (whole, weighted) = if window.strict() {
        (units(window, events, index - carried, index), 0)
    } else {
        let oldest = units(window, events, index - carried, index - carried);
        (units(window, events, index - carried + 1, index), oldest * (segment - elapsed))
    };
    weighted + (whole + u128::from(cost)) * segment <= u128::from(window.limit()) * segment
}

fn any_window() -> impl Strategy<Value = Window> {
    (0..40u64, 1..50u64, 0..5u32, any::<bool>(), 0..50u64).prop_map(
        |(limit, micros, carried, strict, offset)| {
            Window::new(limit, micros * 1_000, carried, strict, offset % micros * 1_000).unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn windows_decide_like_the_oracle(window in any_window(), steps in steps(12, 60_000)) {
        run(&Meter::Window(window), &steps, |events, now, cost| window_fits(&window, events, now, cost))?;
    }

    /// Counts times nanoseconds do not fit into 64 bits.
    #[test]
    fn large_windows_decide_like_the_oracle(
        (limit, hours, carried, strict) in (1..900u64, 1..100u64, 0..5u32, any::<bool>()), steps in steps(200, 60_000),
    ) {
        const MANY: u64 = 1_000_000_000_007;
        const LONG: i64 = 5_000_000_000_003;
        let window = Window::new(limit * MANY, hours * 3_600_000_000_000, carried, strict, 0).unwrap();
        // Forced charges would exceed what a window counts.
        let steps: Vec<_> = steps.into_iter().filter_map(|step| match step {
            Step::Claim { after, cost } => Some(Step::Claim { after: after / 1_000 * LONG, cost: cost * MANY }),
            Step::Force { .. } => None,
            Step::Refund { which } => Some(Step::Refund { which }),
        }).collect();
        run(&Meter::Window(window), &steps, |events, now, cost| window_fits(&window, events, now, cost))?;
    }

    #[test]
    fn strict_windows_never_exceed_the_limit_in_any_span(
        (limit, micros, carried) in (1..40u64, 1..50u64, 1..5u32),
        claims in prop::collection::vec((0..30_000i64, 0..12u64), 1..80),
    ) {
        let window = Window::new(limit, micros * 1_000, carried, true, 0).unwrap();
        let steps: Vec<_> = claims.into_iter().map(|(after, cost)| Step::Claim { after, cost }).collect();
        let events = run(&Meter::Window(window), &steps, |events, now, cost| window_fits(&window, events, now, cost))?;
        let span = window.segment() * u64::from(carried);
        for first in &events {
            let inside = events.iter().filter(|event| event.at >= first.at && event.at < first.at + span);
            prop_assert!(inside.map(|event| event.cost).sum::<u64>() <= limit);
        }
    }

    #[test]
    fn logs_decide_like_the_oracle(limit in 1..30u64, window in 1..50_000u64, refunds: bool, steps in steps(12, 60_000)) {
        // A log knows the latest instant from its units alone, so a refund may move it back; combined with steps back
        // in time, there is no simple rule to compare with. Forced units beyond the limit are not kept, so those are
        // not refunded here either.
        let possible = |step: &Step| match step {
            Step::Claim { after, .. } => !refunds || *after >= 0,
            Step::Force { .. } => !refunds,
            Step::Refund { .. } => refunds,
        };
        let steps: Vec<_> = steps.into_iter().filter(possible).collect();
        let log = Meter::Log(Log::new(limit, window).unwrap());
        run(&log, &steps, |events, now, cost| {
            let live = events.iter().filter(|event| now - event.at <= window).map(|event| event.cost).sum::<u64>();
            live + cost <= limit
        })?;
    }

    #[test]
    fn buckets_decide_like_the_oracle(
        interval in 1..20_000u64, burst in 1..20u64, immediate in 1..30u64, steps in steps(25, 60_000),
    ) {
        let steps: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Step::Refund { .. })).collect();
        let bucket = Meter::Bucket(Bucket::with_interval(interval, burst).unwrap().with_immediate(immediate));
        run(&bucket, &steps, |events, now, cost| {
            let debt = drained(events, now, interval);
            debt + u128::from(cost) * u128::from(interval) <= u128::from(burst) * u128::from(interval)
        })?;
    }

    #[test]
    fn buckets_in_steps_decide_like_the_oracle(
        units in 1..20u64, step in 1..30_000u64, burst in 1..40u64, never: bool, steps in steps(25, 60_000),
    ) {
        let bucket = match (never, Bucket::in_steps(units, step, burst)) {
            (true, _) => Bucket::in_total(burst).unwrap(),
            // Too short for so many units.
            (false, Err(_)) => return Ok(()),
            (false, Ok(bucket)) => bucket,
        };
        let steps: Vec<_> = steps.into_iter().filter(|step| !matches!(step, Step::Refund { .. })).collect();
        run(&Meter::Bucket(bucket), &steps, |events, now, cost| {
            let owed = if never {
                events.iter().map(|event| event.cost).sum()
            } else {
                owed_in_steps(events, now, units, bucket.step())
            };
            owed + cost <= burst
        })?;
    }

    #[test]
    fn a_bucket_admits_its_burst_and_its_rate_over_any_span(
        interval in 1..20_000u64, burst in 1..20u64, claims in prop::collection::vec((0..30_000i64, 0..12u64), 1..80),
    ) {
        let bucket = Meter::Bucket(Bucket::with_interval(interval, burst).unwrap());
        let steps: Vec<_> = claims.into_iter().map(|(after, cost)| Step::Claim { after, cost }).collect();
        let fits = |events: &[Event], now, cost: u64| {
            drained(events, now, interval) + u128::from(cost * interval) <= u128::from(burst * interval)
        };
        let events = run(&bucket, &steps, fits)?;
        for (place, first) in events.iter().enumerate() {
            let mut admitted = 0;
            for event in &events[place..] {
                admitted += event.cost;
                prop_assert!(admitted <= burst + (event.at - first.at) / interval);
            }
        }
    }

    #[test]
    fn a_refund_never_leaves_a_bucket_more_than_without_the_charge(
        interval in 1..5_000u64,
        charges in prop::collection::vec((0..20_000u64, 1..9u64), 1..20),
        which in 0..20usize,
        later in 0..60_000u64,
    ) {
        let bucket = Meter::Bucket(Bucket::with_interval(interval, 1_000).unwrap());
        let which = which % charges.len();
        let (mut with, mut without, mut now) = (bucket.fresh(), bucket.fresh(), 1_000_000);
        let mut receipt = None;
        for (place, (after, cost)) in charges.iter().enumerate() {
            now += after;
            let charged = bucket.charge(&mut with, *cost, Timestamp::from_nanos(now));
            if place == which {
                receipt = Some((charged.receipt, *cost));
            } else {
                bucket.charge(&mut without, *cost, Timestamp::from_nanos(now));
            }
        }
        let (receipt, cost) = receipt.unwrap();
        let last = which + 1 == charges.len();
        now += later;
        let instant = Timestamp::from_nanos(now);
        bucket.refund(&mut with, cost, receipt, instant);
        let free = |state| bucket.verdict(state, 0, instant, None).reset_at;
        prop_assert!(free(&with) >= free(&without));
        if last && later == 0 {
            prop_assert_eq!(free(&with), free(&without), "refunded at once, it is as if it never came");
        }
    }

    #[test]
    fn a_queue_releases_evenly(interval in 1..20_000u64, burst in 1..20u64, gaps in prop::collection::vec(0..20_000u64, 1..60)) {
        let queue = Meter::Bucket(Bucket::with_interval(interval, burst).unwrap().with_immediate(1));
        let (mut state, mut now, mut last) = (queue.fresh(), 1_000_000, None);
        for gap in gaps {
            now += gap;
            let instant = Timestamp::from_nanos(now);
            if !queue.fits(&state, 1, instant) {
                continue;
            }
            let ready = queue.charge(&mut state, 1, instant).ready_at.as_nanos();
            prop_assert!(ready >= now && ready - now < interval * burst);
            if let Some(last) = last {
                prop_assert!(ready >= last + interval);
            }
            last = Some(ready);
        }
    }

    #[test]
    fn turns_that_are_used_never_exceed_the_immediate_units_and_the_rate(
        interval in prop_oneof![1..5u64, 1..20_000u64], burst in 1..30u64, immediate in 1..12u64,
        calls in prop::collection::vec((0..40_000u64, 0..8u64, 0..5usize, 0..3u8), 1..40),
    ) {
        let bucket = Bucket::with_interval(interval, burst).unwrap().with_immediate(immediate);
        let immediate = bucket.immediate();
        let meter = Meter::Bucket(bucket);
        let (mut state, mut now, mut turns, mut used) = (meter.fresh(), 1_000_000, Vec::new(), Vec::new());
        let mut is_settled = false;
        for (after, cost, which, what) in calls {
            now += after * interval / 10_000;
            let instant = Timestamp::from_nanos(now);
            let place = turns.len().wrapping_sub(which + 1);
            if what == 0 && let Some((at, taken, receipt)) = turns.get(place).copied() {
                // All of it before its turn. Part of it afterwards, but only of one: several refunds are not quite exact.
                let is_over = at <= now;
                if is_over && std::mem::replace(&mut is_settled, true) {
                    continue;
                }
                let back = if is_over { cost.min(taken) } else { taken };
                meter.refund(&mut state, back, receipt, instant);
                turns.remove(place);
                used.push((at, taken - back));
            } else if meter.fits(&state, cost, instant) && cost > 0 {
                let charged = meter.charge(&mut state, cost, instant);
                turns.push((charged.ready_at.as_nanos(), cost, charged.receipt));
            }
        }
        // What is used, in the order of its use, is admitted by a bucket of the immediate units; what costs more finds it empty.
        used.extend(turns.into_iter().map(|(at, cost, _)| (at, cost)));
        used.sort_unstable();
        let mut tat = 0;
        for (nth, &(at, cost)) in used.iter().enumerate().filter(|(_, (_, cost))| *cost > 0) {
            let room = immediate.saturating_sub(cost) * interval;
            prop_assert!(tat <= at + room, "turn {} of {:?}", nth, used);
            tat = tat.max(at) + cost * interval;
        }
    }
}

/// Nanoseconds that the events' units still take to drain at `now`.
fn drained(events: &[Event], now: u64, interval: u64) -> u128 {
    let (mut debt, mut last) = (0u128, 0);
    for event in events {
        debt =
            debt.saturating_sub(u128::from(event.at - last)) + u128::from(event.cost) * u128::from(interval);
        last = event.at;
    }
    debt.saturating_sub(u128::from(now - last))
}

/// The units in a bucket at `now` if `units` of them drain at the end of each step.
fn owed_in_steps(events: &[Event], now: u64, units: u64, step: u64) -> u64 {
    let (mut owed, mut begin) = (0_u64, 0);
    let drain = |owed: u64, begin: &mut u64, now: u64| {
        let ended = (now - *begin) / step;
        *begin += ended * step;
        owed.saturating_sub(ended.saturating_mul(units))
    };
    for event in events {
        owed = drain(owed, &mut begin, event.at);
        if owed == 0 {
            begin = event.at;
        }
        owed += event.cost;
    }
    drain(owed, &mut begin, now)
}

#[test]
fn a_refund_in_steps_returns_what_has_not_drained_and_keeps_the_steps() {
    let bucket = Meter::Bucket(Bucket::in_steps(3, 3_000, 6).unwrap());
    let at = Timestamp::from_nanos;
    let mut state = bucket.fresh();
    let remaining = |state: &State, now| bucket.verdict(state, 0, at(now), None).remaining;
    let first = bucket.charge(&mut state, 4, at(10_000));
    let second = bucket.charge(&mut state, 2, at(12_999));
    bucket.refund(&mut state, 2, second.receipt, at(12_999));
    assert_eq!(remaining(&state, 12_999), 2);
    assert_eq!(remaining(&state, 13_000), 5, "the step ends when it would have");
    bucket.refund(&mut state, 4, first.receipt, at(13_000));
    assert_eq!(remaining(&state, 13_000), 6, "three of its units have drained before");
    bucket.charge(&mut state, 6, at(14_000));
    assert_eq!([16_999, 17_000].map(|now| remaining(&state, now)), [0, 3], "an empty bucket begins anew");
}

#[test]
fn numbers_at_the_edges_neither_wrap_nor_panic() {
    use ratelimit_core::meter::{MAX_LOG_UNITS, MAX_PERIOD_NANOS, MAX_SEGMENTS, MAX_UNITS};
    let year = 365 * 86_400 * 1_000_000_000;
    let window = |limit, segment, carried, strict| {
        Meter::Window(Window::new(limit, segment, carried, strict, 0).unwrap())
    };
    let bucket = |quota, period, burst, immediate| {
        Meter::Bucket(Bucket::new(quota, period, burst).unwrap().with_immediate(immediate))
    };
    let meters = [
        window(MAX_UNITS, MAX_PERIOD_NANOS, 1, false),
        window(MAX_UNITS, 1_000, MAX_SEGMENTS, false),
        window(1, MAX_PERIOD_NANOS / 3_600 / 1_000 * 1_000, MAX_SEGMENTS, true),
        window(1, 1_000, 0, false),
        bucket(MAX_UNITS / 1_000_000, MAX_PERIOD_NANOS, 1_000, 1_000),
        bucket(1, 7 * year, 10, 1),
        bucket(1_000_000_000, 1_000_000_000, MAX_UNITS, MAX_UNITS - 1),
        Meter::Bucket(Bucket::in_steps(1_000_000, MAX_PERIOD_NANOS, 7_000_000).unwrap()),
        Meter::Bucket(Bucket::in_steps(1, 1, MAX_UNITS).unwrap()),
        Meter::Bucket(Bucket::in_total(MAX_UNITS).unwrap()),
        Meter::Log(Log::new(MAX_LOG_UNITS, MAX_PERIOD_NANOS).unwrap()),
        Meter::Log(Log::new(1, 1).unwrap()),
    ];
    for meter in meters {
        for now in
            [Timestamp::EPOCH, Timestamp::from_nanos(1), Timestamp::from_secs(1_800_000_000), Timestamp::MAX]
        {
            for cost in [0, 1, meter.limit(), meter.limit() + 1, MAX_UNITS, u64::MAX] {
                let mut state = meter.fresh();
                assert_eq!(meter.fits(&state, cost, now), cost <= meter.limit(), "{meter:?} {cost}");
                for _ in 0..3 {
                    let charged = meter.charge(&mut state, cost, now);
                    let verdict = meter.verdict(&state, cost, now, Some(charged));
                    assert!(verdict.remaining <= verdict.limit);
                    assert!(verdict.reset_at >= now && verdict.reset_at.as_nanos() <= i64::MAX as u64);
                    let refused = meter.verdict(&state, cost, now, None);
                    assert!(refused.fits_at.is_none_or(|instant| instant.as_nanos() <= i64::MAX as u64));
                    meter.verdict(&state, cost, Timestamp::MAX, None);
                    meter.verdict(&state, cost, Timestamp::EPOCH, None);
                }
                let bytes = state.to_bytes();
                assert_eq!(State::from_bytes(&bytes).as_ref(), Ok(&state), "{meter:?}");
                meter.refund(&mut state, u64::MAX, Receipt::at(now), now);
            }
        }
    }
}
