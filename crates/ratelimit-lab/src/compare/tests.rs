//! Tests of the comparison: on requests whose right decisions are known.

use ratelimit_core::Timestamp;

use super::counted::{Counter, Truth};
use super::*;

fn seconds(seconds: &[f64]) -> Vec<(Timestamp, u64)> {
    let begin = Timestamp::from_secs(1_767_571_200);
    seconds.iter().map(|second| (begin + std::time::Duration::from_secs_f64(*second), 1)).collect()
}

fn judged(limit: &str, keys: &[Vec<(Timestamp, u64)>]) -> Totals {
    let mut judge = Judge::new(&limit.parse().unwrap()).unwrap();
    for (number, requests) in keys.iter().enumerate() {
        let key = number.to_string();
        // In parts of seven requests, since long logs are judged in parts, too.
        for part in requests.chunks(7) {
            judge.judge(key.as_bytes(), part).unwrap();
        }
        judge.end(key.as_bytes()).unwrap();
    }
    judge.totals
}

/// Twelve requests around the end of a minute, of which ten are allowed in a minute.
fn boundary() -> Vec<(Timestamp, u64)> {
    seconds(&[58.0, 58.1, 58.2, 58.3, 58.4, 58.5, 58.6, 58.7, 58.8, 58.9, 60.0, 60.1])
}

#[test]
fn a_fixed_window_admits_too_many_around_a_boundary() {
    let totals = judged("10/min fixed", &[boundary()]);
    assert_eq!(
        (totals.admitted, totals.wrongly_admitted, totals.wrongly_refused, totals.most),
        (12, 2, 0, 12)
    );
    assert_eq!((totals.keys_above, totals.keys_refused_wrongly), (1, 0));
    // Of the last two requests, the window counts one and two; in the minute before them are eleven and twelve.
    assert!((totals.differences - (10.0 / 11.0 + 10.0 / 12.0)).abs() < 1e-9, "{}", totals.differences);
}

#[test]
fn an_admission_that_costs_nothing_is_never_wrong() {
    let mut requests = boundary();
    requests.extend(seconds(&[60.2]).into_iter().map(|(time, _)| (time, 0)));
    let totals = judged("10/min fixed", &[requests]);
    assert_eq!((totals.admitted, totals.wrongly_admitted), (13, 2));
}

#[test]
fn a_log_is_never_wrong() {
    let totals = judged("10/min log", &[boundary(), boundary()]);
    assert_eq!(
        (totals.admitted, totals.wrongly_admitted, totals.wrongly_refused, totals.most),
        (20, 0, 0, 10)
    );
    assert_eq!((totals.keys_above, totals.differences, totals.waits.longest().is_some()), (0, 0.0, true));
}

#[test]
fn a_sliding_window_counter_is_wrong_where_the_previous_window_was_uneven() {
    // Ten requests at the beginning of a minute. Halfway through the next minute none of them is in the minute before,
    // but five are counted.
    let early =
        seconds(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 90.0, 90.0, 90.0, 90.0, 90.0, 90.0]);
    let totals = judged("10/min", &[early]);
    assert_eq!((totals.admitted, totals.wrongly_admitted, totals.wrongly_refused), (15, 0, 1));
    assert_eq!(totals.keys_refused_wrongly, 1);
    // A refusal is wrong, too, if the log has room for just one more request.
    let totals = judged("2/min", &[seconds(&[0.0, 0.0, 90.0, 90.0])]);
    assert_eq!((totals.admitted, totals.wrongly_refused), (3, 1));
    // Ten requests at the end of a minute. Halfway through the next minute all of them are in the minute before, but five
    // are counted.
    let late = seconds(&[
        59.0, 59.0, 59.0, 59.0, 59.0, 59.0, 59.0, 59.0, 59.0, 59.0, 90.0, 90.0, 90.0, 90.0, 90.0, 90.0,
    ]);
    let totals = judged("10/min", &[late]);
    assert_eq!(
        (totals.admitted, totals.wrongly_admitted, totals.wrongly_refused, totals.most),
        (15, 5, 0, 15)
    );
}

#[test]
fn a_strict_window_admits_no_request_too_many_and_a_bucket_does() {
    let sources = Sources::new(Traffics::Mix, 200, 400_000, 1, &"20/min".parse().unwrap());
    let measured = measure(&sources, &"20/min".parse().unwrap(), |_| ()).unwrap();
    let of = |text: &str| measured.limited.algorithms.iter().find(|one| one.limit == text).unwrap();
    for exact in ["20/min precision 6s strict", "20/min log"] {
        assert_eq!((of(exact).wrongly_admitted, of(exact).keys_above), (0, 0));
        assert!(of(exact).overshoot <= 1.0 && of(exact).refused > 1_000, "{:?}", of(exact));
    }
    assert_eq!(of("20/min log").wrongly_refused, 0);
    for loose in ["20/min", "20/min fixed", "20/min bucket"] {
        assert!(
            of(loose).wrongly_admitted > 0 && (1.0..=2.0).contains(&of(loose).overshoot),
            "{:?}",
            of(loose)
        );
    }
    assert_eq!(of("20/min log").fairness, Some(1.0));
}

