//! Which requests are admitted: keys, plans, costs, exemptions, several policies on one request.

mod support;

use std::num::NonZeroU64;
use std::time::Duration;

use http::header::HeaderName;
use ratelimit_core::Limits;
use ratelimit_tower::{Cost, KeySource, Missing, Plan, Policies, Policy, RateLimitLayer, TrustedProxies};

use support::*;

const USER: HeaderName = HeaderName::from_static("x-user");

#[tokio::test]
async fn the_limit_is_admitted_and_again_after_retry_after() {
    let clock = clock();
    let service = service(&layer(&clock, "3/min fixed"));
    assert_eq!(statuses(&service, 5, &[]).await, [200, 200, 200, 429, 429]);
    let wait = seconds(only(send(&service, request(&[])).await.headers(), "retry-after"));
    assert_eq!(wait, Duration::from_secs(60));
    clock.advance(wait - Duration::from_nanos(1));
    assert_eq!(statuses(&service, 1, &[]).await, [429]);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(statuses(&service, 4, &[]).await, [200, 200, 200, 429]);
}

#[tokio::test]
async fn the_default_counts_by_peer_and_fails_requests_without_one() {
    let clock = clock();
    let limiter = ratelimit_core::RateLimiter::without_limits(ratelimit_memory::MemoryStore::new());
    let service = service(&RateLimitLayer::in_process(limiter.with_clock(clock), limit("2/min")));
    assert_eq!(statuses(&service, 3, &[("x-forwarded-for", "198.51.100.1")]).await, [200, 200, 429]);
    let mut other = request(&[]);
    other.extensions_mut().insert(ratelimit_tower::PeerAddress([192, 0, 2, 2].into()));
    assert_eq!(send(&service, other).await.status(), 200);
    let mut nobody = request(&[]);
    nobody.extensions_mut().clear();
    let answer = send(&service, nobody).await;
    assert_eq!(answer.status(), 500);
    assert!(answer.headers().get("retry-after").is_none());
    assert!(text(answer).await.contains("about:blank"));
}

#[tokio::test]
async fn requests_without_a_key_are_handled_as_configured() {
    for (missing, expected, of_two) in [
        (None, [200, 429, 429], 400), // together, because the client did not send it
        (Some(Missing::Share), [200, 429, 429], 429),
        (Some(Missing::Refuse), [400, 400, 400], 400),
        (Some(Missing::Exempt), [200, 200, 200], 400),
    ] {
        let mut policy = Policy::new("user", KeySource::header(USER), limit("1/min")).unwrap();
        if let Some(missing) = missing {
            policy = policy.when_missing(missing);
        }
        let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
        assert_eq!(statuses(&service, 3, &[]).await, expected, "{missing:?}");
        assert_eq!(statuses(&service, 2, &[("x-user", "ann")]).await, [200, 429]);
        // The marker for "missing" is not a key that a client can send.
        assert_eq!(statuses(&service, 1, &[("x-user", "\u{fd}")]).await, [200]);
        // Twice counts as missing, but gives nobody the share of those without a key, unless that is wanted.
        let twice = [("x-user", "ann"), ("x-user", "b")];
        assert_eq!(statuses(&service, 1, &twice).await, [of_two], "{missing:?}");
    }
}

#[tokio::test]
async fn keys_are_any_bytes_of_any_length() {
    let policy = Policy::new("user", KeySource::header(USER), limit("1/min")).unwrap();
    let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
    let long = "x".repeat(3 << 20);
    for key in ["", "a b", "ä", "\u{ff}\u{80}", &long, &format!("{long}y")] {
        assert_eq!(statuses(&service, 2, &[("x-user", key)]).await, [200, 429]);
    }
}

#[tokio::test]
async fn combined_key_sources_do_not_collide() {
    let both = KeySource::header(USER).and(KeySource::header(HeaderName::from_static("x-b")));
    let either = KeySource::header(USER).or(KeySource::client_address(TrustedProxies::none()));
    let service_of = |source| {
        let policy = Policy::new("p", source, limit("1/min")).unwrap().when_missing(Missing::Exempt);
        service(&layer_under(&clock(), Policies::new([policy]).unwrap()))
    };
    let service = service_of(both);
    for (a, b) in [("ab", "c"), ("a", "bc"), ("", "abc"), ("abc", "")] {
        assert_eq!(statuses(&service, 2, &[("x-user", a), ("x-b", b)]).await, [200, 429]);
    }
    assert_eq!(statuses(&service, 3, &[("x-user", "ab")]).await, [200, 200, 200]);
    let service = service_of(either);
    // A key that is sent twice is not replaced by the address.
    assert_eq!(statuses(&service, 1, &[("x-user", "a"), ("x-user", "a")]).await, [400]);
    assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
}

