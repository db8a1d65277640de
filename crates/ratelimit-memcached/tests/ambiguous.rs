//! Connections that break after a command has been executed and before its reply arrives.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::limiter;
use ratelimit_core::store::Applied;
use ratelimit_core::{CheckError, ErrorKind, Request, StoreError};
use ratelimit_memcached::MemcachedStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Forwards to a server. Once armed, closes the connection when the reply to a request that contains `trap` has arrived, or
/// sends this line instead of the reply.
struct Proxy {
    address: SocketAddr,
    armed: Arc<AtomicBool>,
}

impl Proxy {
    async fn start(server: String, trap: &'static str) -> Self {
        Self::start_saying(server, trap, None).await
    }

    async fn start_saying(server: String, trap: &'static str, instead: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let armed = Arc::new(AtomicBool::new(false));
        let trapped = armed.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                tokio::spawn(forward(client, server, trap, instead, trapped.clone()));
            }
        });
        Self { address, armed }
    }

    async fn store(&self) -> MemcachedStore {
        MemcachedStore::connect_with(common::config(&self.address.to_string())).await.unwrap()
    }
}

async fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    trap: &str,
    instead: Option<&str>,
    armed: Arc<AtomicBool>,
) -> std::io::Result<()> {
    let (mut request, mut answer) = (vec![0; 65_536], vec![0; 65_536]);
    let mut caught = false;
    loop {
        tokio::select! {
            read = client.read(&mut request) => match read? {
                0 => return Ok(()),
                size => {
                    let text = String::from_utf8_lossy(&request[..size]);
                    caught = text.contains(trap) && armed.swap(false, Ordering::SeqCst);
                    server.write_all(&request[..size]).await?;
                }
            },
            read = server.read(&mut answer) => match read? {
                0 => return Ok(()),
                // The request has been executed. Without another reply both connections end here.
                _ if caught => match instead {
                    Some(line) => client.write_all(line.as_bytes()).await?,
                    None => return Ok(()),
                },
                size => client.write_all(&answer[..size]).await?,
            },
        }
    }
}

/// Forwards to a server, except for what the first connection sends after the handshake.
async fn swallow_after_the_first_handshake(server: String) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let mut settings = TcpStream::connect(&server).await.unwrap();
        tokio::spawn(async move {
            let mut bytes = vec![0; 16 * 1024];
            let mut size = first.read(&mut bytes).await?;
            settings.write_all(&bytes[..size]).await?;
            while !bytes[..size].ends_with(b"END\r\n") {
                size = settings.read(&mut bytes).await?;
                first.write_all(&bytes[..size]).await?;
            }
            tokio::io::copy(&mut first, &mut tokio::io::sink()).await
        });
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&server).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
    address
}

/// How much of `limit` is used, read without the proxy.
async fn used(server: &common::Server, limit: &str) -> u64 {
    let limiter = limiter(&server.store().await, limit);
    let peeked = limiter.peek("k").await.unwrap();
    peeked.limit() - peeked.remaining()
}

#[tokio::test]
async fn unanswered_refunds_are_not_repeated() {
    let server = common::Server::start(&[]).await;
    let proxy = Proxy::start(server.address(), " MD ").await;
    let limiter = limiter(&proxy.store().await, "100/h");
    let decision = limiter.check(Request::new("k").cost(10)).await.unwrap();
    assert!(limiter.check(Request::new("k").cost(50)).await.unwrap().allowed());
    proxy.armed.store(true, Ordering::SeqCst);
    let Err(error) = limiter.refund(&decision).await else { panic!("an answer") };
    assert_eq!((error.kind(), error.applied()), (ErrorKind::Unreachable, Applied::Unknown), "{error}");
    assert_eq!(used(&server, "100/h").await, 50);
}

#[tokio::test]
async fn reservations_are_not_returned_twice() {
    let server = common::Server::start(&[]).await;
    let proxy = Proxy::start(server.address(), " MD ").await;
    let limiter = limiter(&proxy.store().await, "100/h");
    assert!(limiter.check(Request::new("k").cost(60)).await.unwrap().allowed());
    proxy.armed.store(true, Ordering::SeqCst);
    // It is certainly refused, whether or not the units were given back.
    assert!(!limiter.check(Request::new("k").cost(50)).await.unwrap().allowed());
    assert!(!proxy.armed.load(Ordering::SeqCst), "nothing was given back");
    assert_eq!(used(&server, "100/h").await, 60);
}

#[tokio::test]
async fn unanswered_claims_are_neither_repeated_nor_undone() {
    let server = common::Server::start(&[]).await;
    for (limit, command) in [("100/h", " J10 "), ("100/h burst 100", "ms "), ("100/h log", "ms ")] {
        let proxy = Proxy::start(server.address(), command).await;
        let limiter = limiter(&proxy.store().await, limit);
        for round in 1..=3 {
            proxy.armed.store(true, Ordering::SeqCst);
            let claimed = limiter.check(Request::new("k").cost(10)).await;
            let Err(CheckError::Store(error)) = claimed else { panic!("{claimed:?}") };
            let reported = (error.kind(), error.applied());
            assert_eq!(reported, (ErrorKind::Unreachable, Applied::Unknown), "{limit}: {error}");
            assert_eq!(used(&server, limit).await, round * 10, "{limit}");
        }
    }
}

/// Memcached's own proxy says so whether or not its server had received the command. If a release were repeated, it would take
/// the unit of another holder.
#[tokio::test]
async fn a_proxy_without_its_server_may_have_executed_the_command() {
    let server = common::Server::start(&[]).await;
    let line = Some("SERVER_ERROR backend failure\r\n");
    let proxy = Proxy::start_saying(server.address(), "ms ", line).await;
    let limiter = limiter(&proxy.store().await, "9 at once");
    let held = limiter.check("k").await.unwrap();
    assert!(limiter.check("k").await.unwrap().allowed());
    let reported = |error: &StoreError| (error.kind(), error.applied(), error.is_retryable());
    proxy.armed.store(true, Ordering::SeqCst);
    let error = limiter.release(&held).await.unwrap_err();
    assert_eq!(reported(&error), (ErrorKind::Unreachable, Applied::Unknown, true), "{error}");
    assert_eq!(used(&server, "9 at once").await, 1);
    proxy.armed.store(true, Ordering::SeqCst);
    let Err(CheckError::Store(error)) = limiter.check("k").await else { panic!("it has an answer") };
    assert_eq!(reported(&error), (ErrorKind::Unreachable, Applied::Unknown, true), "{error}");
    assert!(error.to_string().contains("backend failure"), "{error}");
    assert_eq!(used(&server, "9 at once").await, 2);
}

#[tokio::test]
async fn connections_without_replies_are_replaced() {
    let server = common::Server::start(&[]).await;
    let address = swallow_after_the_first_handshake(server.address()).await.to_string();
    let config = common::config(&address).timeout(Duration::from_millis(500)).connections(1);
    let limiter = limiter(&MemcachedStore::lazy(config).unwrap(), "10/h");
    let Err(CheckError::Store(late)) = limiter.check("k").await else { panic!("it has an answer") };
    assert_eq!((late.kind(), late.applied()), (ErrorKind::Timeout, Applied::Unknown), "{late}");
    assert!(limiter.check("k").await.unwrap().allowed());
    assert_eq!(used(&server, "10/h").await, 1);
}
