//! What the metrics count. What is logged has a test of its own, because events are throttled for the whole process.

mod support;

use http::HeaderName;
use metrics_util::debugging::DebuggingRecorder;
use ratelimit_core::{Limits, ManualClock, RateLimiter};
use ratelimit_memory::{MemoryConfig, MemoryStore, WhenFull};
use ratelimit_tower::{
    Charge, ForwardedHeader, KeySource, Missing, PeerAddress, Plan, Policies, Policy, RateLimitLayer,
    TrustedProxies,
};

use support::counters::counted;
use support::*;

/// Each policy in shadow shows what it would refuse by itself. Together they take one call.
#[tokio::test]
async fn policies_in_shadow_do_not_hide_refusals_of_each_other() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let policy = |name: &str, limits: &str| Policy::new(name, KeySource::everybody(), limit(limits)).unwrap();
    let policies = || [policy("small", "1/min").in_shadow(), policy("large", "10/min").in_shadow()];
    for layer in [
        layer_under(&clock(), Policies::new(policies()).unwrap()),
        RateLimitLayer::new(limiter(&clock()), Policies::new(policies()).unwrap()),
    ] {
        let service = service(&layer);
        assert_eq!(statuses(&service, 60, &[]).await, [200; 60]);
        let counted = counted(&recorder.snapshotter());
        assert_eq!(counted["ratelimit_refused_total policy=small shadow=true"], 59);
        assert_eq!(counted["ratelimit_refused_total policy=large shadow=true"], 50);
        assert_eq!(counted["ratelimit_store_seconds"], 60);
        // Each has charged what it would have admitted.
        layer.policies().replace(Policies::new([policy("large", "11/min")]).unwrap());
        assert_eq!(statuses(&service, 2, &[]).await, [200, 429]);
        recorder.snapshotter().snapshot();
    }
}

#[tokio::test]
async fn evictions_of_meters_that_still_counted_are_counted() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let user = KeySource::header(HeaderName::from_static("x-user"));
    let policies =
        Policies::new([Policy::new("user", user, "9/min; 90/h".parse::<Limits>().unwrap()).unwrap()])
            .unwrap();
    let store = MemoryStore::with_config(MemoryConfig::default().max_keys(64));
    let layer = RateLimitLayer::in_process(RateLimiter::without_limits(store).with_clock(clock()), policies);
    let service = service(&layer);
    // Zero from the start, so that the first eviction is an increase. Each user has two meters.
    for (users, evicted) in [(0..32, 0), (0..32, 0), (32..42, 20)] {
        for user in users {
            assert_eq!(statuses(&service, 1, &[("x-user", &user.to_string())]).await, [200]);
        }
        assert_eq!(counted(&recorder.snapshotter())["ratelimit_evicted_total store=memory"], evicted);
    }
}

#[tokio::test]
async fn a_plan_that_holds_permits_counts_a_missing_key_once() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let held = Plan::new("held", limit("5 at once")).unwrap();
    let source = KeySource::header(HeaderName::from_static("x-user"));
    let policy = Policy::new("user", source, limit("9/min")).unwrap().plans(move |_| Some(held.clone()));
    let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
    assert_eq!(statuses(&service, 1, &[]).await, [200]);
    let counted = counted(&recorder.snapshotter());
    assert_eq!(counted["ratelimit_unidentified_total policy=user"], 1);
}

/// Whichever of the two refuses, the other one is not charged: before the request is served or after it.
#[tokio::test]
async fn policies_that_are_all_in_shadow_charge_as_they_will_afterwards() {
    let policy = |name: &str, limits: &str| Policy::new(name, KeySource::everybody(), limit(limits)).unwrap();
    for (watched, other, refusing) in [("1/min", "5/min", "watched"), ("5/min", "1/min", "other")] {
        let recorder = DebuggingRecorder::new();
        let _counting = metrics::set_default_local_recorder(&recorder);
        let both = [policy("watched", watched).charge(Charge::only_if(|_| true)), policy("other", other)];
        let layer = layer_under(&clock(), Policies::new(both).unwrap().in_shadow());
        let service = service(&layer);
        assert_eq!(statuses(&service, 4, &[]).await, [200; 4]);
        let counted = counted(&recorder.snapshotter());
        assert_eq!(counted[&format!("ratelimit_refused_total policy={refusing} shadow=true")], 3);
        // The larger one has counted only the request that would have been served.
        let larger = if refusing == "other" { "watched" } else { "other" };
        layer.policies().replace(Policies::new([policy(larger, "5/min")]).unwrap());
        assert_eq!(statuses(&service, 5, &[]).await, [200, 200, 200, 200, 429], "{refusing} refuses");
    }
}

