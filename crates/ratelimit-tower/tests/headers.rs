//! The contents of responses, read by an independent parser of structured fields, and as JSON.

mod support;

use std::time::Duration;

use http::HeaderMap;
use http_body_util::Full;
use proptest::prelude::*;
use ratelimit_core::Limits;
use ratelimit_tower::{Cost, Family, Headers, KeySource, Plan, Policies, Policy, Reset};
use sfv::{ListEntry, Parser};

use support::*;

/// A list item: its name and its integer parameters.
type Item = (String, Vec<(String, i64)>);

fn list(headers: &HeaderMap, name: &str) -> Vec<Item> {
    let lines: Vec<_> = headers.get_all(name).iter().map(|line| line.as_bytes()).collect();
    let list = Parser::new(&lines.join(&b", "[..])).parse::<sfv::List>().unwrap();
    let item = |entry: &ListEntry| {
        let ListEntry::Item(item) = entry else { panic!("an inner list") };
        let name = item.bare_item.as_string().unwrap().as_str().to_owned();
        let parameter = |(key, value): (&sfv::Key, &sfv::BareItem)| {
            (key.as_str().to_owned(), i64::from(value.as_integer().unwrap()))
        };
        (name, item.params.iter().map(parameter).collect())
    };
    list.iter().map(item).collect()
}

fn item(name: &str, parameters: &[(&str, i64)]) -> Item {
    (name.to_owned(), parameters.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect())
}

fn everybody(limits: impl Into<Limits>) -> Policies {
    Policies::new([Policy::new("all", KeySource::everybody(), limits.into()).unwrap()]).unwrap()
}

#[tokio::test]
async fn draft_fields_are_on_admitted_answers_and_refusals() {
    let clock = clock();
    let limits = Limits::new([limit("2/10s fixed"), limit("100/min burst 5 name bucket"), limit("9/1500ms")]);
    let service = service(&layer_under(&clock, everybody(limits.unwrap())));
    clock.advance(Duration::from_millis(100));
    let answer = send(&service, request(&[])).await;
    assert_eq!(
        list(answer.headers(), "ratelimit-policy"),
        [
            item("all:2/10s fixed", &[("q", 2), ("w", 10)]),
            item("bucket", &[("q", 100), ("w", 60), ("burst-units", 5)]),
            item("all:9/1500ms", &[("q", 9)]),
        ]
    );
    assert_eq!(
        list(answer.headers(), "ratelimit"),
        [
            item("all:2/10s fixed", &[("r", 1), ("t", 10)]), // 9.9 s, rounded up
            item("bucket", &[("r", 4), ("t", 1)]),           // 0.6 s, rounded up
            item("all:9/1500ms", &[("r", 8), ("t", 3)]),
        ]
    );
    for absent in ["retry-after", "cache-control", "ratelimit-limit", "x-ratelimit-limit"] {
        assert!(answer.headers().get(absent).is_none(), "{absent}");
    }
    send(&service, request(&[])).await;
    let refusal = send(&service, request(&[])).await;
    assert_eq!(refusal.status(), REFUSED);
    assert_eq!(list(refusal.headers(), "ratelimit"), [item("all:2/10s fixed", &[("r", 0), ("t", 10)])]);
    assert_eq!(list(refusal.headers(), "ratelimit-policy").len(), 3);
    assert_eq!(only(refusal.headers(), "retry-after"), "10");
    assert_eq!(only(refusal.headers(), "cache-control"), "no-store");
    assert_eq!(only(refusal.headers(), "content-type"), "application/problem+json");
    let problem: serde_json::Value = serde_json::from_str(&text(refusal).await).unwrap();
    assert_eq!(
        problem,
        serde_json::json!({
            "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "title": "Request cannot be satisfied as assigned quota has been exceeded",
            "status": 429,
            "detail": "try again in 10 seconds",
            "violated-policies": ["all:2/10s fixed"],
        })
    );
}

#[tokio::test]
async fn several_policies_share_one_header_list() {
    let policies = Policies::new([
        Policy::new("a", KeySource::everybody(), limit("5/min fixed")).unwrap(),
        Policy::new("b", KeySource::everybody(), Plan::new("gold", limit("7/min fixed")).unwrap()).unwrap(),
    ]);
    let service = service(&layer_under(&clock(), policies.unwrap()));
    let answer = send(&service, request(&[])).await;
    assert_eq!(
        list(answer.headers(), "ratelimit"),
        [item("a", &[("r", 4), ("t", 60)]), item("gold", &[("r", 6), ("t", 60)])]
    );
    assert_eq!(list(answer.headers(), "ratelimit-policy").len(), 2);
    // A ban is no quota, and leaves no gap in the list.
    let banning = Policy::new("c", KeySource::everybody(), limit("ban 1h after 100 in 1h")).unwrap();
    let plain = Policy::new("d", KeySource::everybody(), limit("5/min fixed")).unwrap();
    let both = Policies::new([banning, plain]).unwrap();
    let answer = send(&support::service(&layer_under(&clock(), both)), request(&[])).await;
    assert_eq!(only(answer.headers(), "ratelimit-policy"), r#""d";q=5;w=60"#);
    // An outer layer adds its own.
    let outer = tower::Layer::layer(&layer(&clock(), "3/min fixed"), service);
    let answer = send(&outer, request(&[])).await;
    let names: Vec<_> = list(answer.headers(), "ratelimit").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["a", "gold", "all"]);
}

