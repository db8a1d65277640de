//! A child process as a server: this test's own executable, which echoes.
#![cfg(unix)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use ratelimit_conformance::{ChildProcess, Server as _};

const ADDRESS: &str = "RATELIMIT_TEST_ECHO";

/// Not a test: the server, when this executable is started as such.
#[test]
#[ignore = "it is the server"]
fn echo() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    for connection in TcpListener::bind(address).expect("a free port").incoming() {
        std::thread::spawn(move || {
            let mut connection = connection.expect("a connection");
            let mut byte = [0];
            while connection.read_exact(&mut byte).is_ok() && connection.write_all(&byte).is_ok() {}
        });
    }
}

fn command(address: SocketAddr) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this executable"));
    command.args(["--exact", "echo", "--ignored"]).env(ADDRESS, address.to_string()).stdout(Stdio::null());
    command
}

/// Sends a byte and reads it back.
fn answers(connection: &mut TcpStream, within: Duration) -> bool {
    connection.set_read_timeout(Some(within)).expect("a limit");
    connection.write_all(b"x").is_ok() && connection.read_exact(&mut [0]).is_ok()
}

const LONG: Duration = Duration::from_secs(60);

#[tokio::test]
async fn it_is_killed_started_frozen_and_thawed_at_one_address() {
    let server = ChildProcess::start(command).await.expect("a server");
    let mut connection = TcpStream::connect(server.address()).expect("a connection");
    assert!(answers(&mut connection, LONG));

    server.freeze().await.expect("frozen");
    // The signal may reach it a moment later.
    let frozen = (0..100).any(|_| !answers(&mut connection, Duration::from_millis(200)));
    assert!(frozen, "it answers although it is frozen");
    server.thaw().await.expect("thawed");
    connection.set_read_timeout(Some(LONG)).expect("a limit");
    connection.read_exact(&mut [0]).expect("the byte that was sent meanwhile");

    server.freeze().await.expect("frozen");
    server.kill().await.expect("killed");
    assert!(TcpStream::connect(server.address()).is_err());
    assert!(server.freeze().await.is_err(), "there is nothing to freeze");
    server.kill().await.expect("it has ended already");
    server.start().await.expect("started");
    server.start().await.expect("it runs already");
    let mut connection = TcpStream::connect(server.address()).expect("a connection");
    assert!(answers(&mut connection, LONG));

    let address = server.address();
    drop(server);
    assert!(TcpStream::connect(address).is_err());
}

#[tokio::test]
async fn a_program_that_ends_is_an_error() {
    let error = ChildProcess::start(|_| Command::new("false")).await.expect_err("it does not serve");
    assert!(error.to_string().contains("has ended"), "{error}");
    assert!(ChildProcess::start(|_| Command::new("/nowhere/at/all")).await.is_err());
}
