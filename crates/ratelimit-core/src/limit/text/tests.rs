//! Limits as text: what is read, what is printed, what is refused.

use super::super::MAX_NAME;
use super::*;
use crate::meter::{Meter, Window};
use proptest::prelude::*;

#[track_caller]
fn check(text: &str, printed: &str) {
    let limit: Limit = text.parse().unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(limit.to_string(), printed);
    assert_eq!(printed.parse::<Limit>().unwrap(), limit);
}

/// A limit of the algorithm after that of `limit`. Give a new algorithm an arm, and let the last one lead to it.
fn next(limit: &Limit) -> Option<Limit> {
    let second = Duration::from_secs(1);
    let next = match limit.algorithm() {
        Algorithm::FixedWindow => Limit::sliding_window(10, second),
        Algorithm::SlidingWindow => Limit::segmented_window(10, second, second / 10),
        Algorithm::SegmentedWindow { .. } => Limit::sliding_log(10, second),
        Algorithm::SlidingLog => Limit::token_bucket(10, second),
        Algorithm::TokenBucket => Limit::leaky_bucket(10, second),
        Algorithm::LeakyBucket => Limit::leaky_queue(10, second),
        Algorithm::LeakyQueue => Limit::concurrency(10),
        Algorithm::Concurrency => Limit::total(10),
        Algorithm::Total => Limit::ban(10, second, second),
        Algorithm::Ban { .. } => return None,
    };
    next.build().ok()
}

#[test]
fn the_text_of_each_algorithm_is_read_back() {
    let first = Limit::fixed_window(10, Duration::from_secs(1)).build().unwrap();
    let limits = std::iter::successors(Some(first), next);
    let read = limits.inspect(|limit| assert_eq!(limit.to_string().parse().as_ref(), Ok(limit)));
    assert_eq!(read.count(), 10);
}

#[test]
fn limits_are_read_and_printed_back() {
    check("10/s", "10/s");
    check("10 / s", "10/s");
    check(" 10 per second ", "10/s");
    check("3000 per 10 minutes", "3000/10min");
    check("3000/600s", "3000/10min");
    check("10_000 per 15m", "10000/15min");
    check("100/min burst 20", "100/min burst 20");
    check("100/min gcra", "100/min bucket");
    check("100/min burst 20 bucket", "100/min burst 20");
    check("240/hour precision 1m", "240/h precision 1min");
    check("240/hour strict precision 1m sliding", "240/h precision 1min strict");
    check("5 per day fixed offset 2h", "5/d fixed offset 2h");
    check("5/31d log name sign-up", "5/31d log name sign-up");
    check("100/s leaky", "100/s leaky");
    check("100/s queue burst 20 name a.b_c", "100/s queue burst 20 name a.b_c");
    check("100/s immediate 5 queue burst 20", "100/s queue burst 20 immediate 5");
    check("7/s staggered", "7/s staggered");
    check("7/1500us", "7/1500us");
    check("1/7d", "1/w");
    check("1/SECOND", "1/s");
    check("20 at once", "20 at once");
    check("20 At Once lease 60s name jobs", "20 at once name jobs");
    check("1 at once lease 1500ms", "1 at once lease 1500ms");
    check("10 Per 2 Hours Burst 20 NAME Ab", "10/2h burst 20 name Ab");
    check("100/5h from first request", "100/5h from first request");
    check("7/DAY Name a Fixed From First Request", "7/d from first request name a");
    check("1000/h burst 5000 step 1h", "1000/h burst 5000 step 1h");
    check("1000/h STEP 15min bucket", "1000/h step 15min");
    check("0/s", "0/s");
    check("0/day fixed", "0/d fixed");
    check("1000 in total", "1000 in total");
    check("1 In Total name trial", "1 in total name trial");
    check("250000 at once", "250000 at once");
    check("ban 10min after 5 in 60s", "ban 10min after 5 in 1min");
    check("ban 366d after 5 in 1min", "ban 366d after 5 in 1min");
    check("ban 1min after 5 in 1h growing 1 up to 1min", "ban 1min after 5 in 1h");
    check("BAN 1h After 1 In 1d Growing 2 Up To 7d NAME a", "ban 1h after 1 in 1d growing 2 up to 1w name a");
}

