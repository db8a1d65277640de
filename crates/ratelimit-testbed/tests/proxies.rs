//! Proxies before a service that says which requests may pass: each passes a request on or answers in its place.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::any;
use ratelimit_testbed::{Caddy, Envoy, Nginx, Server, Settings, Testbed};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A service: `/` answers, and `/auth` says whether a request may pass; it refuses those of `mallory` with 403.
struct Service {
    address: SocketAddr,
    served: Arc<AtomicUsize>,
    asked: Arc<AtomicUsize>,
}

impl Service {
    async fn start() -> Self {
        let [served, asked] = [(); 2].map(|()| Arc::<AtomicUsize>::default());
        let serve = async |State([served, _]): State<[Arc<AtomicUsize>; 2]>| {
            served.fetch_add(1, Ordering::SeqCst);
            "served"
        };
        let auth = async |State([_, asked]): State<[Arc<AtomicUsize>; 2]>, headers: HeaderMap| {
            asked.fetch_add(1, Ordering::SeqCst);
            match headers.get("x-user").is_some_and(|user| user == "mallory") {
                true => (StatusCode::FORBIDDEN, [("retry-after", "7")], "refused"),
                false => (StatusCode::OK, [("retry-after", "0")], ""),
            }
        };
        let router = Router::new()
            .route("/auth", any(auth))
            .fallback(serve)
            .with_state([Arc::clone(&served), Arc::clone(&asked)]);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async { axum::serve(listener, router).await });
        Self { address, served, asked }
    }

    /// How many requests it has served, and how often it was asked whether one may pass.
    fn counts(&self) -> (usize, usize) {
        (self.served.load(Ordering::SeqCst), self.asked.load(Ordering::SeqCst))
    }
}

/// The testbed, and a failure if what it obtains is not available.
fn testbed() -> Testbed {
    Testbed::new(Settings { addresses: Default::default(), ..Settings::from_env() })
}

/// The status and the rest of the answer to a request of this user.
async fn ask(server: &Server, user: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).await.expect("connect");
    let head = format!("GET /page HTTP/1.1\r\nhost: x\r\nx-user: {user}\r\nconnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("answered {answer:?}")), answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn envoy_passes_requests_on() {
    let service = Service::start().await;
    let configuration = format!(
        r#"
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: <port>}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: test
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes: [{{match: {{prefix: /}}, route: {{cluster: service}}}}]
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: service
    load_assignment:
      cluster_name: service
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {}}}}}}}
"#,
        service.address.port()
    );
    let envoy = testbed().envoy(Envoy { configuration }).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(service.counts(), (0, 0), "being ready asks nobody");
    let (status, answer) = ask(&envoy, "alice").await;
    assert!(status == 200 && answer.contains("served") && answer.contains("server: envoy"), "{answer}");
    assert_eq!(service.counts(), (1, 0));
    let address = envoy.address();
    drop(envoy);
    assert!(TcpStream::connect(address).await.is_err(), "it listens after its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_asks_before_it_passes_a_request_on() {
    let service = Service::start().await;
    let address = service.address;
    let server = format!(
        "location = /auth {{ internal; proxy_pass http://{address}/auth; proxy_pass_request_body off; \
         proxy_set_header content-length ''; }}\n\
         location / {{ auth_request /auth; proxy_pass http://{address}; }}"
    );
    let nginx = testbed().nginx(Nginx { server }).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(service.counts(), (0, 0), "being ready asks nobody");
    let (status, answer) = ask(&nginx, "alice").await;
    assert!(status == 200 && answer.contains("served") && answer.contains("Server: nginx"), "{answer}");
    let (status, answer) = ask(&nginx, "mallory").await;
    assert!(status == 403 && !answer.contains("retry-after"), "nginx writes the answer: {answer}");
    assert_eq!(service.counts(), (1, 2));
    let address = nginx.address();
    drop(nginx);
    assert!(TcpStream::connect(address).await.is_err(), "it listens after its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn caddy_asks_before_it_passes_a_request_on() {
    let service = Service::start().await;
    let address = service.address;
    let site = format!("forward_auth {address} {{\n uri /auth\n}}\nreverse_proxy {address}");
    let caddy = testbed().caddy(Caddy { site }).await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(service.counts(), (0, 0), "being ready asks nobody");
    let (status, answer) = ask(&caddy, "alice").await;
    assert!(status == 200 && answer.contains("served") && answer.contains("Server: Caddy"), "{answer}");
    let (status, answer) = ask(&caddy, "mallory").await;
    assert!(status == 403 && answer.contains("Retry-After: 7"), "the answer is passed on: {answer}");
    assert_eq!(service.counts(), (1, 2));
    let address = caddy.address();
    drop(caddy);
    assert!(TcpStream::connect(address).await.is_err(), "it listens after its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_is_refused_is_an_error_that_quotes_the_reason() {
    // One word: where Envoy quotes, how wide a blank is differs from run to run.
    let error = testbed().envoy(Envoy { configuration: "no_such: {field: 1}".into() }).await;
    let error = error.expect_err("it is refused").to_string();
    assert!(error.contains("ended while starting") && error.contains("no_such"), "{error}");
    let error = testbed().nginx(Nginx { server: "no_such_directive;".into() }).await;
    let error = error.expect_err("it is refused").to_string();
    assert!(error.contains("ended while starting") && error.contains("no_such_directive"), "{error}");
    let error = testbed().caddy(Caddy { site: "no_such_directive".into() }).await;
    let error = error.expect_err("it is refused").to_string();
    assert!(error.contains("ended while starting") && error.contains("no_such_directive"), "{error}");
}
