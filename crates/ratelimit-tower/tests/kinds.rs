//! Every kind of limit, as written in a configuration file, through HTTP: who is refused, and what `retry-after` says.

mod support;

use std::time::Duration;

use http::Response;
use ratelimit_memory::{ManualClock, Timestamp};
use ratelimit_tower::config::Config;
use tower::Service;

use support::*;

/// Monday, 2026-03-30 10:00:00 UTC, the day after clocks went forward in Berlin.
const START: Timestamp = Timestamp::from_secs(1_774_864_800);

fn config(limit: &str) -> Config {
    let text = format!("[[policies]]\nname = \"p\"\nkey = \"everybody\"\nlimit = \"{limit}\"\n");
    Config::from_toml(&text, "limits.toml").unwrap_or_else(|error| panic!("{error}"))
}

/// The status of a request, and its `retry-after`.
async fn ask<S>(service: &S) -> (u16, Option<u64>)
where
    S: Service<http::Request<Body>, Response = Response<Body>, Error = String, Future: Send> + Clone,
{
    let response = send(service, request(&[])).await;
    let wait = response.headers().get("retry-after").map(|value| value.to_str().unwrap().parse().unwrap());
    (response.status().as_u16(), wait)
}

/// Each with three units.
#[tokio::test]
async fn every_kind_of_limit_works_from_a_file() {
    let hour = 3_600;
    for (limit, wait) in [
        ("3/h fixed", Some(hour)),
        // An instant more than an hour.
        ("3/h log", Some(hour + 1)),
        // Until the segment of the first request has left the hour as a whole.
        ("3/h precision 10m strict", Some(hour + 600)),
        ("3/h burst 3", Some(hour / 3)),
        ("3/h leaky burst 3", Some(hour / 3)),
        ("3/h queue burst 3 immediate 3", Some(hour / 3)),
        ("3/5h from first request", Some(5 * hour)),
        ("3/h burst 3 step 1h", Some(hour)),
        ("3 in total", None),
        ("3/week in UTC", Some(6 * 24 * hour + 14 * hour)),
        ("3/day in Europe/Berlin", Some(12 * hour)),
        ("3/month in Europe/Berlin", Some(36 * hour)),
        ("3/quarter in Asia/Kolkata", Some(32 * hour + hour / 2)),
        ("3/year", Some(276 * 24 * hour + 14 * hour)),
        ("3/h; ban 10h after 1 in 1h", Some(10 * hour)),
        // Until the hour after this one has passed by a third.
        ("3/h; 1000/day", Some(hour + hour / 3)),
    ] {
        let clock = ManualClock::at(START);
        let service = service(&layer_under(&clock, config(limit).policies().clone()));
        for nth in 0..3 {
            assert_eq!(ask(&service).await, (200, None), "{limit}: request {nth}");
        }
        assert_eq!(ask(&service).await, (429, wait), "{limit}");
        let Some(wait) = wait else {
            clock.advance(Duration::from_secs(10 * 365 * 24 * hour));
            assert_eq!(ask(&service).await.0, 429, "{limit}");
            continue;
        };
        clock.advance(Duration::from_secs(wait - 1));
        assert_eq!(ask(&service).await.0, 429, "{limit}: a second early");
        clock.advance(Duration::from_secs(1));
        assert_eq!(ask(&service).await.0, 200, "{limit}: as told");
    }
    let clock = ManualClock::at(START);
    let service = service(&layer_under(&clock, config("0/s").policies().clone()));
    for _ in 0..2 {
        assert_eq!(ask(&service).await, (429, None));
        clock.advance(Duration::from_secs(10 * 365 * 24 * hour));
    }
}