#[test]
fn errors_in_a_ban_name_the_position_and_what_was_expected() {
    for (text, position) in [
        ("ban", 3),
        ("ban 5", 5),
        ("ban 5min", 8),
        ("ban 5min after", 14),
        ("ban 5min after 5", 16),
        ("ban 5min after 5 in", 19),
        ("ban 5min after 5 in 1min growing", 32),
        ("ban 5min after 5 in 1min growing 2", 34),
        ("ban 5min after 5 in 1min growing 2 up 1h", 37),
        ("ban 5min after 5 in 1min growing 9999999999 up to 1h", 32),
        ("ban 5min after 5 in 1min burst 2", 25),
        ("ban 5min after 5 in 1min name a b", 32),
    ] {
        let error = text.parse::<Limit>().unwrap_err();
        assert_eq!((error.limit_error(), error.position()), (None, position), "{error}");
    }
    for (text, expected) in [
        ("ban 0s after 5 in 1min", LimitError::Zero { what: "length of a ban" }),
        ("ban 5min after 0 in 1min", LimitError::Zero { what: "quota" }),
        ("ban 5min after 5 in 0s", LimitError::Zero { what: "period" }),
        ("ban 5min after 5 in 1min growing 0 up to 1h", LimitError::Zero { what: "factor of bans" }),
        ("ban 5min after 5 in 1min growing 2 up to 4min", LimitError::BadBan),
        ("ban 367d after 5 in 1min", LimitError::BadBan),
        ("ban 5min after 5 in 1min growing 1 up to 1h", LimitError::NotGrowing),
        ("ban 1ns after 5 in 1min", LimitError::NotMicroseconds),
        ("ban 1us after 5 in 1min growing 2 up to 1500ns", LimitError::NotMicroseconds),
        ("ban 5min after 1000001 in 1min", LimitError::TooLarge { what: "quota", most: 1_000_000 }),
    ] {
        assert_eq!(text.parse::<Limit>().unwrap_err().limit_error(), Some(expected), "{text}");
    }
    let lease = Limit::sliding_window(1, Duration::from_secs(1)).growing(2, Duration::from_secs(9)).build();
    assert!(lease.is_err(), "only bans grow");
}

#[track_caller]
fn refuse(text: &str, message: &str) {
    assert_eq!(text.parse::<Limit>().unwrap_err().to_string(), message);
}

