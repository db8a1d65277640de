//! Tests which servers are available here by starting each once:
//! `cargo run -p ratelimit-testbed --example available -- redis`. Prints one line to stdout for each name: the name, a tab,
//! and `ok` or the reason why the server is not available.

use ratelimit_testbed::{PgBouncer, Testbed};

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
            "curl" => testbed.client("curl", "curl").await.map(drop),
            "haproxy" => testbed.client("haproxy", "haproxy").await.map(drop),
            "python3" => testbed.client("python3", "python3").await.map(drop),
            _ => {
                println!("{name}\tthere is no server of this name");
                continue;
            }
        };
        let reason = outcome.err().map_or("ok".to_owned(), |unavailable| unavailable.to_string());
        println!("{name}\t{}", reason.lines().map(str::trim).collect::<Vec<_>>().join("; "));
    }
}
