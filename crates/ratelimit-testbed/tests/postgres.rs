//! A PostgreSQL server is started, killed, started again, frozen, and stopped when dropped, with all of its processes.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use ratelimit_testbed::{Postgres, Server, Settings, Testbed, Way};

/// A testbed that uses only servers that it starts.
fn testbed() -> Testbed {
    Testbed::new(Settings { addresses: Default::default(), ..Settings::from_env() })
}

async fn postgres() -> Server {
    testbed().postgres().await.unwrap_or_else(|error| panic!("{error}"))
}

/// A connection on which the log-in has begun, and the type of the server's first message.
fn greet(address: SocketAddr, patience: Duration) -> io::Result<(TcpStream, u8)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience))?;
    stream.write_all(b"\0\0\0\x17\0\x03\0\0user\0postgres\0\0")?;
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    Ok((stream, kind[0]))
}

fn answers(address: SocketAddr) -> bool {
    greet(address, Duration::from_secs(10)).is_ok_and(|(_, kind)| kind == b'R')
}

/// The server's messages until it is ready for the next query. They must be short.
fn listen(stream: &mut TcpStream) -> io::Result<String> {
    let mut answer = Vec::new();
    // "Ready for query", with the state of the transaction: idle.
    while !answer.ends_with(b"Z\0\0\0\x05I") {
        let mut bytes = [0; 4096];
        match stream.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            length => answer.extend_from_slice(&bytes[..length]),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn say(stream: &mut TcpStream, sql: &str) -> io::Result<()> {
    let length = u32::try_from(sql.len() + 5).expect("short");
    stream.write_all(&[b"Q", &length.to_be_bytes()[..], sql.as_bytes(), b"\0"].concat())
}

fn query(stream: &mut TcpStream, sql: &str) -> io::Result<String> {
    say(stream, sql)?;
    listen(stream)
}

/// A connection that has logged in.
fn client(address: SocketAddr) -> TcpStream {
    let (mut stream, kind) = greet(address, Duration::from_secs(10)).expect("a greeting");
    assert_eq!(kind, b'R');
    listen(&mut stream).expect("the end of the log-in");
    stream
}

#[tokio::test]
async fn the_server_ends_when_the_last_clone_is_dropped() {
    let server = postgres().await;
    let address = server.address();
    assert_eq!(server.url(), format!("postgres://postgres@{address}/postgres"));
    let clone = server.clone();
    drop(server);
    assert!(answers(address), "one clone is left");
    drop(clone);
    assert!(TcpStream::connect(address).is_err(), "it listens after its end");
}

#[tokio::test]
async fn a_killed_server_restarts_at_its_address_with_its_logged_tables() {
    let server = postgres().await;
    let address = server.address();
    let mut before = client(address);
    let sql = "CREATE TABLE logged (); CREATE UNLOGGED TABLE unlogged AS SELECT 1 AS one; SELECT 'done'";
    query(&mut before, sql).expect("tables");
    // A busy session does not notice that its server has been killed.
    let mut busy = client(address);
    say(&mut busy, "SELECT pg_sleep(600)").expect("a long query");
    for _ in 0..2 {
        server.kill().await.expect("kill");
        server.kill().await.expect("killing it twice does nothing");
        assert!(!answers(address));
        assert!(query(&mut before, "SELECT 1").is_err(), "a session outlives its server");
        server.start().await.expect("start");
        server.start().await.expect("starting it twice does nothing");
        assert!(answers(address));
    }
    let sql = "SELECT 'rows: ' || count(*) FROM unlogged; SELECT count(*) FROM logged";
    let said = query(&mut client(address), sql).expect("rows");
    assert!(said.contains("rows: 0"), "{said}");
}

#[tokio::test]
async fn a_frozen_server_keeps_connections_and_no_session_answers() {
    let server = postgres().await;
    let mut session = client(server.address());
    session.set_read_timeout(Some(Duration::from_millis(300))).expect("patience");
    let late = |error: io::Error| matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
    server.freeze().await.expect("freeze");
    assert!(late(query(&mut session, "SELECT 1").expect_err("a session of a frozen server answered")));
    assert!(late(greet(server.address(), Duration::from_millis(300)).map(drop).expect_err("a greeting")));
    server.thaw().await.expect("thaw");
    assert!(answers(server.address()));
    server.freeze().await.expect("freeze");
    server.kill().await.expect("a frozen server can be killed");
    server.start().await.expect("start");
    assert!(answers(server.address()));
    server.freeze().await.expect("freeze"); // a frozen server can be dropped
}

#[tokio::test]
async fn the_password_and_arguments_reach_the_server() {
    let arguments = vec!["-c".into(), "max_connections=7".into()];
    let options = Postgres { password: Some("p@ss word".to_owned()), arguments, ..Postgres::default() };
    let server = testbed().postgres_with(options).await.unwrap_or_else(|error| panic!("{error}"));
    let (mut stream, kind) = greet(server.address(), Duration::from_secs(10)).expect("a greeting");
    let mut rest = [0; 8];
    stream.read_exact(&mut rest).expect("what it wants");
    // A request for SASL, not a successful log-in.
    assert_eq!((kind, &rest[4..]), (b'R', &[0, 0, 0, 10][..]));
    assert!(server.url().starts_with("postgres://postgres:p%40ss%20word@"), "{}", server.url());
    assert!(!format!("{server:?}").contains("p@ss"), "{server:?}");
    let addresses = [("RATELIMIT_POSTGRES_URL".to_owned(), server.url().to_owned())].into();
    let addressed = Testbed::new(Settings { addresses, ..Settings::default() })
        .postgres()
        .await
        .expect("its own address");
    assert_eq!(addressed.address(), server.address());
    assert!(addressed.kill().await.is_err(), "somebody else's server was killed");
}

#[tokio::test]
async fn errors_about_unreachable_addresses_hide_the_password() {
    let url = "postgres://me:secret@127.0.0.1:1/db".to_owned();
    let addresses = [("RATELIMIT_POSTGRES_URL".to_owned(), url)].into();
    let error =
        Testbed::new(Settings { addresses, ..Settings::default() }).postgres().await.expect_err("port 1");
    let text = error.to_string();
    assert!(text.contains("RATELIMIT_POSTGRES_URL: 127.0.0.1:1: ") && !text.contains("secret"), "{text}");
}

#[tokio::test]
async fn errors_contain_the_servers_message_about_bad_arguments() {
    let arguments = vec!["-c".into(), "no_such_thing=1".into()];
    let options = Postgres { arguments, ..Postgres::default() };
    let error = testbed().postgres_with(options).await.expect_err("an unknown argument").to_string();
    assert!(error.contains("no_such_thing"), "{error}");
}

#[tokio::test]
async fn a_missing_image_is_an_error() {
    let images = [("postgres".to_owned(), "localhost:1/nothing:none".to_owned())].into();
    let settings = Settings { only: Some(Way::Docker), images, ..Settings::default() };
    let error = Testbed::new(settings).postgres().await.expect_err("there is no such image").to_string();
    assert!(error.contains("postgres cannot be had") && error.contains("docker: "), "{error}");
}
