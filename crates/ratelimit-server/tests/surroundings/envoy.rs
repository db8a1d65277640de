//! An Envoy that asks rate limit servers before it passes a request on.

use std::net::SocketAddr;

use ratelimit_testbed::{Envoy, Server};

use super::testbed;

/// An Envoy with its rate limit filter.
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
        include_str!("envoy.yaml")
            .replace("<service>", &endpoint(&self.service))
            .replace("<servers>", &self.servers.iter().map(endpoint).collect::<String>())
            .replace("<timeout>", self.timeout)
            .replace("<deny>", &self.deny.to_string())
    }
}