#[tokio::test]
async fn a_missing_key_is_not_counted_where_the_policy_says_what_to_do() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let extension = || KeySource::extension(|name: &String| name.clone());
    let header = || KeySource::header(HeaderName::from_static("x-user"));
    let twice = [("x-user", "a"), ("x-user", "b")];
    for (source, missing, fields, status, count) in [
        (extension(), Missing::Exempt, &[][..], 200, 0),
        (extension(), Missing::Share, &[], 200, 0),
        (extension(), Missing::Refuse, &[], 500, 1),
        (header(), Missing::Exempt, &[], 200, 0),
        (header(), Missing::Share, &twice, 200, 0),
        (header(), Missing::Exempt, &twice, 400, 1),
        (header(), Missing::Refuse, &[], 400, 1),
    ] {
        let policy = Policy::new("user", source, limit("9/min")).unwrap().when_missing(missing);
        let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
        assert_eq!(statuses(&service, 1, fields).await, [status]);
        let counted = counted(&recorder.snapshotter());
        let unidentified = counted.get("ratelimit_unidentified_total policy=user").copied();
        assert_eq!(unidentified.unwrap_or_default(), count, "{missing:?} {fields:?}");
    }
}

/// A limiter whose store refuses new keys beyond the first few.
fn full() -> RateLimiter<MemoryStore, ManualClock> {
    let config = MemoryConfig::default().max_keys(1).when_full(WhenFull::Refuse);
    RateLimiter::without_limits(MemoryStore::with_config(config)).with_clock(clock())
}

#[tokio::test]
async fn what_no_decision_admits_is_not_counted_as_admitted() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let source = KeySource::header(HeaderName::from_static("x-user"));
    let policies = Policies::new([Policy::new("user", source, limit("9/min")).unwrap()]).unwrap();
    let service = service(&RateLimitLayer::new(full(), policies.in_shadow()));
    for user in 0..200 {
        assert_eq!(statuses(&service, 1, &[("x-user", &user.to_string())]).await, [200]);
    }
    let counted = counted(&recorder.snapshotter());
    let failed = counted["ratelimit_failures_total answer=shadow"];
    assert!(failed > 0, "{counted:?}");
    assert_eq!(counted["ratelimit_admitted_total"], 200 - failed);
}

/// Which policies are at work, whatever the number of clients.
#[tokio::test]
async fn checks_are_counted_for_each_policy() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let policy = |name: &str| Policy::new(name, KeySource::everybody(), limit("3/min")).unwrap();
    let some = policy("some").only(|request| request.headers.contains_key("x-user"));
    let layer =
        layer_under(&clock(), Policies::new([policy("all"), some, policy("trial").in_shadow()]).unwrap());
    let service = service(&layer);
    assert_eq!(statuses(&service, 1, &[("x-user", "ann")]).await, [200]);
    assert_eq!(statuses(&service, 3, &[]).await, [200, 200, 429]);
    layer.policies().replace(Policies::new([policy("alone")]).unwrap());
    assert_eq!(statuses(&service, 2, &[]).await, [200, 200]);
    let counted = counted(&recorder.snapshotter());
    for (policy, checks) in [("all", 4), ("some", 1), ("trial", 4), ("alone", 2)] {
        assert_eq!(counted[&format!("ratelimit_policy_checks_total policy={policy}")], checks, "{policy}");
    }
    assert_eq!(counted["ratelimit_checks_total"], 6);
}

