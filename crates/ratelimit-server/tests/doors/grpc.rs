//! Envoy's rate limit service.

use ratelimit_server::grpc::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use ratelimit_server::grpc::envoy::service::ratelimit::v3::RateLimitResponse;
use ratelimit_server::grpc::envoy::service::ratelimit::v3::rate_limit_response::Code;
use ratelimit_server::grpc::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use ratelimit_server::grpc::envoy::r#type::v3::RateLimitUnit;
use serde_json::json;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::support::*;

fn codes(response: &RateLimitResponse) -> (Code, Vec<Code>) {
    (response.overall_code(), response.statuses.iter().map(|status| status.code()).collect())
}

fn field<'r>(response: &'r RateLimitResponse, name: &str) -> Option<&'r str> {
    response
        .response_headers_to_add
        .iter()
        .find(|header| header.key == name)
        .map(|header| header.value.as_str())
}

#[tokio::test]
async fn a_limit_is_used_up_and_described() {
    let started = Started::with(POLICIES, &["--namespace=edge"]).await;
    let mut client = started.grpc().await;
    let ask = || request("edge", vec![descriptor(&[("tenant", "a"), ("route", "login")])]);
    for remaining in [1, 0] {
        let response = should(&mut client, ask()).await.unwrap();
        assert_eq!(codes(&response), (Code::Ok, vec![Code::Ok]));
        let status = &response.statuses[0];
        assert_eq!(status.limit_remaining, remaining);
        let limit = status.current_limit.as_ref().unwrap();
        assert_eq!((limit.requests_per_unit, limit.unit(), &*limit.name), (2, Unit::Day, "login"));
        assert!(status.duration_until_reset.as_ref().unwrap().seconds > 86_000);
        assert_eq!(field(&response, "ratelimit-policy"), Some("\"login\";q=2;w=86400"));
        assert!(field(&response, "ratelimit").unwrap().starts_with(&format!("\"login\";r={remaining};t=")));
        assert_eq!(field(&response, "retry-after"), None);
        assert!(response.request_headers_to_add.is_empty());
    }
    let response = should(&mut client, ask()).await.unwrap();
    assert_eq!(codes(&response), (Code::OverLimit, vec![Code::OverLimit]));
    assert!(field(&response, "retry-after").unwrap().parse::<u64>().unwrap() > 86_000);
    assert_eq!(response.statuses[0].limit_remaining, 0);
    // The namespace of HTTP is the domain `edge`.
    let login = json!({ "policy": "login", "key": ["a", "login"] });
    assert_eq!(started.http().statuses(1, &login).await, [429]);
    let other = request("other", vec![descriptor(&[("tenant", "a"), ("route", "login")])]);
    assert_eq!(codes(&should(&mut client, other).await.unwrap()).0, Code::Ok, "another domain");
}

#[tokio::test]
async fn all_descriptors_are_admitted_or_none() {
    let started = Started::with(POLICIES, &[]).await;
    let mut client = started.grpc().await;
    let both = || {
        let login = descriptor(&[("route", "login"), ("tenant", "a")]);
        request("d", vec![descriptor(&[("tenant", "a")]), login, descriptor(&[("unknown", "x")])])
    };
    let unmatched = "ratelimit_server_unmatched_total{what=\"descriptor\"}";
    let before = started.http().metric(unmatched).await;
    for _ in 0..2 {
        let response = should(&mut client, both()).await.unwrap();
        assert_eq!(codes(&response), (Code::Ok, vec![Code::Ok; 3]));
    }
    let response = should(&mut client, both()).await.unwrap();
    assert_eq!(codes(&response), (Code::OverLimit, vec![Code::Ok, Code::OverLimit, Code::Ok]));
    assert_eq!(response.statuses[0].limit_remaining, 3, "the refusal has charged nothing");
    assert!(started.http().metric(unmatched).await >= before + 3);
    let tenant = || request("d", vec![descriptor(&[("tenant", "a")])]);
    assert_eq!(should(&mut client, tenant()).await.unwrap().statuses[0].limit_remaining, 2);
}

#[tokio::test]
async fn addends() {
    let started = Started::with(POLICIES, &[]).await;
    let mut client = started.grpc().await;
    let tenant = || descriptor(&[("tenant", "a")]);
    let mut ask = async |hits: u32, of_descriptor: Option<u64>| {
        let mut request = request("d", vec![tenant()]);
        request.hits_addend = hits;
        request.descriptors[0].hits_addend = of_descriptor;
        let response = should(&mut client, request).await.unwrap();
        (response.overall_code(), response.statuses[0].limit_remaining)
    };
    assert_eq!(ask(0, None).await, (Code::Ok, 4), "nothing means one");
    assert_eq!(ask(2, None).await, (Code::Ok, 2));
    assert_eq!(ask(9, Some(1)).await, (Code::Ok, 1), "that of the descriptor counts");
    assert_eq!(ask(9, Some(0)).await, (Code::Ok, 1), "none looks");
    assert_eq!(ask(u32::MAX, None).await, (Code::OverLimit, 1));
    assert_eq!(ask(0, Some(u64::MAX)).await, (Code::OverLimit, 1));
    assert_eq!(ask(1, None).await, (Code::Ok, 0));
}

