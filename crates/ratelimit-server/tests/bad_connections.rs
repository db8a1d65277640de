//! Connections that send what no client should, against a server that is a process of its own: it goes on, and its memory is
//! bounded.
//!
//! `RATELIMIT_BAD_CONNECTIONS` says how many; by default there are few enough for each change.

mod support;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use support::process::{Running, command};
use support::{POLICIES, Redis, descriptor, request, should};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How many by default.
const FEW: usize = 3_000;

/// How many are open at once: more than the server serves.
const AT_ONCE: usize = 192;

/// How much more memory the server may need than before, in KiB.
const MOST: u64 = 128 * 1_024;

#[tokio::test(flavor = "multi_thread")]
async fn bad_connections_end_and_cost_a_bounded_amount_of_memory() {
    let number =
        std::env::var("RATELIMIT_BAD_CONNECTIONS").map_or(FEW, |text| text.parse().expect("a number"));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    std::fs::write(&path, POLICIES).unwrap();
    let mut command = command();
    command.args(["--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--redis=127.0.0.1:0", "--allow-limits"]);
    command.args(["--connections=128", "--idle=1s", "--config"]).arg(&path);
    let mut running = Running::start(&mut command);
    let doors = ["HTTP", "gRPC", "Redis protocol"].map(|door| running.address(door));
    let before = memory(&running, "VmRSS");
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/__fuzz__/connections/corpus");
    let mut tasks = JoinSet::new();
    for (place, bytes) in ratelimit_fuzz::changed(&corpus).take(number).enumerate() {
        let permit = places.clone().acquire_owned().await.unwrap();
        let door = doors[place % doors.len()];
        tasks.spawn(async move {
            send(place, door, &bytes).await;
            drop(permit);
        });
        while tasks.try_join_next().is_some_and(|ended| ended.map(|()| true).unwrap()) {}
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    assert_eq!(running.http().statuses(1, &json!({ "policy": "user", "key": "new" })).await, [200]);
    assert_eq!(Redis::connect(doors[2]).await.ask(&[b"PING"]).await, "+PONG");
    let mut client = tonic::client::Grpc::new(running.channel().await);
    assert!(should(&mut client, request("new", vec![descriptor(&[("tenant", "a")])])).await.is_ok());
    let most = memory(&running, "VmHWM");
    println!("{number} connections: at most {most} KiB, {before} KiB before");
    assert!(most < before + MOST, "{most} KiB, {before} KiB before");
    assert!(running.terminate(), "it ends without an error");
    let log = running.log();
    assert!(!log.contains("panicked"), "{log}");
}

/// Sends the bytes in one of several ways, and waits until the connection has ended, which is not for long.
async fn send(place: usize, door: SocketAddr, bytes: &[u8]) {
    let Some(mut stream) = connect(place, door).await else { return };
    // The server may close the connection at any time.
    let _ = match place % 5 {
        0 => stream.write_all(&bytes[..bytes.len() / 2]).await,
        1 => slowly(&mut stream, bytes).await,
        _ => stream.write_all(bytes).await,
    };
    match place % 7 {
        // Gone with a reset.
        0..=2 => drop(stream.set_zero_linger()),
        // Says that it has ended.
        3 | 4 => drop(stream.shutdown().await),
        // Silent: the server ends it.
        5 if place % 35 != 5 => drop(stream.set_zero_linger()),
        _ => {
            let mut rest = Vec::new();
            let closed = timeout(Duration::from_secs(120), stream.read_to_end(&mut rest)).await;
            assert!(closed.is_ok(), "still open after {:?}", bytes.escape_ascii().to_string());
        }
    }
}

/// From one of many addresses, each of which has many ports.
async fn connect(place: usize, door: SocketAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    let last = u8::try_from(place % 200).ok()? + 2;
    socket.bind((Ipv4Addr::new(127, 0, 0, last), 0).into()).ok()?;
    Some(socket.connect(door).await.expect("the server accepts connections"))
}

/// Byte by byte.
async fn slowly(stream: &mut TcpStream, bytes: &[u8]) -> std::io::Result<()> {
    for byte in bytes.iter().take(20) {
        stream.write_all(&[*byte]).await?;
        sleep(Duration::from_millis(1)).await;
    }
    stream.write_all(bytes.get(20..).unwrap_or_default()).await
}

/// A line of the process's status, in KiB.
fn memory(running: &Running, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}