/// Behind a proxy that is set up wrongly, many clients are counted as one.
#[tokio::test]
async fn requests_that_are_counted_as_a_proxy_are_counted() {
    let recorder = DebuggingRecorder::new();
    let _counting = metrics::set_default_local_recorder(&recorder);
    let proxies = || TrustedProxies::parse(["10.0.0.0/8"]).unwrap();
    let single = || proxies().with_header(ForwardedHeader::Single(HeaderName::from_static("x-real-ip")));
    let elements = || proxies().with_header(ForwardedHeader::Forwarded);
    for (proxies, peer, headers, reason) in [
        (proxies(), [10, 0, 0, 1], &[("x-forwarded-for", "192.0.2.7")][..], None),
        (proxies(), [192, 0, 2, 1], &[("x-forwarded-for", "nonsense")], None), // not a proxy: nobody reads it
        (proxies(), [10, 0, 0, 1], &[], Some("proxy")),
        (proxies(), [10, 0, 0, 1], &[("x-forwarded-for", "10.0.0.9")], Some("proxy")),
        (proxies(), [10, 0, 0, 1], &[("x-forwarded-for", "192.0.2.7, nonsense")], Some("malformed")),
        (proxies(), [10, 0, 0, 1], &[("x-forwarded-for", "nonsense, 192.0.2.7")], None), // the client's part
        (elements(), [10, 0, 0, 1], &[("forwarded", "for=unknown")], Some("malformed")),
        (elements(), [10, 0, 0, 1], &[("forwarded", "for=192.0.2.7")], None),
        (single(), [10, 0, 0, 1], &[("x-real-ip", "192.0.2.7")], None),
        (single(), [10, 0, 0, 1], &[("x-real-ip", "10.0.0.9")], Some("proxy")),
        (single(), [10, 0, 0, 1], &[], Some("proxy")),
        (single(), [10, 0, 0, 1], &[("x-real-ip", "nonsense")], Some("malformed")),
        (
            single(),
            [10, 0, 0, 1],
            &[("x-real-ip", "192.0.2.7"), ("x-real-ip", "192.0.2.8")],
            Some("malformed"),
        ),
    ] {
        let policy = Policy::new("address", KeySource::client_address(proxies), limit("9/min")).unwrap();
        let service = service(&layer_under(&clock(), Policies::new([policy]).unwrap()));
        let mut request = request(headers);
        request.extensions_mut().insert(PeerAddress(peer.into()));
        assert_eq!(send(&service, request).await.status(), 200);
        let counted = counted(&recorder.snapshotter());
        for known in ["proxy", "malformed"] {
            let count = counted.get(&format!("ratelimit_unresolved_addresses_total reason={known}"));
            assert_eq!(count.copied().unwrap_or(0), u64::from(reason == Some(known)), "{headers:?}");
        }
    }
}

/// Which configuration is in force, and since when: after a deployment, on every instance.
#[cfg(feature = "config")]
#[test]
fn the_configuration_in_force_is_known_by_its_hash_and_its_time() {
    use metrics_util::debugging::DebugValue;
    use ratelimit_tower::config::ConfigFile;
    use sha2::Digest as _;

    let recorder = DebuggingRecorder::new();
    let gauges = || {
        let all = recorder.snapshotter().snapshot().into_vec().into_iter();
        let values = all.filter_map(|(key, _, _, value)| {
            let DebugValue::Gauge(value) = value else { return None };
            let (_, key) = key.into_parts();
            let labels: Vec<_> = key.labels().map(|label| label.value().to_owned()).collect();
            Some((format!("{} {}", key.name(), labels.join(" ")), value.into_inner()))
        });
        values.collect::<std::collections::BTreeMap<_, _>>()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.yaml");
    let text = |quota: u64| format!("policies: [{{name: all, key: everybody, limit: {quota}/min}}]");
    // As `sha256sum` prints it, of which the beginning is enough.
    let hash = |text: &str| {
        let digits = sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        digits[..12].to_owned()
    };
    std::fs::write(&path, text(1)).unwrap();
    metrics::with_local_recorder(&recorder, || {
        let file = ConfigFile::open(&path).unwrap();
        assert_eq!(file.hash(), hash(&text(1)));
        let name = path.display();
        let info = |text: &str| format!("ratelimit_config_info {name} {}", hash(text));
        let since = format!("ratelimit_config_loaded_timestamp_seconds {name}");
        let first = gauges();
        assert_eq!(first[&info(&text(1))], 1.0);
        assert!(first[&since] > 1.7e9, "{first:?}");
        std::fs::write(&path, text(2)).unwrap();
        file.reload().unwrap();
        assert_eq!(file.hash(), hash(&text(2)));
        let second = gauges();
        assert_eq!((second[&info(&text(1))], second[&info(&text(2))]), (0.0, 1.0));
        assert!(second[&since] >= first[&since]);
        // What cannot be used is not in force.
        std::fs::write(&path, "policies: 7").unwrap();
        file.reload().unwrap_err();
        assert_eq!(file.hash(), hash(&text(2)));
    });
}
