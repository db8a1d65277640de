//! TLS, with an authority of the test's own.
#![cfg(feature = "tls")]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::Server;
use ratelimit_core::{CounterStore, ErrorKind, Limit, RateLimiter};
use ratelimit_redis::{RedisConfig, RedisStore};

/// A server that speaks TLS on a port of its own, and the certificate of the authority that vouches for it.
async fn start() -> (Server, String, Vec<u8>) {
    let folder = std::env::temp_dir().join(format!("ratelimit-redis-tls-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let openssl = |arguments: &str| {
        let arguments = arguments.split_whitespace();
        let mut command = Command::new("openssl");
        command.args(arguments).current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::null());
        assert!(command.status().expect("openssl has to be in PATH").success());
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem");
    openssl("req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr");
    std::fs::write(
        folder.join("names"),
        "subjectAltName=DNS:localhost,IP:127.0.0.1\nbasicConstraints=CA:FALSE\n",
    )
    .unwrap();
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.pem",
    );
    let authority = std::fs::read(folder.join("ca.pem")).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let port = common::free_port();
    let options = [
        ("--tls-port", port.to_string()),
        ("--tls-cert-file", path("server.pem")),
        ("--tls-key-file", path("server.key")),
        ("--tls-ca-cert-file", path("ca.pem")),
        ("--tls-auth-clients", "no".to_owned()),
    ];
    let options: Vec<&str> = options.iter().flat_map(|(name, value)| [*name, value.as_str()]).collect();
    let server = Server::start(&options).await;
    (server, format!("rediss://localhost:{port}/"), authority)
}

#[tokio::test]
async fn tls_trusts_whom_it_is_told_to() {
    let (server, url, authority) = start().await;
    let config = RedisConfig {
        timeout: Duration::from_secs(10),
        authorities: Some(authority),
        ..RedisConfig::new(url.clone())
    };
    let store = RedisStore::connect_with(config.clone()).await.unwrap();
    let limiter = RateLimiter::new(&store, "2/h".parse::<Limit>().unwrap());
    assert!(limiter.check("k").await.unwrap().allowed());
    server.restart().await;
    assert!(limiter.check("k").await.unwrap().allowed(), "after a restart");
    assert!(store.promises().decisions == ratelimit_core::Decisions::Exact);

    // The machine does not know that authority, and a plain connection is not what the server speaks.
    let strangers = RedisConfig { authorities: None, ..config.clone() };
    assert_eq!(RedisStore::connect_with(strangers).await.unwrap_err().kind(), ErrorKind::Unreachable);
    let plain = RedisConfig { urls: vec![url.replace("rediss", "redis")], ..config.clone() };
    assert_eq!(RedisStore::connect_with(plain).await.unwrap_err().kind(), ErrorKind::Unreachable);
    let rubbish = RedisConfig { authorities: Some(b"rubbish".to_vec()), ..config };
    assert_eq!(RedisStore::connect_with(rubbish).await.unwrap_err().kind(), ErrorKind::Unsupported);
}
