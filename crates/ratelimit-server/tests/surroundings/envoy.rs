//! An Envoy that asks rate limit servers before it passes a request on.

use std::net::SocketAddr;

use ratelimit_testbed::{Envoy, Server};

use super::{testbed, written};

/// An Envoy with its rate limit filter, as docs/server.md describes it.
pub struct Asking<'a> {
    /// The service behind it.
    pub service: SocketAddr,
    /// The rate limit servers, which it asks in turn.
    pub servers: &'a [SocketAddr],
    /// How long it waits for their answer.
    pub timeout: &'a str,
    /// What it does with a request that they did not decide in time: whether it answers 500.
    pub deny: bool,
    /// Whether it checks their health, and no longer asks one that is about to end.
    pub health: bool,
}

/// A check each tenth of a second; one that fails is enough.
const HEALTH: &str = "
    health_checks:
    - timeout: 5s
      interval: 0.1s
      no_traffic_interval: 0.1s
      unhealthy_threshold: 1
      healthy_threshold: 1
      grpc_health_check: {service_name: envoy.service.ratelimit.v3.RateLimitService}";

impl Asking<'_> {
    pub async fn start(&self) -> Server {
        let envoy = Envoy { configuration: self.configuration() };
        testbed().envoy(envoy).await.unwrap_or_else(|error| panic!("{error}"))
    }

    fn configuration(&self) -> String {
        let endpoint = |address: &SocketAddr| {
            format!(
                "\n        - endpoint: {{address: {{socket_address: {{address: {}, port_value: {}}}}}}}",
                address.ip(),
                address.port()
            )
        };
        let written = written("http_filters:");
        let filter: String = written.lines().skip(1).map(|line| format!("\n          {line}")).collect();
        assert!(filter.contains("timeout: 0.02s"), "the page has another time limit: {filter}");
        let deny = format!("timeout: {}\n              failure_mode_deny: {}", self.timeout, self.deny);
        include_str!("envoy.yaml")
            .replace("<filter>", &filter.replace("timeout: 0.02s", &deny))
            .replace("<health>", if self.health { HEALTH } else { "" })
            .replace("<service>", &endpoint(&self.service))
            .replace("<servers>", &self.servers.iter().map(endpoint).collect::<String>())
    }
}
