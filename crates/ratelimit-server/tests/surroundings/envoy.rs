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
}

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
            .replace("<service>", &endpoint(&self.service))
            .replace("<servers>", &self.servers.iter().map(endpoint).collect::<String>())
    }
}