#[tokio::test]
async fn older_header_families_support_every_form_of_reset() {
    for (family, prefix) in [(Family::RateLimit, "ratelimit"), (Family::XRateLimit, "x-ratelimit")] {
        for (reset, admitted, refused) in [
            (Reset::Seconds, "60", "60"),
            (Reset::Milliseconds, "59500", "59500"),
            (Reset::UnixSeconds, "1728000060", "1728000060"),
        ] {
            let clock = clock();
            clock.advance(Duration::from_millis(500));
            let headers = Headers::of([family]).with_reset(reset);
            let policies = everybody(limit("2/min fixed")).headers(headers);
            let service = service(&layer_under(&clock, policies));
            for (remaining, reset) in [("1", admitted), ("0", admitted), ("0", refused)] {
                let answer = send(&service, request(&[])).await;
                let field = |name: &str| only(answer.headers(), &format!("{prefix}-{name}")).to_owned();
                assert_eq!([field("limit"), field("remaining"), field("reset")], ["2", remaining, reset]);
                assert!(answer.headers().get("ratelimit").is_none());
            }
        }
    }
}

#[tokio::test]
async fn older_header_fields_describe_the_deciding_limit() {
    let limits = Limits::new([limit("5/s fixed"), limit("2/min fixed"), limit("2/h fixed")]).unwrap();
    let policies = everybody(limits).headers(Headers::of([Family::XRateLimit]));
    let service = service(&layer_under(&clock(), policies));
    let answer = send(&service, request(&[])).await;
    assert_eq!(only(answer.headers(), "x-ratelimit-remaining"), "1");
    send(&service, request(&[])).await;
    let refusal = send(&service, request(&[])).await;
    assert_eq!(only(refusal.headers(), "x-ratelimit-reset"), "3600");
    assert_eq!(only(refusal.headers(), "retry-after"), "3600");
}

#[tokio::test]
async fn fields_can_be_left_out() {
    let policies = everybody(limit("1/min fixed"));
    let service_of = |headers| service(&layer_under(&clock(), policies.clone().headers(headers)));
    let service = service_of(Headers::default().only_refusals());
    assert!(send(&service, request(&[])).await.headers().get("ratelimit").is_none());
    assert!(send(&service, request(&[])).await.headers().get("ratelimit").is_some());
    let service = service_of(Headers::of([]));
    send(&service, request(&[])).await;
    let refusal = send(&service, request(&[])).await;
    assert!(refusal.headers().get("ratelimit").is_none());
    assert_eq!(only(refusal.headers(), "retry-after"), "60");
}

#[tokio::test]
async fn custom_answers_keep_their_fields_and_get_the_others() {
    let layer = layer(&clock(), "1/min fixed").answer_with(|refusal| {
        let body = format!("{:?} {:?}", refusal.reason(), refusal.violated_policies().collect::<Vec<_>>());
        let mut response = http::Response::new(Full::from(body));
        *response.status_mut() = http::StatusCode::IM_A_TEAPOT;
        response.headers_mut().insert("cache-control", "private".parse().unwrap());
        response
    });
    let service = service(&layer);
    send(&service, request(&[])).await;
    let refusal = send(&service, request(&[])).await;
    assert_eq!(refusal.status(), 418);
    assert_eq!(only(refusal.headers(), "cache-control"), "private");
    assert_eq!(only(refusal.headers(), "retry-after"), "60");
    assert_eq!(list(refusal.headers(), "ratelimit").len(), 1);
    assert_eq!(text(refusal).await, "QuotaExceeded [\"all\"]");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// For any limit and cost: the fields can be parsed, `Retry-After` is never before the end of a window, and a
    /// client that waits that long is admitted.
    #[test]
    fn every_field_is_well_formed_and_the_wait_suffices(
        quota in prop_oneof![1_u64..20, 1_u64..1_000_000_000_000],
        seconds in prop_oneof![1_u64..100, 1_u64..300_000_000],
        kind in prop::sample::select(vec!["", "fixed", "log", "bucket", "leaky"]),
        share in 1_u64..=4,
        offset in 0_u64..10_000_000_000,
    ) {
        let Ok(limit) = format!("{quota}/{seconds}s {kind}").parse::<ratelimit_core::Limit>() else { return Ok(()) };
        prop_assume!(kind != "log" || quota < 1000);
        let clock = clock();
        clock.advance(Duration::from_nanos(offset));
        let cost = (quota / share).max(1);
        let policy = Policy::new("all", KeySource::everybody(), limit).unwrap().cost(Cost::units(cost));
        let policies = Policies::new([policy]).unwrap();
        let service = service(&layer_under(&clock, policies));
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
            for _ in 0..5 {
                let answer = send(&service, request(&[])).await;
                assert!(list(answer.headers(), "ratelimit-policy")[0].1[0].1 > 0);
                let parameters = &list(answer.headers(), "ratelimit")[0].1;
                assert_eq!(parameters[0].0, "r");
                if answer.status() == 200 {
                    continue;
                }
                let wait = seconds_of(&answer);
                assert!(wait >= 1);
                assert!(i64::try_from(wait).unwrap() >= parameters[1].1, "{parameters:?} {wait}");
                clock.advance(Duration::from_secs(wait));
                assert_eq!(send(&service, request(&[])).await.status(), 200);
            }
        });
    }
}

