//! Domains: which are answered, and by which file.

use ratelimit_server::Server;
use ratelimit_server::grpc::envoy::service::ratelimit::v3::rate_limit_response::Code;
use serde_json::json;

use crate::support::*;

#[tokio::test]
async fn listed_domains_have_files_of_their_own_and_others_are_admitted_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mesh.toml");
    std::fs::write(&file, "[[policies]]\nname = \"t\"\nkey = \"tenant\"\nlimit = \"1/day log\"\n").unwrap();
    let mesh = format!("--domain=mesh={}", file.display());
    let started = Started::with(POLICIES, &[&mesh, "--domain=edge"]).await;
    let mut client = started.grpc().await;
    let mut remaining = async |domain: &str| {
        let response =
            should(&mut client, request(domain, vec![descriptor(&[("tenant", "a")])])).await.unwrap();
        assert_eq!(response.overall_code(), Code::Ok);
        (response.statuses[0].limit_remaining, response.statuses[0].current_limit.is_some())
    };
    let unmatched = "ratelimit_server_unmatched_total{what=\"domain\"}";
    let before = started.http().metric(unmatched).await;
    assert_eq!(remaining("mesh").await, (0, true));
    assert_eq!(remaining("edge").await, (4, true));
    assert_eq!(remaining("nowhere").await, (0, false), "admitted without a limit");
    assert!(started.http().metric(unmatched).await > before);
    let http = started.http();
    let of = |domain: &str| json!({ "domain": domain, "policy": "tenant", "key": "a" });
    assert_eq!(http.post("/v1/peek", &of("edge")).await.json()["remaining"], 4);
    let mesh = http.post("/v1/peek", &of("mesh")).await;
    assert_eq!(mesh.status, 404, "its file has no such policy: {}", mesh.error());
    let nowhere = http.post("/v1/check", &of("nowhere")).await;
    assert!(nowhere.status == 404 && nowhere.error().contains("--domain"), "{}", nowhere.error());
    // A receipt remembers its domain.
    let receipt = http.post("/v1/check", &of("edge")).await.receipt();
    assert_eq!(http.post("/v1/refund", &json!({ "receipt": receipt })).await.status, 200);
    assert_eq!(http.post("/v1/peek", &of("edge")).await.json()["remaining"], 4);
}

#[tokio::test]
async fn without_a_file_there_is_throttling_and_envoy_is_admitted() {
    let server = Server::start(args(&[])).await.unwrap();
    let addresses = server.addresses();
    let mut redis = Redis::connect(addresses.redis.unwrap()).await;
    assert_eq!(redis.numbers(&["CL.THROTTLE", "a", "1", "1", "86400"]).await[..3], [0, 2, 1]);
    assert!(redis.ask(&[b"RL.CHECK", b"user", b"7"]).await.contains("--config"));
    let check =
        Http::at(addresses.http.unwrap()).post("/v1/check", &json!({ "policy": "user", "key": "7" })).await;
    assert!(check.status == 404 && check.error().contains("--config"), "{}", check.error());
}

#[tokio::test]
async fn any_number_of_domains_is_answered() {
    let started = Started::with(POLICIES, &[]).await;
    let mut client = started.grpc().await;
    for number in 0..1_100 {
        let request = request(&format!("domain {number}"), vec![descriptor(&[("tenant", "a")])]);
        assert_eq!(should(&mut client, request).await.unwrap().statuses[0].limit_remaining, 4);
    }
    for number in [0, 1_099] {
        let request = request(&format!("domain {number}"), vec![descriptor(&[("tenant", "a")])]);
        assert_eq!(should(&mut client, request).await.unwrap().statuses[0].limit_remaining, 3);
    }
}