#[test]
fn the_truth_of_counted_requests_is_the_number_in_an_exact_log() {
    let limit: Limit = "5/min".parse().unwrap();
    let log = "1000000/min log".parse::<Limit>().unwrap().meter_for(b"");
    let sources = Sources::new(Traffics::Mix, 40, 20_000, 7, &limit);
    let (mut truth, mut counters) = (Truth::new(&limit), Counter::all(&limit).unwrap());
    let mut all = 0_u64;
    for nth in 0..sources.count {
        let mut state = log.fresh();
        for time in sources.times(nth).unwrap() {
            let (_, verdict) = log.claim(&mut state, 1, time, ratelimit_core::store::Mode::Force);
            let count = truth.count(time);
            assert_eq!(count, verdict.limit - verdict.remaining);
            counters.iter_mut().for_each(|counter| counter.count(time, count));
            all += 1;
        }
        truth.end();
        counters.iter_mut().for_each(Counter::end);
    }
    assert!((all as f64 - 20_000.0).abs() < 2_000.0, "{all}");
    let strict = counters.last().unwrap().result();
    assert_eq!(
        (strict.limit.as_str(), strict.requests, strict.wrongly_admitted),
        ("5/min precision 6s strict", all, 0)
    );
    assert!(strict.above > 1_000 && strict.wrongly_limited > 0 && strict.let_through == 0, "{strict:?}");
}

#[test]
fn the_truth_has_no_bound() {
    let mut truth = Truth::new(&"5/min".parse().unwrap());
    let many = ratelimit_core::meter::MAX_LOG_UNITS + 1;
    let last = (0..many).map(|_| truth.count(Timestamp::from_secs(1_767_571_200))).last();
    assert_eq!(last, Some(many));
}

#[test]
fn estimates_have_thousandths_of_a_request() {
    let limit: Limit = "10/min".parse().unwrap();
    let mut counter = Counter::all(&limit).unwrap().remove(0);
    let mut truth = Truth::new(&limit);
    // At the second request, three quarters of the first one are counted, but all of it is in the minute before.
    for (time, _) in seconds(&[30.0, 75.0]) {
        let count = truth.count(time);
        counter.count(time, count);
    }
    counter.end();
    let result = counter.result();
    assert!((result.mean_difference - 0.25 / 2.0 / 2.0).abs() < 1e-9, "{result:?}");
    assert_eq!((result.sources, result.sources_above, result.limited_below), (1, 0, 0));
}

#[test]
fn sources_are_classified() {
    let limit: Limit = "10/min".parse().unwrap();
    let run = |counter: usize, requests: &[(Timestamp, u64)]| {
        let mut counter = Counter::all(&limit).unwrap().remove(counter);
        let mut truth = Truth::new(&limit);
        for (time, _) in requests {
            let count = truth.count(*time);
            counter.count(*time, count);
        }
        counter.end();
        let one = counter.result();
        (one.sources_above, one.let_through, (one.let_through_by * 1_000.0).round(), one.limited_below)
    };
    // Twelve requests around a boundary: the sliding window limits the source, the fixed window never does.
    assert_eq!((run(0, &boundary()), run(1, &boundary())), ((1, 0, 0.0, 0), (1, 1, 200.0, 0)));
    // The count of one source does not affect the next one.
    let mut counter = Counter::all(&limit).unwrap().remove(1);
    let mut differences = Vec::new();
    for _ in 0..2 {
        let mut truth = Truth::new(&limit);
        for (time, _) in boundary() {
            let count = truth.count(time);
            counter.count(time, count);
        }
        counter.end();
        differences.push((counter.result().mean_difference * 1e9).round());
    }
    assert_eq!((differences[0], counter.result().sources), (differences[1], 2));
    // Ten requests early in a minute, and six when none of them is in the minute before: the sliding window counts eleven
    // where there are six.
    let early =
        seconds(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 90.0, 90.0, 90.0, 90.0, 90.0, 90.0]);
    assert_eq!((run(0, &early), run(1, &early)), ((0, 0, 0.0, 1), (0, 0, 0.0, 0)));
}

#[test]
fn the_same_seed_is_the_same_measurement_whatever_the_threads() {
    let limit: Limit = "20/min".parse().unwrap();
    let counted = |seed| {
        let sources = Sources::new(Traffics::Mix, 100, 50_000, seed, &limit);
        let counted = measure(&sources, &limit, |_| ()).unwrap().counted;
        serde_json::to_string(
            &counted.iter().map(|one| (one.requests, one.wrongly_admitted)).collect::<Vec<_>>(),
        )
        .unwrap()
    };
    assert_eq!(counted(1), counted(1));
    assert_ne!(counted(1), counted(2));
}

#[test]
fn every_traffic_is_in_order_and_at_its_rate() {
    let limit: Limit = "60/min".parse().unwrap();
    for traffic in [Traffics::Mix, Traffics::Steady, Traffics::Near, Traffics::StartOfMinute] {
        let sources = Sources::new(traffic, 1_000, 1_000_000, 3, &limit);
        let mut all = 0_u64;
        for nth in 0..sources.count {
            let times: Vec<Timestamp> = sources.times(nth).unwrap().collect();
            assert!(times.is_sorted(), "{traffic:?} {nth}");
            if traffic == Traffics::StartOfMinute {
                assert!(times.iter().all(|time| time.as_nanos() / 1_000_000_000 % 60 < 5));
            }
            all += times.len() as u64;
        }
        let expected = 1_000_000.0;
        assert!((all as f64 - expected).abs() < 0.15 * expected, "{traffic:?}: {all}");
    }
}

#[test]
fn jains_index_is_one_for_equals_and_one_of_n_for_one() {
    let index = |values: &[f64]| {
        let mut jain = Jain::default();
        values.iter().for_each(|value| jain.add(*value));
        jain.index()
    };
    assert_eq!((index(&[]), index(&[0.5, 0.5]), index(&[1.0, 0.0, 0.0, 0.0])), (None, Some(1.0), Some(0.25)));
}
