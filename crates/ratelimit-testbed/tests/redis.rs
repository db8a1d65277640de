//! A Redis server is started, killed, started again, frozen, and stopped when it is dropped.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ratelimit_testbed::{Redis, Server, Settings, Testbed, Way};

/// A testbed that uses only servers that it starts.
fn testbed() -> Testbed {
    let from_env = Settings::from_env();
    Testbed::new(Settings { addresses: Default::default(), ..from_env })
}

async fn redis() -> Server {
    testbed().redis().await.unwrap_or_else(|error| panic!("{error}"))
}

/// The reply of the server at `address` to PING, waiting at most `patience`.
fn ping(address: SocketAddr, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 64];
    let length = stream.read(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).trim().to_owned())
}

fn answers(address: SocketAddr) -> bool {
    ping(address, Duration::from_secs(10)).is_ok_and(|answer| answer == "+PONG")
}

#[tokio::test]
async fn the_server_ends_when_the_last_clone_is_dropped() {
    let server = redis().await;
    let address = server.address();
    assert_eq!(server.url(), format!("redis://{address}/"));
    assert!(answers(address));
    let clone = server.clone();
    drop(server);
    assert!(answers(address), "one clone is left");
    drop(clone);
    assert!(TcpStream::connect(address).is_err(), "it listens after its end");
}

#[tokio::test]
async fn a_killed_server_restarts_empty_at_its_address() {
    let server = redis().await;
    let address = server.address();
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.write_all(b"SET kept 1\r\n").expect("write");
    assert_eq!(stream.read(&mut [0; 5]).expect("read"), 5);
    server.kill().await.expect("kill");
    server.kill().await.expect("killing it twice does nothing");
    assert!(!answers(address));
    server.start().await.expect("start");
    server.start().await.expect("starting it twice does nothing");
    assert!(answers(address));
    let mut stream = TcpStream::connect(address).expect("connect");
    stream.write_all(b"GET kept\r\n").expect("write");
    let mut answer = [0; 5];
    stream.read_exact(&mut answer).expect("read");
    assert_eq!(&answer, b"$-1\r\n");
}

#[tokio::test]
async fn a_frozen_server_keeps_connections_and_does_not_answer() {
    let server = redis().await;
    server.freeze().await.expect("freeze");
    let silence = ping(server.address(), Duration::from_millis(200)).expect_err("a frozen server answered");
    assert!(matches!(silence.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{silence}");
    server.thaw().await.expect("thaw");
    assert!(answers(server.address()));
    server.freeze().await.expect("freeze");
    server.kill().await.expect("a frozen server can be killed");
    server.start().await.expect("start");
    assert!(answers(server.address()));
}

#[tokio::test]
async fn the_password_and_arguments_reach_the_server() {
    let options = Redis {
        password: Some("p@ss word".to_owned()),
        arguments: vec!["--maxmemory".into(), "7mb".into()],
        tls: None,
    };
    let server = testbed().redis_with(options).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(ping(server.address(), Duration::from_secs(10)).expect("ping").starts_with("-NOAUTH"));
    assert!(!format!("{server:?}").contains("p@ss"), "{server:?}");
    let addresses = [("RATELIMIT_REDIS_URL".to_owned(), server.url().to_owned())].into();
    let addressed =
        Testbed::new(Settings { addresses, ..Settings::default() }).redis().await.expect("its own address");
    assert_eq!(addressed.address(), server.address());
    assert!(addressed.kill().await.is_err(), "somebody else's server was killed");
    assert!(!addressed.is_controlled());
}

#[tokio::test]
async fn errors_about_unreachable_addresses_hide_the_password() {
    let addresses = [("RATELIMIT_REDIS_URL".to_owned(), "redis://:secret@127.0.0.1:1/".to_owned())].into();
    let error =
        Testbed::new(Settings { addresses, ..Settings::default() }).redis().await.expect_err("port 1");
    let text = error.to_string();
    assert!(text.contains("RATELIMIT_REDIS_URL: 127.0.0.1:1: ") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn errors_contain_the_servers_message_about_bad_arguments() {
    let options = Redis { arguments: vec!["--no-such-thing".into(), "1".into()], ..Redis::default() };
    let error = testbed().redis_with(options).await.expect_err("an unknown argument").to_string();
    assert!(error.contains("no-such-thing"), "{error}");
}

#[tokio::test]
async fn errors_list_every_way_to_obtain_a_server() {
    let settings = Settings { only: Some(Way::Docker), images: no_image(), ..Settings::default() };
    let error = Testbed::new(settings).redis().await.expect_err("there is no such image").to_string();
    for part in
        ["redis cannot be had", "RATELIMIT_REDIS_URL: not set", "docker: ", "do not ask for this image"]
    {
        assert!(error.contains(part), "{part:?} is missing in: {error}");
    }
}

fn no_image() -> std::collections::BTreeMap<String, String> {
    [("redis".to_owned(), "localhost:1/nothing:none".to_owned())].into()
}
