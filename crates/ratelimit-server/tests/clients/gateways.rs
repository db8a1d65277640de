//! nginx and Caddy, which ask the server whether a request may pass, as docs/server.md describes it.

use ratelimit_testbed::{Caddy, Nginx};

use crate::server;
use crate::surroundings::{Browser, Service, testbed, written};

#[tokio::test(flavor = "multi_thread")]
async fn nginx_answers_429_from_the_sixth_request_of_a_key_on() {
    let (service, server, browser) = (Service::start().await, server().await, Browser::new());
    let (upstream, limits) = (service.address, server.http());
    let ask = "auth_request /ratelimit;";
    let fields = "auth_request_set $fields $upstream_http_ratelimit; add_header RateLimit $fields;";
    let configuration = written("location / {")
        .replace("http://app", &format!("http://{upstream}"))
        .replace("127.0.0.1:8080", &limits.to_string())
        .replace(ask, &format!("{ask} {fields}"));
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
        assert!((1..=86_400).contains(&answer.field("retry-after").parse().unwrap_or(0)), "{answer:?}");
        assert_eq!(service.served(key), 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_passes_the_servers_answer_on_from_the_sixth_request_of_a_key_on() {
    let (service, server, browser) = (Service::start().await, server().await, Browser::new());
    let (upstream, limits) = (service.address, server.http());
    let ask = written("forward_auth 127.0.0.1:8080 {").replace("127.0.0.1:8080", &limits.to_string());
    let site = format!("{ask}\nreverse_proxy {upstream}");
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