#[tokio::test]
async fn the_same_descriptor_twice_is_charged_twice() {
    let started = Started::with(POLICIES, &[]).await;
    let mut client = started.grpc().await;
    let twice = || request("d", vec![descriptor(&[("tenant", "a")]), descriptor(&[("tenant", "a")])]);
    for (code, remaining) in [(Code::Ok, 3), (Code::Ok, 1), (Code::OverLimit, 1)] {
        let response = should(&mut client, twice()).await.unwrap();
        assert_eq!(codes(&response), (code, vec![code; 2]));
        assert_eq!(response.statuses[1].limit_remaining, remaining);
    }
}

#[tokio::test]
async fn negative_hits_return_what_was_charged_and_no_more() {
    let file = "[[policies]]\nname = \"tenant\"\nkey = \"tenant\"\nlimit = \"5/day fixed\"\n";
    let started = Started::with(file, &[]).await;
    let mut client = started.grpc().await;
    let mut ask = async |hits: u64, is_negative_hits: bool| {
        let mut request = request("d", vec![descriptor(&[("tenant", "a")])]);
        request.descriptors[0].hits_addend = Some(hits);
        request.descriptors[0].is_negative_hits = is_negative_hits;
        let response = should(&mut client, request).await.unwrap();
        (response.overall_code(), response.statuses[0].limit_remaining)
    };
    assert_eq!(ask(2, true).await.0, Code::Ok, "there is nothing to return");
    assert_eq!(ask(4, false).await, (Code::Ok, 1));
    assert_eq!(ask(2, true).await.0, Code::Ok);
    assert_eq!(ask(0, false).await, (Code::Ok, 3));
    assert_eq!(ask(u64::MAX, true).await.0, Code::Ok);
    assert_eq!(ask(0, false).await, (Code::Ok, 5));
    assert_eq!(ask(6, false).await, (Code::OverLimit, 5), "no more than the limit");
}

#[tokio::test]
async fn a_limit_in_the_descriptor_only_if_allowed() {
    for (options, remaining) in [(&[][..], 4), (&["--allow-limits"], 99)] {
        let started = Started::with(POLICIES, options).await;
        let mut request = request("d", vec![descriptor(&[("tenant", "a")])]);
        let unit = RateLimitUnit::Hour.into();
        request.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 100, unit });
        let response = should(&mut started.grpc().await, request).await.unwrap();
        assert_eq!(response.statuses[0].limit_remaining, remaining);
    }
    let started = Started::with(POLICIES, &["--allow-limits"]).await;
    for unit in [0, 99] {
        let mut request = request("d", vec![descriptor(&[("tenant", "a")])]);
        request.descriptors[0].limit = Some(RateLimitOverride { requests_per_unit: 100, unit });
        assert_eq!(
            should(&mut started.grpc().await, request).await.unwrap_err(),
            tonic::Code::InvalidArgument
        );
    }
}

#[tokio::test]
async fn the_service_behind_envoy_can_get_the_receipt() {
    let started = Started::with(POLICIES, &["--receipt-header=x-receipt", "--namespace=d"]).await;
    let mut client = started.grpc().await;
    let ask = || request("d", vec![descriptor(&[("tenant", "a")])]);
    let response = should(&mut client, ask()).await.unwrap();
    let [header] = &response.request_headers_to_add[..] else { panic!("{response:?}") };
    assert_eq!(header.key, "x-receipt");
    let refund = started.http().post("/v1/refund", &json!({ "receipt": header.value })).await;
    assert_eq!(refund.status, 200);
    assert_eq!(should(&mut client, ask()).await.unwrap().statuses[0].limit_remaining, 4);
}

#[tokio::test]
async fn health_and_reflection() {
    let started = Started::with(POLICIES, &[]).await;
    let channel = started.channel().await;
    let mut health = HealthClient::new(channel.clone());
    for service in ["", "envoy.service.ratelimit.v3.RateLimitService"] {
        let request = HealthCheckRequest { service: service.to_owned() };
        assert_eq!(health.check(request).await.unwrap().into_inner().status, 1, "serving: {service:?}");
    }
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    let mut reflection = ServerReflectionClient::new(channel);
    let list = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(list).await.unwrap();
    drop(sender);
    let stream = tokio_stream::wrappers::ReceiverStream::new(receiver);
    let mut answers = reflection.server_reflection_info(stream).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(services)) = answer.message_response else {
        panic!("{answer:?}")
    };
    let names: Vec<&str> = services.service.iter().map(|service| service.name.as_str()).collect();
    assert!(names.contains(&"envoy.service.ratelimit.v3.RateLimitService"), "{names:?}");
    assert!(names.contains(&"grpc.health.v1.Health"), "{names:?}");
}