fn seconds_of(answer: &http::Response<Body>) -> u64 {
    only(answer.headers(), "retry-after").parse().unwrap()
}

#[tokio::test]
async fn the_largest_limits_fit_structured_fields() {
    // No limit exceeds them; an instant in milliseconds or a custom cost could.
    let most = i64::try_from(ratelimit_core::meter::MAX_UNITS).unwrap();
    let service = service(&layer_under(&clock(), everybody(limit(&format!("{most}/365days fixed")))));
    let answer = send(&service, request(&[])).await;
    assert_eq!(list(answer.headers(), "ratelimit")[0].1[0], ("r".to_owned(), most - 1));
    assert_eq!(list(answer.headers(), "ratelimit-policy")[0].1[0], ("q".to_owned(), most));
}

#[tokio::test]
async fn a_total_has_no_window_and_no_time_to_wait() {
    let service = service(&layer(&clock(), "2 in total"));
    let passed = send(&service, request(&[])).await;
    assert_eq!(only(passed.headers(), "ratelimit-policy"), r#""all";q=2"#);
    assert_eq!(only(passed.headers(), "ratelimit"), r#""all";r=1"#);
    send(&service, request(&[])).await;
    let refused = send(&service, request(&[])).await;
    assert_eq!((refused.status(), refused.headers().get("retry-after")), (REFUSED, None));
    assert_eq!(only(refused.headers(), "ratelimit"), r#""all";r=0"#);
}

/// Waiting does not help, so no field tells a time.
#[tokio::test]
async fn a_refusal_for_ever_has_no_reset() {
    for (limits, cost, admitted) in [("0/s", 1, 0), ("1 in total", 1, 1), ("3/min", 9, 0)] {
        for reset in [Reset::Seconds, Reset::Milliseconds, Reset::UnixSeconds] {
            let policy = Policy::new("all", KeySource::everybody(), limit(limits)).unwrap();
            let policy = policy.cost(Cost::function(move |_| cost));
            let headers =
                Headers::of([Family::Draft11, Family::RateLimit, Family::XRateLimit]).with_reset(reset);
            let policies = Policies::new([policy]).unwrap().headers(headers);
            let service = service(&layer_under(&clock(), policies));
            assert_eq!(statuses(&service, admitted, &[]).await, vec![200; admitted]);
            let refusal = send(&service, request(&[])).await;
            assert_eq!(refusal.status(), REFUSED, "{limits}");
            assert!(!only(refusal.headers(), "ratelimit").contains("t="), "{limits}");
            for absent in ["retry-after", "ratelimit-reset", "x-ratelimit-reset"] {
                assert_eq!(refusal.headers().get(absent), None, "{limits}");
            }
            for prefix in ["ratelimit", "x-ratelimit"] {
                only(refusal.headers(), &format!("{prefix}-limit"));
                only(refusal.headers(), &format!("{prefix}-remaining"));
            }
        }
    }
}

/// What an admitted request has left of a total never comes back, either.
#[tokio::test]
async fn a_total_has_no_reset() {
    let headers = Headers::of([Family::RateLimit, Family::XRateLimit]);
    let service = service(&layer_under(&clock(), everybody(limit("2 in total")).headers(headers)));
    let admitted = send(&service, request(&[])).await;
    assert_eq!(admitted.headers().get("ratelimit-reset"), None);
    assert_eq!(admitted.headers().get("x-ratelimit-reset"), None);
    assert_eq!(only(admitted.headers(), "ratelimit-remaining"), "1");
}

/// Limits that forget a unit after their period do so after no more than that.
#[tokio::test]
async fn no_window_is_said_to_last_longer_than_its_period() {
    for limits in ["3/3s log", "3/3s fixed", "3/3s from first request", "3/3s burst 3", "100000/3s log"] {
        let clock = clock();
        let service = service(&layer(&clock, limits));
        for advance in [0, 1, 999, 7, 500] {
            clock.advance(Duration::from_millis(advance));
            let answer = send(&service, request(&[])).await;
            let parameters = &list(answer.headers(), "ratelimit")[0].1;
            let t = parameters.iter().find(|(name, _)| name == "t").map(|(_, seconds)| *seconds);
            assert!(t.is_some_and(|seconds| seconds <= 3), "{limits}: {t:?} after {advance} ms");
        }
    }
}
