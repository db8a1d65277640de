//! Input that no client should send: errors, no panics, and the others are served.

use std::time::Duration;

use ratelimit_server::Server;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::*;

#[tokio::test]
async fn bodies_that_are_no_question() {
    let started = Started::with(POLICIES, &[]).await;
    let http = started.http();
    let before = http.metric("ratelimit_server_bad_requests_total{door=\"http\"}").await;
    let deep = "[".repeat(100_000);
    let bodies: [(&[u8], u16); 19] = [
        (b"", 400),
        (b"\xff\xfe", 400),
        (b"null", 400),
        (b"{\"policy\": \"user\"}", 400),
        (b"{\"policy\": \"user\", \"key\": 7}", 400),
        (b"{\"policy\": \"user\", \"key\": []}", 400),
        (b"{\"policy\": \"user\", \"key\": [\"a\", \"b\"]}", 400),
        (b"{\"policy\": \"user\", \"key\": \"7\", \"cost\": -1}", 400),
        (b"{\"policy\": \"user\", \"key\": \"7\", \"cost\": 1.5}", 400),
        (b"{\"policy\": \"user\", \"key\": \"7\", \"cost\": 18446744073709551616}", 400),
        (b"{\"policy\": \"user\", \"key\": \"7\", \"limits\": \"1/s\"}", 400),
        (b"{\"policy\": \"user\", \"key\": \"7\", \"plan\": \"none\"}", 404),
        (b"{\"policy\": \"\", \"key\": \"7\"}", 404),
        (b"{\"policy\": \"address\", \"key\": \"nowhere\"}", 400),
        (b"{\"policy\": \"login\", \"key\": \"7\"}", 400),
        (b"{\"descriptors\": [{\"tenant\": 7}]}", 400),
        (b"{\"descriptors\": [{\"tenant\": \"7\"}], \"key\": \"7\"}", 400),
        (b"{\"descriptors\": [{\"remote_address\": \"nowhere\"}]}", 400),
        (deep.as_bytes(), 400),
    ];
    for (body, status) in bodies {
        for path in ["/v1/check", "/v1/peek"] {
            let response = http.send("POST", path, &[], body.to_vec()).await;
            assert_eq!(response.status, status, "{path} {:.60}", String::from_utf8_lossy(body));
            assert!(!response.error().is_empty());
        }
    }
    assert!(http.metric("ratelimit_server_bad_requests_total{door=\"http\"}").await >= before + 38);
    let huge = http.send("POST", "/v1/check", &[], vec![b' '; 300 * 1_024]).await;
    assert_eq!(huge.status, 413);
    let largest = json!({ "policy": "user", "key": "7", "cost": u64::MAX });
    assert_eq!(http.statuses(1, &largest).await, [429], "a cost that never fits is refused");
    assert_eq!(http.send("DELETE", "/v1/check", &[], "").await.status, 405);
    let many: Vec<_> = (0..65).map(|tenant| json!({ "tenant": tenant.to_string() })).collect();
    assert_eq!(http.post("/v1/check", &json!({ "descriptors": many })).await.status, 400);
}

#[tokio::test]
async fn messages_that_envoy_never_sends() {
    let started = Started::with(POLICIES, &[]).await;
    let mut client = started.grpc().await;
    let address = request("d", vec![descriptor(&[("remote_address", "nowhere")])]);
    assert_eq!(should(&mut client, address).await.unwrap_err(), tonic::Code::InvalidArgument);
    let many = (0..65).map(|tenant| descriptor(&[("tenant", &tenant.to_string())])).collect();
    assert_eq!(should(&mut client, request("d", many)).await.unwrap_err(), tonic::Code::InvalidArgument);
    let long = "x".repeat(300 * 1_024);
    let large = request("d", vec![descriptor(&[("tenant", &long)])]);
    assert_eq!(should(&mut client, large).await.unwrap_err(), tonic::Code::OutOfRange);
    let admitted = should(&mut client, request("", vec![descriptor(&[])])).await.unwrap();
    assert_eq!(admitted.overall_code, 1, "nothing matches");
    assert_eq!(should(&mut client, request("d", Vec::new())).await.unwrap().overall_code, 1);
    assert_eq!(
        should(&mut client, request("d", vec![descriptor(&[("tenant", "a")])])).await.unwrap().overall_code,
        1
    );
}

#[tokio::test]
async fn what_is_no_request_ends_a_connection_after_an_error() {
    let started = Started::with(POLICIES, &[]).await;
    let nested = "*1\r\n".repeat(16_000);
    let endless = "x".repeat(70_000);
    for bytes in ["*1\r\n:1\r\n", "*99999999\r\n", "*1\r\n$99999999\r\n", "*-1\r\n", &nested, &endless] {
        let mut redis = started.redis().await;
        // The server may close the connection before all is sent.
        let _ = redis.0.write_all(b"PING\r\n").await;
        let _ = redis.0.write_all(bytes.as_bytes()).await;
        assert!(redis.rest().await.starts_with("+PONG\r\n-ERR Protocol error"), "{bytes:.20}");
    }
    assert_eq!(started.redis().await.ask(&[b"PING"]).await, "+PONG");
}

