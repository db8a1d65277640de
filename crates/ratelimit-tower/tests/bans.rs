//! Bans in HTTP: who is refused too often.

mod support;

use std::time::Duration;

use http::StatusCode;
use ratelimit_core::Limits;
use ratelimit_tower::{Charge, Family, Headers, KeySource, Policies, Policy, TrustedProxies};

use support::*;

fn log_ins(charge: Charge) -> Policy {
    let limits: Limits = "2/min; ban 10min after 3 in 1min growing 2 up to 1h".parse().unwrap();
    let address = KeySource::client_address(TrustedProxies::none());
    Policy::new("log-in", address, limits).unwrap().charge(charge)
}

#[tokio::test]
async fn a_client_that_goes_on_is_banned_and_told_for_how_long() {
    let clock = clock();
    let service = service(&layer_under(&clock, Policies::new([log_ins(Charge::before())]).unwrap()));
    let passed = send(&service, request(&[])).await;
    assert_eq!(only(passed.headers(), "ratelimit-policy"), r#""log-in";q=2;w=60"#);
    assert!(only(passed.headers(), "ratelimit").starts_with(r#""log-in";r=1;t="#));
    assert_eq!(statuses(&service, 3, &[]).await, [200, 429, 429]);
    let refusal = send(&service, request(&[])).await;
    assert_eq!((refusal.status(), only(refusal.headers(), "retry-after")), (REFUSED, "600"));
    let body = text(refusal).await;
    assert!(body.contains(r#""log-in:ban""#) && body.contains("refused for 600 seconds"), "{body}");
    assert!(body.contains("#abnormal-usage-detected") && body.contains("abnormal request pattern"), "{body}");
    clock.advance(Duration::from_secs(300));
    let refusal = send(&service, request(&[])).await;
    assert_eq!(only(refusal.headers(), "retry-after"), "300");
    assert_eq!(only(refusal.headers(), "ratelimit"), r#""log-in:ban";r=0;t=300"#);
    assert!(text(refusal).await.contains(r#"["log-in:ban"]"#));
    clock.advance(Duration::from_secs(300));
    assert_eq!(statuses(&service, 1, &[]).await, [200]);
}

#[tokio::test]
async fn the_older_fields_of_a_ban_name_the_smallest_limit_of_its_policy() {
    let limits: Limits = "9/h; 2/min; ban 10min after 1 in 1min".parse().unwrap();
    let policy = Policy::new("log-in", KeySource::everybody(), limits).unwrap();
    let headers = Headers::of([Family::RateLimit, Family::XRateLimit]);
    let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap().headers(headers)));
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
    let refusal = send(&service, request(&[])).await;
    for family in ["ratelimit", "x-ratelimit"] {
        for (field, value) in [("limit", "2"), ("remaining", "0"), ("reset", "600")] {
            assert_eq!(only(refusal.headers(), &format!("{family}-{field}")), value, "{family}-{field}");
        }
    }
}

#[tokio::test]
async fn refusals_of_a_policy_that_charges_after_the_response_count_as_well() {
    let charge = Charge::only_if(|outcome| outcome.status() == Some(StatusCode::UNAUTHORIZED));
    let clock = clock();
    let service = service(&layer_under(&clock, Policies::new([log_ins(charge)]).unwrap()));
    let wrong = [("x-status", "401")];
    assert_eq!(statuses(&service, 5, &wrong).await, [401, 401, 429, 429, 429]);
    clock.advance(Duration::from_secs(599));
    assert_eq!(statuses(&service, 1, &[]).await, [429], "the limit has recovered, the ban holds");
    clock.advance(Duration::from_secs(1));
    assert_eq!(statuses(&service, 6, &wrong).await, [401, 401, 429, 429, 429, 429]);
    let refusal = send(&service, request(&[])).await;
    assert_eq!(only(refusal.headers(), "retry-after"), "1200", "the second ban");
}

#[tokio::test]
async fn a_ban_in_shadow_refuses_nobody() {
    let policy = log_ins(Charge::before()).in_shadow();
    let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
    assert_eq!(statuses(&service, 9, &[]).await, [200; 9]);
}
