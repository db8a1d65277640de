//! Tests which servers are available here by starting each once:
//! `cargo run -p ratelimit-testbed --example available -- redis`. Prints one line to stdout for each name: the name, a tab,
//! and `ok` or the reason why the server is not available.

use ratelimit_testbed::{Caddy, Envoy, Nginx, PYTHON_PACKAGES, PgBouncer, Testbed};

/// An Envoy that answers by itself.
const ENVOY: &str = r#"
static_resources:
  listeners:
  - address: {socket_address: {address: 127.0.0.1, port_value: <port>}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: available
          route_config: {}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
"#;

#[tokio::main]
async fn main() {
    let testbed = Testbed::from_env();
    for name in std::env::args().skip(1) {
        let outcome = match name.as_str() {
            "redis" => testbed.redis().await.map(drop),
            "memcached" => testbed.memcached().await.map(drop),
            "postgres" => testbed.postgres().await.map(drop),
            "twemproxy" => testbed.twemproxy().await.map(drop),
            "pgbouncer" => match testbed.postgres().await {
                Ok(server) => testbed.pgbouncer(&server, PgBouncer::default()).await.map(drop),
                Err(unavailable) => Err(unavailable),
            },
            "envoy" => testbed.envoy(Envoy { configuration: ENVOY.to_owned() }).await.map(drop),
            "nginx" => testbed.nginx(Nginx { server: "return 204;".to_owned() }).await.map(drop),
            "caddy" => testbed.caddy(Caddy { site: "respond 204".to_owned() }).await.map(drop),
            "node" => testbed.node().await.map(drop),
            "curl" => testbed.client("curl", "curl").await.map(drop),
            "haproxy" => testbed.client("haproxy", "haproxy").await.map(drop),
            "python3" => testbed.client("python3", "python3").await.map(drop),
            "python3-packages" => testbed.python(PYTHON_PACKAGES).await.map(drop),
            "redis-cli" => testbed.client("redis-cli", "redis-tools").await.map(drop),
            _ => {
                println!("{name}\tthere is no server of this name");
                continue;
            }
        };
        let reason = outcome.err().map_or("ok".to_owned(), |unavailable| unavailable.to_string());
        println!("{name}\t{}", reason.lines().map(str::trim).collect::<Vec<_>>().join("; "));
    }
}