#[tokio::test]
async fn several_policies_are_charged_all_or_not_at_all() {
    let policies = Policies::new([
        Policy::new("user", KeySource::header(USER), limit("2/min")).unwrap(),
        Policy::new("all", KeySource::everybody(), limit("3/min")).unwrap(),
    ]);
    let service = service(&layer_under(&clock(), policies.unwrap()));
    // Ann's refusals do not affect the others.
    assert_eq!(statuses(&service, 4, &[("x-user", "ann")]).await, [200, 200, 429, 429]);
    assert_eq!(statuses(&service, 2, &[("x-user", "bob")]).await, [200, 429]);
    let answer = send(&service, request(&[("x-user", "bob")])).await;
    let problem: serde_json::Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["all"]));
    let answer = send(&service, request(&[("x-user", "ann")])).await;
    let problem: serde_json::Value = serde_json::from_str(&text(answer).await).unwrap();
    assert_eq!(problem["violated-policies"], serde_json::json!(["user", "all"]));
}

#[derive(Clone)]
struct Account(&'static str);

#[tokio::test]
async fn plans_are_known_after_authentication_and_share_the_count() {
    let paid = Plan::new("paid", limit("4/min")).unwrap();
    let policy = Policy::new("account", KeySource::extension(|account: &Account| account.0), limit("2/min"))
        .unwrap()
        .plans(move |request| request.headers.contains_key("x-paid").then(|| paid.clone()));
    let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
    let ask = async |account, paid: bool| {
        let mut request = request(if paid { &[("x-paid", "1")] } else { &[] });
        request.extensions_mut().insert(Account(account));
        send(&service, request).await
    };
    for expected in [200, 200, 429] {
        assert_eq!(ask("ann", false).await.status(), expected);
    }
    let upgraded = ask("ann", true).await;
    assert_eq!(only(upgraded.headers(), "ratelimit"), r#""paid";r=1;t=120"#);
    assert_eq!(ask("bob", false).await.status(), 200);
    // Without the extension it is a mistake of the program.
    assert_eq!(statuses(&service, 1, &[]).await, [500]);
}

#[tokio::test]
async fn cost_and_exemptions_come_from_the_request() {
    let kilobyte = NonZeroU64::new(1000).unwrap();
    let policy = Policy::new("bytes", KeySource::everybody(), limit("10/min"))
        .unwrap()
        .cost(Cost::content_length(kilobyte, 3))
        .except(|request| request.uri.path() == "/health")
        .only(|request| !request.headers.contains_key("x-free"));
    let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
    assert_eq!(statuses(&service, 1, &[("content-length", "4001")]).await, [200]); // 5
    assert_eq!(statuses(&service, 2, &[("transfer-encoding", "chunked")]).await, [200, 429]); // 3, unknown
    assert_eq!(statuses(&service, 3, &[("content-length", "0")]).await, [200, 200, 429]);
    assert_eq!(statuses(&service, 1, &[("x-free", "")]).await, [200]);
    let mut health = request(&[]);
    *health.uri_mut() = "/health".parse().unwrap();
    let health = send(&service, health).await;
    assert_eq!(health.status(), 200);
    assert!(health.headers().get("ratelimit").is_none());
    // A request that can never fit gets no time to retry.
    let never = send(&service, request(&[("content-length", "11000")])).await;
    assert_eq!(never.status(), 429);
    assert!(never.headers().get("retry-after").is_none());
    assert!(!only(never.headers(), "ratelimit").contains("t="));
    assert!(text(never).await.contains("can ever be admitted"));
}

#[tokio::test]
async fn a_reload_keeps_the_counts_of_what_did_not_change() {
    let of = |names: &[(&str, &str)]| {
        let policy =
            |(name, text): &(&str, &str)| Policy::new(name, KeySource::everybody(), limit(text)).unwrap();
        Policies::new(names.iter().map(policy)).unwrap()
    };
    let layer = layer_under(&clock(), of(&[("a", "3/min")]));
    let service = service(&layer);
    assert_eq!(statuses(&service, 2, &[]).await, [200, 200]);
    layer.policies().replace(of(&[("a", "3/min"), ("b", "5/min")]));
    assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
    layer.policies().replace(of(&[("a", "4/min"), ("b", "5/min")]));
    assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
}

#[test]
fn policies_that_would_be_ambiguous_are_refused() {
    let policy = |name: &str| Policy::new(name, KeySource::everybody(), limit("1/s"));
    for bad in ["", "a b", "a\"b", "ä", "\u{1f}", &"x".repeat(65)] {
        let error = policy(bad).unwrap_err().to_string();
        assert!(error.contains("1 to 64 letters"), "{error}");
        assert!(error.len() < 700, "{error}");
        assert!(Plan::new(bad, limit("1/s")).is_err());
    }
    let error =
        Policies::new([policy("a").unwrap(), policy("b").unwrap(), policy("a").unwrap()]).unwrap_err();
    assert!(error.to_string().contains("two policies are called \"a\""), "{error}");
    assert!(Policies::new([]).is_err());
    let many = |name: &str| {
        let limits = Limits::new((1..=40).map(|seconds| limit(&format!("1/{seconds}s")))).unwrap();
        Policy::new(name, KeySource::everybody(), limits).unwrap()
    };
    assert!(Policies::new([many("a")]).is_ok());
    assert!(Policies::new([many("a"), many("b")]).unwrap_err().to_string().contains("80 limits"));
}

#[test]
fn a_fixed_cost_that_never_fits_is_refused() {
    let policies = |limits: &str, cost| {
        let limits: Limits = limits.parse().unwrap();
        Policies::new([Policy::new("big", KeySource::everybody(), limits).unwrap().cost(cost)])
    };
    for (limits, most) in [
        ("10/min", None),
        ("10/min burst 49", Some(49)),
        ("20 at once; 100000/min", Some(20)),
        ("9/s log", Some(9)),
    ] {
        let error = policies(limits, Cost::units(50)).unwrap_err().to_string();
        let expected = format!("which admits at most {} at once: lower the cost", most.unwrap_or(10));
        assert!(
            error.contains("the cost of the policy \"big\" is too high") && error.contains(&expected),
            "{error}"
        );
    }
    let by_length = |unknown| Cost::content_length(NonZeroU64::MIN, unknown);
    for (limits, cost) in [
        ("50/min", Cost::units(50)),
        ("10/min burst 50; ban 1h after 5 in 1min", Cost::units(50)),
        ("0/min", Cost::units(50)), // means to refuse everything
        ("10/min", Cost::units(0)),
        ("10/min", by_length(11)), // means to refuse bodies of unknown length
        ("10/min", Cost::function(|_| 50)),
    ] {
        policies(limits, cost).unwrap_or_else(|error| panic!("{limits}: {error}"));
    }
}

#[tokio::test]
async fn units_at_once_do_not_shorten_the_wait_for_another_limit() {
    let slow = "1 at once lease 60s";
    for (limits, wait) in [
        (vec![slow, "1/30s fixed"], Some("30")),
        (vec!["1/30s fixed", slow], Some("30")),
        (vec![slow, "1/100s fixed"], Some("100")),
        (vec![slow, "9/30s fixed"], Some("1")),
        (vec![slow, "1 in total"], None),
    ] {
        let limits = Limits::new(limits.iter().map(|text| limit(text))).unwrap();
        let policy = Policy::new("work", KeySource::everybody(), limits).unwrap();
        let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
        let mut first = std::pin::pin!(send(&service, request(&[("x-status", "never")])));
        tokio::select! {
            biased;
            _ = &mut first => panic!("it is in progress as long as the test lasts"),
            () = std::future::ready(()) => {}
        }
        let refused = send(&service, request(&[])).await;
        assert_eq!(refused.status(), 429);
        let told = refused.headers().get("retry-after").map(|value| value.to_str().unwrap());
        assert_eq!(told, wait);
    }
}
