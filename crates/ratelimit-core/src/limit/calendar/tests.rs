//! Periods of the calendar: windows, daylight saving, texts.

use super::*;
use crate::{Limit, MAX_UNITS, Meter, Mode};
use proptest::prelude::*;

fn instant(text: &str) -> Timestamp {
    let zoned: jiff::Timestamp = text.parse().unwrap();
    Timestamp::from_secs(zoned.as_second().try_into().unwrap())
}

/// The window of `limit` that contains `now`, as instants.
#[track_caller]
fn window(limit: &str, now: &str) -> (String, String) {
    let limit: Limit = limit.parse().unwrap();
    let window = limit.spec.calendar.as_ref().unwrap().window(instant(now));
    let text = |seconds| jiff::Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap().to_string();
    (text(window.begin), text(window.end))
}

#[track_caller]
fn check(limit: &str, now: &str, begin: &str, end: &str) {
    assert_eq!(window(limit, now), (begin.to_owned(), end.to_owned()), "{limit} at {now}");
}

#[test]
fn periods_begin_at_midnight_of_their_first_day() {
    check("1/day in UTC", "2026-11-25T13:00:00Z", "2026-11-25T00:00:00Z", "2026-11-26T00:00:00Z");
    check("1/week in UTC", "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z");
    check("1/month", "2028-02-29T12:00:00Z", "2028-02-01T00:00:00Z", "2028-03-01T00:00:00Z");
    check("1/quarter", "2026-03-31T23:59:59Z", "2026-01-01T00:00:00Z", "2026-04-01T00:00:00Z");
    check("1/year", "2026-12-31T23:59:59Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    // An instant that is already the next day, month and year further east.
    let now = "2026-12-31T23:30:00Z";
    check("1/year in Europe/Berlin", now, "2026-12-31T23:00:00Z", "2027-12-31T23:00:00Z");
}

#[test]
fn days_on_which_clocks_change_are_shorter_or_longer() {
    let spring = "2026-03-29T12:00:00Z";
    check("1/day in Europe/Berlin", spring, "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z");
    let autumn = "2026-10-25T12:00:00Z";
    check("1/day in Europe/Berlin", autumn, "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z");
    check("1/month in Europe/Berlin", autumn, "2026-09-30T22:00:00Z", "2026-10-31T23:00:00Z");
    // Clocks that skip midnight: the day begins at one o'clock.
    check(
        "1/day in America/Sao_Paulo",
        "2018-11-04T12:00:00Z",
        "2018-11-04T03:00:00Z",
        "2018-11-05T02:00:00Z",
    );
    // Clocks that are set back from 0:01 to 23:01 of the day before.
    check(
        "1/day in America/St_Johns",
        "2010-11-07T03:00:00Z",
        "2010-11-07T02:30:00Z",
        "2010-11-08T03:30:00Z",
    );
    // A day that does not exist: Samoa went from the 29th to the 31st of December 2011.
    check("1/day in Pacific/Apia", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z");
    check("1/day in Pacific/Apia", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z");
}

#[test]
fn billing_months_begin_on_their_day_or_on_the_last_of_a_short_month() {
    check("1/month from day 15", "2026-11-14T23:59:59Z", "2026-10-15T00:00:00Z", "2026-11-15T00:00:00Z");
    check("1/month from day 15", "2026-11-15T00:00:00Z", "2026-11-15T00:00:00Z", "2026-12-15T00:00:00Z");
    check("1/month from day 31", "2026-02-27T12:00:00Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z");
    check("1/month from day 31", "2026-02-28T12:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z");
    check("1/month from day 31", "2026-04-30T12:00:00Z", "2026-04-30T00:00:00Z", "2026-05-31T00:00:00Z");
}

#[test]
fn limits_of_the_calendar_are_read_as_they_are_printed() {
    let check = |text: &str, printed: &str| {
        let limit: Limit = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(limit.to_string(), printed);
        assert_eq!(printed.parse::<Limit>().unwrap(), limit);
        assert_eq!(limit.at(instant("2026-11-25T00:00:00Z")).to_string(), printed);
    };
    check("1000/month", "1000/month");
    check("1000 per Months fixed name a", "1000/month name a");
    check("1000/month name a from day 15 IN europe/berlin", "1000/month in Europe/Berlin from day 15 name a");
    check("5/day in UTC", "5/day in UTC");
    check("5/year in utc", "5/year");
    check("5/day in etc/utc", "5/day in UTC");
    check("5 per week in Asia/Kolkata", "5/week in Asia/Kolkata");
    assert_eq!("5/day".parse::<Limit>().unwrap().to_string(), "5/d");

    let refuse = |text: &str, part: &str| {
        let error = text.parse::<Limit>().unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refuse("5/month in Berlin", "no such zone");
    refuse("5/month in", "a time zone, such as");
    refuse("5/h in UTC", "a time zone only applies to a day, week, month, quarter or year");
    refuse("5/month log", "fixed window");
    refuse("5/month burst 3", "burst only applies");
    refuse("5/month staggered", "alignment");
    refuse("5/month precision 1d", "precision");
    refuse("5/month from day 0", "between 1 and 31");
    refuse("5/month from day 32", "between 1 and 31");
    refuse("5/month from day 999", "between 1 and 31");
    for text in ["5/year from day 2", "5/week from day 1", "5/day from day 1 in UTC"] {
        refuse(text, "a calendar month");
    }
    refuse("5/month from day 15in UTC", "a space or the end");
    refuse("5/2 months", "month, quarter and year stand without a number");
    assert!(
        Limit::fixed_window(1, Duration::from_secs(1)).alignment(crate::Alignment::Calendar).build().is_err()
    );
    assert!(Limit::calendar(1, Calendar::days()).staggered().build().is_err());
    assert!(Limit::calendar(1, Calendar::days()).strict().build().is_err());
}

#[test]
fn each_window_is_a_meter_of_its_own_that_ends_with_it() {
    let limit: Limit = "3/month in Europe/Berlin name api".parse().unwrap();
    let at = limit.at(instant("2026-03-29T12:00:00Z"));
    assert_eq!(at.scope(), "api=month in Europe/Berlin:2026-03-01");
    assert_eq!(at.period(), Duration::from_secs((31 * 24 - 1) * 3_600));
    let meter = at.meter_for(b"k");
    let mut state = meter.fresh();
    let (_, verdict) = meter.claim(&mut state, 3, instant("2026-03-29T12:00:00Z"), Mode::Charge);
    assert_eq!(verdict.reset_at, instant("2026-03-31T22:00:00Z"));
    let (admitted, verdict) = meter.claim(&mut state, 1, instant("2026-03-31T21:59:59Z"), Mode::Charge);
    assert_eq!((admitted, verdict.fits_at), (false, Some(instant("2026-03-31T22:00:00Z"))));
    assert_eq!(limit.at(instant("2026-03-31T22:00:00Z")).scope(), "api=month in Europe/Berlin:2026-04-01");
    let again = at.at(instant("2026-03-31T22:00:00Z"));
    assert_eq!((again.scope(), again.meter_for(b"k")), (at.scope(), meter), "it is this window already");
}

/// Newfoundland set its clocks back by two hours, from 00:01 to 22:01 of the day before, so a day began, was interrupted
/// by two hours of the day before and went on: all of them are one window.
#[test]
fn clocks_that_go_back_by_two_hours_make_a_day_of_26() {
    let limit: Limit = "3/day in America/St_Johns".parse().unwrap();
    assert_eq!(limit.period(), Duration::from_secs(24 * 3_600));
    let begin = instant("1988-10-30T01:30:00Z");
    for hour in 0..26 {
        let at = limit.at(begin + Duration::from_secs(hour * 3_600));
        assert_eq!(at.scope(), "day in America/St_Johns:1988-10-30", "after {hour} hours");
        assert_eq!(at.period(), Duration::from_secs(26 * 3_600));
    }
    let next = limit.at(begin + Duration::from_secs(26 * 3_600));
    assert_eq!(next.scope(), "day in America/St_Johns:1988-10-31");
}

const ZONES: [&str; 8] = [
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "America/Sao_Paulo",
    "Pacific/Apia",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Africa/Casablanca",
];

proptest! {
    /// Every instant is in one window, each window begins where the one before ends, and the meter agrees.
    #[test]
    fn windows_follow_each_other_without_gaps(
        seconds in prop_oneof![0_u64..4_700_000_000, 1_262_304_000_u64..1_577_836_800],
        zone in prop::sample::select(&ZONES[..]),
        period in prop::sample::select(&["day", "week", "month", "quarter", "year"][..]),
        first_day in 1_u8..=31,
    ) {
        let now = Timestamp::from_secs(seconds).min(Timestamp::MAX);
        let seconds = now.as_nanos() / 1_000_000_000;
        let from = if period == "month" { format!(" from day {first_day}") } else { String::new() };
        let limit: Limit = format!("{MAX_UNITS}/{period} in {zone}{from}").parse().unwrap();
        let calendar = limit.spec.calendar.clone().unwrap();
        let found = calendar.find(seconds);
        prop_assert!(found.begin <= seconds && seconds < found.end, "{found:?}");
        // The two hours: see the test of Newfoundland.
        prop_assert!(
            Duration::from_secs(found.end - found.begin) <= calendar.longest() + Duration::from_secs(2 * 3_600)
        );
        let next = calendar.find(found.end);
        prop_assert_eq!(next.begin, found.end);
        prop_assert_ne!(&next.first_day, &found.first_day);
        prop_assert_eq!(&calendar.find(found.end - 1).first_day, &found.first_day);
        let Meter::Window(window) = limit.at(now).meter_for(b"") else { panic!("a window") };
        prop_assert_eq!(window.segment(), (found.end - found.begin) * 1_000_000_000);
        prop_assert_eq!(window.place(now).1, now.as_nanos() - found.begin * 1_000_000_000);
    }
}