/// Garbage at each door, on many connections, cut anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_ends_nothing_but_its_connection() {
    let started = Started::with(POLICIES, &["--idle=5s"]).await;
    let addresses = started.server.addresses();
    let mut seed = 7_u64;
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let starts: [&[u8]; 7] = [
        b"*3\r\n$8\r\nRL.CHECK\r\n$4\r\nuser\r\n",
        b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 999999999999\r\n\r\n{",
        b"POST /v1/check HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x01\x05\0\0\0\x01",
        b"GET / HTTP/1.1\r\n",
        b"",
    ];
    for round in 0..600 {
        let garbage: Vec<u8> = (0..random() % 300).map(|_| u8::try_from(random() % 256).unwrap()).collect();
        let start = starts[round % starts.len()];
        let bytes =
            [&start[..start.len() - usize::try_from(random()).unwrap() % (start.len() + 1)], &garbage]
                .concat();
        for address in [addresses.http, addresses.grpc, addresses.redis] {
            let mut stream = TcpStream::connect(address.unwrap()).await.unwrap();
            let _ = stream.write_all(&bytes).await;
        }
    }
    assert_eq!(started.http().statuses(1, &json!({ "policy": "user", "key": "7" })).await, [200]);
    assert_eq!(started.redis().await.ask(&[b"PING"]).await, "+PONG");
    let mut client = started.grpc().await;
    assert!(should(&mut client, request("d", vec![descriptor(&[("tenant", "a")])])).await.is_ok());
}

/// Connections that send nothing, or half of something, are closed, and their places are free again.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_closed_and_make_place() {
    let started = Started::with(POLICIES, &["--connections=4", "--idle=200ms"]).await;
    let addresses = started.server.addresses();
    for (address, half) in [
        (addresses.redis, &b"*2\r\n$4\r\nPI"[..]),
        (addresses.redis, b""),
        (addresses.http, b""),
        (addresses.http, b"GET /live HTT"),
        (addresses.http, b"GET /live HTTP/1.1\r\nhost: x\r\n\r\n"),
        (addresses.http, b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{"),
        (addresses.grpc, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0"),
    ] {
        let mut streams = Vec::new();
        for _ in 0..8 {
            let mut stream = TcpStream::connect(address.unwrap()).await.unwrap();
            stream.write_all(half).await.unwrap();
            streams.push(stream);
        }
        for mut stream in streams {
            let mut rest = Vec::new();
            // Only an end or an error completes this.
            let ended = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest)).await;
            assert!(ended.is_ok(), "still open after {half:?}");
        }
    }
    assert_eq!(started.redis().await.ask(&[b"PING"]).await, "+PONG");
    assert_eq!(started.http().get("/live").await.status, 200);
}

/// A client that sends requests and reads no answers is not answered without a bound, and its connection ends.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_nothing_is_left() {
    let started = Started::with(POLICIES, &["--idle=500ms"]).await;
    let mut redis = started.redis().await;
    let requests = Redis::encode(&[b"PING", &[b'x'; 10_000]]).repeat(10);
    let send = async {
        // Until the server no longer reads, and then closes the connection.
        while redis.0.write_all(&requests).await.is_ok() {}
    };
    tokio::time::timeout(Duration::from_secs(60), send).await.expect("the connection ends");
    assert_eq!(started.redis().await.ask(&[b"PING"]).await, "+PONG");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_announced_and_takes_no_longer_than_it_may() {
    let started = Started::with(POLICIES, &["--linger=2s", "--drain=500ms"]).await;
    let (http, addresses) = (started.http(), started.server.addresses());
    assert_eq!(http.get("/ready").await.status, 200);
    // One that is open and silent, and one in the middle of a request.
    let _silent = started.redis().await;
    let mut half = TcpStream::connect(addresses.http.unwrap()).await.unwrap();
    half.write_all(b"POST /v1/check HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n{").await.unwrap();
    let mut health = tonic_health::pb::health_client::HealthClient::new(started.channel().await);
    let mut watching = health
        .watch(tonic_health::pb::HealthCheckRequest { service: String::new() })
        .await
        .unwrap()
        .into_inner();
    assert_eq!(watching.message().await.unwrap().unwrap().status, 1);
    let Started { server, folder } = started;
    let ended = tokio::spawn(server.end());
    assert_eq!(watching.message().await.unwrap().unwrap().status, 2, "not serving");
    let unready = http.get("/ready").await;
    assert_eq!(unready.status, 503, "it says so, and still serves");
    assert_eq!(http.statuses(1, &json!({ "policy": "user", "key": "7" })).await, [200]);
    let bound = Duration::from_secs(60);
    tokio::time::timeout(bound, ended).await.expect("it ends").unwrap().unwrap();
    assert!(TcpStream::connect(addresses.http.unwrap()).await.is_err(), "nobody listens any more");
    drop(folder);
    let again = Server::start(args(&[&format!("--http={}", addresses.http.unwrap())])).await;
    assert!(again.is_ok(), "the address is free again");
}

/// What a client chooses is bounded before it is kept: domains are remembered, and receipts contain limits.
#[tokio::test]
async fn names_and_limits_are_bounded() {
    let started = Started::with(POLICIES, &["--allow-limits"]).await;
    let http = started.http();
    let long = "x".repeat(257);
    let domain = http.post("/v1/check", &json!({ "domain": long, "policy": "user", "key": "7" })).await;
    assert!(domain.status == 404 && domain.error().contains("256 bytes"), "{}", domain.error());
    let admitted = should(&mut started.grpc().await, request(&long, vec![descriptor(&[("tenant", "a")])]))
        .await
        .unwrap();
    assert!(admitted.statuses[0].current_limit.is_none(), "admitted, as any unknown domain");
    let limits = format!("1/day name {}", "x".repeat(5_000));
    assert_eq!(http.post("/v1/check", &json!({ "limits": limits, "key": "7" })).await.status, 400);
    // The longest receipt can be used: many limits, and a long key.
    let limits: Vec<String> = (0..64).map(|limit| format!("9/day name l{limit}")).collect();
    let body = json!({ "limits": limits.join("; "), "key": "k".repeat(10_000) });
    let receipt = http.post("/v1/check", &body).await.receipt();
    assert_eq!(http.post("/v1/refund", &json!({ "receipt": receipt })).await.status, 200);
}
