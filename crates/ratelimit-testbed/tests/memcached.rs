//! Memcached servers are started, killed, started again, frozen, and stopped when they are dropped.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ratelimit_testbed::{Memcached, Settings, Testbed};

/// A testbed that uses only servers that it starts.
fn testbed() -> Testbed {
    Testbed::new(Settings { addresses: Default::default(), ..Settings::from_env() })
}

/// The server's reply to a line, waiting at most `patience`.
fn say(address: SocketAddr, line: &str, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(format!("{line}\r\nquit\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

fn answers(address: SocketAddr) -> bool {
    say(address, "mn", Duration::from_secs(10)).is_ok_and(|answer| answer == "MN\r\n")
}

#[tokio::test]
async fn a_killed_server_restarts_at_its_address_and_ends_when_dropped() {
    let server = testbed().memcached().await.unwrap_or_else(|error| panic!("{error}"));
    let address = server.address();
    assert_eq!(server.url(), format!("memcached://{address}"));
    let stored = say(address, "set kept 0 0 1\r\n1", Duration::from_secs(10)).expect("set");
    assert_eq!(stored, "STORED\r\n");
    server.kill().await.expect("kill");
    assert!(!answers(address));
    server.start().await.expect("start");
    assert!(answers(address));
    assert_eq!(say(address, "mg kept v", Duration::from_secs(10)).expect("get"), "EN\r\n");
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "it listens after its end");
}

#[tokio::test]
async fn a_frozen_server_keeps_connections_and_does_not_answer() {
    let server = testbed().memcached().await.unwrap_or_else(|error| panic!("{error}"));
    server.freeze().await.expect("freeze");
    let silence =
        say(server.address(), "mn", Duration::from_millis(200)).expect_err("a frozen server answered");
    assert!(matches!(silence.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut), "{silence}");
    server.thaw().await.expect("thaw");
    assert!(answers(server.address()));
}

#[tokio::test]
async fn arguments_reach_the_server() {
    let small = Memcached { arguments: vec!["-m".into(), "7".into()], ..Memcached::default() };
    let server = testbed().memcached_with(small).await.unwrap_or_else(|error| panic!("{error}"));
    let settings = say(server.address(), "stats settings", Duration::from_secs(10)).expect("settings");
    assert!(settings.contains("STAT maxbytes 7340032\r\n"), "{settings}");
}

#[tokio::test]
async fn a_pair_is_two_servers_with_one_address() {
    let pair = testbed().memcached_pair().await.unwrap_or_else(|error| panic!("{error}"));
    let [one, other] = pair.servers() else { panic!("{pair:?}") };
    assert!(answers(one.address()) && answers(other.address()) && one.address() != other.address());
    for value in [pair.urls().join(","), format!("{},{}", one.url(), other.address())] {
        let addresses = [("RATELIMIT_MEMCACHED_PAIR_URL".to_owned(), value)].into();
        let testbed = Testbed::new(Settings { addresses, ..Settings::default() });
        let addressed = testbed.memcached_pair().await.expect("their own addresses");
        assert_eq!(addressed.servers().len(), 2);
        assert!(!addressed.is_controlled());
        assert!(addressed.kill().await.is_err(), "somebody else's servers were killed");
    }
    pair.kill().await.expect("kill");
    assert!(!answers(one.address()) && !answers(other.address()));
    pair.start().await.expect("start");
    assert!(answers(one.address()) && answers(other.address()));
}
