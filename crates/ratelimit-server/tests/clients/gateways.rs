//! nginx and Caddy, which ask the server whether a request may pass.

use ratelimit_testbed::{Caddy, Nginx};

use crate::server;
use crate::surroundings::{Browser, Service, testbed};

#[tokio::test(flavor = "multi_thread")]
async fn nginx_answers_429_from_the_sixth_request_of_a_key_on() {
    let (service, server, browser) = (Service::start().await, server().await, Browser::new());
    let (upstream, limits) = (service.address, server.http());
    let configuration = format!(
        r#"
location / {{
    auth_request /ratelimit;
    auth_request_set $ratelimit $upstream_http_ratelimit;
    auth_request_set $retry_after $upstream_http_retry_after;
    add_header RateLimit $ratelimit;
    error_page 403 = @refused;
    proxy_pass http://{upstream};
}}
location = /ratelimit {{
    internal;
    proxy_pass http://{limits}/v1/auth?status=403;
    proxy_pass_request_body off;
    proxy_set_header Content-Length "";
    proxy_set_header X-Original-Method $request_method;
    proxy_set_header X-Original-URI $request_uri;
    proxy_set_header X-Forwarded-For $remote_addr;
}}
location @refused {{
    add_header RateLimit $ratelimit always;
    add_header Retry-After $retry_after always;
    return 429;
}}"#
    );
    let nginx =
        testbed().nginx(Nginx { server: configuration }).await.unwrap_or_else(|error| panic!("{error}"));
    for key in ["alice", "bob"] {
        for left in (0..5).rev() {
            let answer = browser.get(nginx.address(), "/page", key).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, "served"), "{answer:?}");
            assert!(answer.field("ratelimit").contains(&format!(";r={left};")), "{answer:?}");
        }
        let answer = browser.get(nginx.address(), "/page", key).await;
        assert!(answer.status == 429 && answer.field("server").starts_with("nginx/"), "{answer:?}");
        assert!(answer.field("ratelimit").contains(";r=0;"), "{answer:?}");
        assert!((1..=86_400).contains(&answer.field("retry-after").parse().unwrap_or(0)), "{answer:?}");
        assert_eq!(service.served(key), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_passes_the_servers_answer_on_from_the_sixth_request_of_a_key_on() {
    let (service, server, browser) = (Service::start().await, server().await, Browser::new());
    let (upstream, limits) = (service.address, server.http());
    let site = format!("forward_auth {limits} {{\n    uri /v1/auth\n}}\nreverse_proxy {upstream}");
    let caddy = testbed().caddy(Caddy { site }).await.unwrap_or_else(|error| panic!("{error}"));
    for key in ["alice", "bob"] {
        for _ in 0..5 {
            let answer = browser.get(caddy.address(), "/page", key).await;
            assert_eq!((answer.status, answer.body.as_str()), (200, "served"), "{answer:?}");
        }
        let answer = browser.get(caddy.address(), "/page", key).await;
        assert_eq!(answer.status, 429, "{answer:?}");
        assert!(answer.field("ratelimit").contains(";r=0;"), "{answer:?}");
        assert!((1..=86_400).contains(&answer.field("retry-after").parse().unwrap_or(0)), "{answer:?}");
        assert_eq!(service.served(key), 5);
    }
}