#[test]
fn errors_name_the_position_and_what_was_expected() {
    refuse("", r#"cannot read the limit "": expected a number of units at character 1, found "the end""#);
    refuse(
        "ten/s",
        r#"cannot read the limit "ten/s": expected a number of units at character 1, found "ten/s""#,
    );
    refuse(
        "1000/M",
        r#"cannot read the limit "1000/M": expected a unit of time: ns, us, ms, s, min, h, d or w at character 6, found "M""#,
    );
    refuse(
        "10",
        r#"cannot read the limit "10": expected '/', 'per', 'at once' or 'in total' at character 3, found "the end""#,
    );
    refuse(
        "-1/s",
        r#"cannot read the limit "-1/s": expected a number of units at character 1, found "-1/s""#,
    );
    refuse(
        "10/fortnight",
        r#"cannot read the limit "10/fortnight": expected a unit of time: ns, us, ms, s, min, h, d or w at character 4, found "fortnight""#,
    );
    refuse(
        "99999999999999999999/s",
        r#"cannot read the limit "99999999999999999999/s": expected a number below 2^64 at character 1, found "99999999999999999999/s""#,
    );
    let error = "10/s fast".parse::<Limit>().unwrap_err();
    assert_eq!(error.position(), 5);
    assert_eq!("10/s µ log log".parse::<Limit>().unwrap_err().position(), 5);
    assert_eq!("10/s log log".parse::<Limit>().unwrap_err().position(), 9);
    assert_eq!("10/s precision 1ms strict strict".parse::<Limit>().unwrap_err().position(), 26);
    assert_eq!("10/s burst".parse::<Limit>().unwrap_err().position(), 10);
}

#[test]
#[cfg_attr(miri, ignore = "under Miri the library of calendars knows no zones")]
fn impossible_limits_cannot_be_built() {
    let because = |text: &str| text.parse::<Limit>().unwrap_err().limit_error();
    assert_eq!(because("0/s log"), Some(LimitError::Zero { what: "quota" }));
    assert_eq!(because("0/s bucket"), Some(LimitError::Zero { what: "quota" }));
    assert_eq!(because("0/s from first request"), Some(LimitError::Zero { what: "quota" }));
    assert_eq!(because("1/0s"), Some(LimitError::Zero { what: "period" }));
    assert_eq!(because("1/0s log"), Some(LimitError::Zero { what: "period" }));
    assert_eq!(because("1/0s bucket"), Some(LimitError::Zero { what: "period" }));
    assert_eq!(because("1/0s precision 1s"), Some(LimitError::Zero { what: "period" }));
    assert_eq!(because("1/s burst 0"), Some(LimitError::Zero { what: "burst" }));
    assert_eq!(
        because("18446744073709551615/s"),
        Some(LimitError::TooLarge { what: "quota", most: crate::MAX_UNITS })
    );
    assert_eq!(
        because("1000001/s log"),
        Some(LimitError::TooLarge { what: "quota", most: crate::MAX_LOG_UNITS })
    );
    assert_eq!(because("1/3661d"), Some(LimitError::TooLong { what: "period" }));
    assert_eq!(because("1/18446744073709551615ns"), Some(LimitError::TooLong { what: "period" }));
    assert_eq!(because("300000001/s bucket"), Some(LimitError::RateTooHigh));
    assert_eq!(because("1/3660d burst 100"), Some(LimitError::BurstTooLong));
    assert_eq!(because("1/h precision 7min"), Some(LimitError::PrecisionDoesNotDivide));
    assert_eq!(because("1/h precision 0s"), Some(LimitError::PrecisionDoesNotDivide));
    assert_eq!(because("1/h precision 999ms"), Some(LimitError::PrecisionDoesNotDivide));
    assert_eq!(because("1/h precision 500ms"), Some(LimitError::TooManySegments));
    assert_eq!(because("1/1500ns"), Some(LimitError::NotMicroseconds));
    assert_eq!(because("1/s name a/b"), Some(LimitError::BadName));
    assert_eq!(because("0 at once"), Some(LimitError::Zero { what: "quota" }));
    assert_eq!(because("1 at once lease 0s"), Some(LimitError::Zero { what: "period" }));
    assert_eq!(
        because("250001 at once"),
        Some(LimitError::TooLarge { what: "number of units at once", most: 250_000 })
    );
    assert!(matches!(because("1/s lease 3s"), Some(LimitError::Unsuitable { option: "a lease", .. })));
    assert!(matches!(because("1 at once burst 3"), Some(LimitError::Unsuitable { option: "burst", .. })));
    assert!(matches!(because("1 at once precision 1s"), Some(LimitError::Unsuitable { .. })));
    assert!(matches!(because("1 at once staggered"), Some(LimitError::Unsuitable { .. })));
    assert!(matches!(because("1 at once in UTC"), Some(LimitError::Unsuitable { .. })));
    assert!(matches!(because("1/s log burst 3"), Some(LimitError::Unsuitable { option: "burst", .. })));
    assert!(matches!(because("1/s fixed precision 1ms"), Some(LimitError::Unsuitable { .. })));
    assert!(matches!(because("1/s strict"), Some(LimitError::Unsuitable { option: "strict", .. })));
    assert!(matches!(because("1/s bucket staggered"), Some(LimitError::Unsuitable { .. })));
    assert_eq!(because("7/h step 10min"), Some(LimitError::StepNotWhole));
    assert_eq!(because("10/min step 2min"), Some(LimitError::StepAboveBurst { units: 20, burst: 10 }));
    assert_eq!(
        because("100/h burst 10 step 15min"),
        Some(LimitError::StepAboveBurst { units: 25, burst: 10 })
    );
    assert!("10/min burst 20 step 2min".parse::<Limit>().is_ok());
    assert_eq!(because("7/h step 0s"), Some(LimitError::Zero { what: "step" }));
    assert_eq!(because("300000001/s step 1s"), Some(LimitError::RateTooHigh));
    assert_eq!(because("36610/3661d burst 10 step 1d"), Some(LimitError::TooLong { what: "period" }));
    assert_eq!(
        because("1000000000000000/250000000s burst 10 step 1s"),
        Some(LimitError::TooLarge { what: "quota", most: crate::MAX_UNITS })
    );
    let immediate = "number of immediate units";
    assert_eq!(
        because("7/s queue burst 3 immediate 4"),
        Some(LimitError::TooLarge { what: immediate, most: 3 })
    );
    assert_eq!(because("7/s queue immediate 0"), Some(LimitError::Zero { what: immediate }));
    assert_eq!(because("0 in total"), Some(LimitError::Zero { what: "quota" }));
    for text in [
        "7/h fixed step 1h",
        "7/h queue step 1h",
        "7/h burst 3 immediate 2",
        #[cfg(feature = "calendar")]
        "7/month immediate 2",
        #[cfg(feature = "calendar")]
        "7/day in UTC immediate 2",
        "7/h step 1h from first request",
        "7/h sliding from first request",
        "7/h log from first request",
        "7/h from first request burst 3",
        "7 in total burst 3",
        "7 in total staggered",
        "7 in total from first request",
        "7 in total lease 3s",
        #[cfg(feature = "calendar")]
        "7 in total in UTC",
        "7 in total step 1s",
    ] {
        assert!(matches!(because(text), Some(LimitError::Unsuitable { .. })), "{text}");
    }
    assert_eq!(because("1/999999999999999d"), None); // the text alone is too long already
}

/// Meters are stored under them: a change would forget every count of a running fleet.
#[test]
fn scopes_do_not_change() {
    for (text, scope) in [
        ("9/min", "sliding:1min"),
        ("9/min fixed", "fixed:1min"),
        ("9/h precision 1m", "segmented:1h/1min"),
        ("9/h precision 1m strict", "strict:1h/1min"),
        ("9/min log", "log:1min"),
        ("9/min bucket", "bucket:1min"),
        ("9/min leaky", "leaky:1min"),
        ("9/min queue", "queue:1min"),
        ("9/h from first request", "first:1h"),
        ("9/h step 20min", "steps:20min"),
        ("9 at once", "concurrency"),
        ("9 in total", "total"),
        ("ban 1h after 9 in 1min", "ban"),
        ("9/min name a", "a=sliding:1min"),
        ("9/min bucket name a", "a=bucket"),
        ("9/min log name a", "a=log:1min"),
        ("9 at once name a", "a=concurrency"),
        ("ban 1h after 9 in 1min name a", "a=ban"),
        ("9/d fixed offset 2h", "fixed:1d+2h"),
        ("9/s staggered", "sliding:1s~"),
    ] {
        assert_eq!(text.parse::<Limit>().unwrap().scope(), scope, "{text}");
    }
}

#[test]
fn staggered_windows_begin_where_the_key_says() {
    let meter = |text: &str| text.parse::<Limit>().unwrap().meter_for(b"user:7");
    let window = |offset| Meter::Window(Window::new(9, 1_000_000_000, 1, false, offset).unwrap());
    assert_eq!(meter("9/s"), window(0));
    // The key's stable hash, as a number of microseconds.
    assert_eq!(meter("9/s staggered"), window(0x6c84_28c2_fba5_70c9 % 1_000_000 * 1_000));
}

#[test]
fn a_limit_says_what_it_was_built_from() {
    let second = Duration::from_secs(1);
    let limit = Limit::token_bucket(60, 60 * second).burst(5).step(2 * second).name("a").build().unwrap();
    assert_eq!((limit.quota(), limit.burst(), limit.period()), (60, 5, 60 * second));
    assert_eq!((limit.step(), limit.name()), (Some(2 * second), Some("a")));
    assert_eq!((limit.alignment(), limit.algorithm()), (Alignment::Epoch, Algorithm::TokenBucket));
    let limit = Limit::sliding_window(7, second).staggered().build().unwrap();
    assert_eq!((limit.quota(), limit.burst(), limit.step()), (7, 7, None));
    assert_eq!(limit.alignment(), Alignment::Staggered);
    assert_ne!(limit, Limit::sliding_window(7, second).build().unwrap());
    assert_eq!(Limit::concurrency(3).lease(second).build().unwrap().period(), second);
    assert!(
        Limit::sliding_window(7, second).lease(second).build().is_err(),
        "only units that are held have a lease"
    );
    let named = |name: String| Limit::sliding_window(7, second).name(name).build();
    assert!(named("a".repeat(MAX_NAME)).is_ok());
    for name in [String::new(), "a".repeat(MAX_NAME + 1)] {
        assert_eq!(named(name), Err(LimitError::BadName));
    }
}

#[test]
fn limits_with_the_same_windows_are_equal_and_share_a_scope() {
    let of = |text: &str| text.parse::<Limit>().unwrap();
    for (one, other) in [
        ("10/s", "10/s offset 0s"),
        ("10/s", "10/s offset 7s"),
        ("10/s fixed offset 500ms", "10/s fixed offset 1500ms"),
        ("10/h precision 1min offset 1s", "10/h precision 1min offset 61s"),
    ] {
        assert_eq!((of(one).scope(), of(one)), (of(other).scope(), of(other)), "{one} and {other}");
    }
    let scopes =
        ["10/h fixed", "10/h bucket", "10/h from first request", "10/h step 1h", "10 in total", "10/h"];
    let scopes: std::collections::BTreeSet<_> =
        scopes.iter().map(|text| of(text).scope().to_owned()).collect();
    assert_eq!(scopes.len(), 6, "{scopes:?}");
    assert_eq!(of("10/h step 1h name a").scope(), of("20/2h step 1h name a").scope());
    assert_ne!(of("10/h step 1h name a").scope(), of("20/h step 30min name a").scope());
    assert_ne!(of("10/s offset 1ms").scope(), of("10/s offset 2ms").scope());
    assert!("10/s log offset 1s".parse::<Limit>().is_err());
}

#[test]
fn rates_up_to_a_million_a_second_can_be_represented() {
    for quota in (1..=1_000_000).step_by(997).chain([999_999, 1_000_000]) {
        assert!(format!("{quota}/s bucket").parse::<Limit>().is_ok(), "{quota}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = text.parse::<Limit>().map_err(|error| error.to_string());
    }

    #[test]
    fn printed_limits_parse_to_the_same_limit(
        text in "[1-9][0-9]{0,3}/[0-9]{0,2}(ms|s|min|h|d)( fixed| log| bucket| leaky| queue)?( burst [1-9])?\
                 ( step [1-9](ms|s|h))?( from first request)?( precision 1(ms|s|min))?( strict)?( staggered| offset 3ms)?( name [a-z]{1,3})?",
    ) {
        if let Ok(limit) = text.parse::<Limit>() {
            prop_assert_eq!(limit.to_string().parse::<Limit>(), Ok(limit));
        }
    }
}

#[test]
fn options_of_other_algorithms_are_errors_in_code() {
    let second = Duration::from_secs(1);
    for (limit, expected) in [
        (Limit::total(5).lease(second), "a lease only applies to a concurrency limit"),
        (Limit::sliding_log(5, second).lease(second), "a lease only applies to a concurrency limit"),
        (Limit::total(5).growing(2, second), "a growing length only applies to a ban"),
        (Limit::token_bucket(5, second).strict(), "strict only applies to a segmented window"),
    ] {
        assert_eq!(limit.build().unwrap_err().to_string(), expected);
    }
}

/// Programs print an error and its sources one after another.
#[test]
fn no_source_repeats_the_text_of_its_error() {
    use std::error::Error as _;
    for text in ["5/min burst 0", "5/min; 0/min burst 3", "5/min; 6/min", "5/"] {
        let error = text.parse::<crate::Limits>().unwrap_err();
        assert!(
            error.source().is_none_or(|source| !error.to_string().contains(&source.to_string())),
            "{text}"
        );
    }
}
