//! The transports on real servers: all nodes receive all messages, also after the server was restarted.
#![cfg(all(feature = "redis", feature = "postgres"))]

use std::sync::Arc;
use std::time::Duration;

use ratelimit_cluster::{PostgresTransport, RedisTransport, Transport, TransportError};
use ratelimit_testbed::{Postgres, Redis, Server, Testbed};
use tokio::time::{sleep, timeout};

const PATIENCE: Duration = Duration::from_secs(120);

/// The time limit of calls that fail.
const BRIEF: Duration = Duration::from_secs(2);

/// A transport: its time limit for connecting may pass on a busy machine.
async fn connected<T>(connect: impl AsyncFn() -> Result<T, TransportError>) -> T {
    let connected = async {
        loop {
            match connect().await {
                Ok(transport) => return transport,
                Err(error) => println!("not yet: {error}"),
            }
        }
    };
    timeout(PATIENCE, connected).await.expect("no connection")
}

fn message(number: u8, length: usize) -> Arc<[u8]> {
    (0..length).map(|place| u8::try_from(place % 251).unwrap() ^ number).collect()
}

async fn next_message(transport: &impl Transport) -> Arc<[u8]> {
    timeout(PATIENCE, transport.receive()).await.expect("nothing came").expect("no connection")
}

/// Short, empty and largest messages, more than fit one statement, all in their order.
async fn every_node_receives_all_messages<T: Transport>(nodes: &[T; 3], stranger: &T) {
    let mut messages: Vec<_> = (0..=255).map(|number| message(number, 5)).collect();
    messages.extend([message(1, 0), message(2, nodes[0].largest()), message(3, 1), message(4, 600)]);
    nodes[1].send(&messages).await.unwrap();
    for node in nodes {
        for expected in &messages {
            assert_eq!(&next_message(node).await, expected);
        }
    }
    stranger.send(&[message(9, 1)]).await.unwrap();
    assert_eq!(next_message(stranger).await, message(9, 1), "the messages of another fleet were received");
}

/// After the server is killed, sending fails. After it is restarted, all nodes receive messages again.
async fn messages_arrive_again_after_a_restart<T: Transport>(nodes: &[T; 3], server: &Server) {
    server.kill().await.unwrap();
    assert!(nodes[0].send(&[message(1, 3)]).await.is_err());
    // Earlier messages are still received.
    while timeout(PATIENCE, nodes[0].receive()).await.expect("it waits for a dead server").is_ok() {}
    server.start().await.unwrap();
    // They find out when they are next used.
    let listening = nodes.each_ref().map(|node| async {
        loop {
            match timeout(PATIENCE, node.receive()).await.expect("nothing came") {
                Ok(heard) if heard == message(2, 3) => return,
                Ok(_) => {}
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
    });
    let speaking = async {
        loop {
            let _ = nodes[0].send(&[message(2, 3)]).await;
            sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        _ = futures::future::join_all(listening) => {}
        () = speaking => {}
    }
}

/// The server stops answering and keeps its connections: sending ends within its time limit, and a listener notices, too.
async fn sending_to_a_frozen_server_times_out<T: Transport>(nodes: &[T; 3], server: &Server) {
    server.freeze().await.unwrap();
    let sent = timeout(PATIENCE, nodes[0].send(&[message(1, 3)])).await;
    assert!(sent.expect("no time limit").is_err());
    while timeout(PATIENCE, nodes[1].receive()).await.expect("it waits for a frozen server").is_ok() {}
    server.thaw().await.unwrap();
    // The connection to the frozen server is noticed to be broken by the call that uses it.
    let sent = async { while nodes[0].send(&[message(3, 3)]).await.is_err() {} };
    timeout(PATIENCE, sent).await.expect("no message is sent");
    while next_message(&nodes[2]).await != message(3, 3) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_delivers_all_messages_through_failures() {
    let server = Testbed::from_env().redis_with(Redis::default()).await.unwrap();
    let connect =
        async |channel| connected(async || RedisTransport::connect(server.url(), channel).await).await;
    let nodes = [connect("a").await, connect("a").await, connect("a").await];
    let patient = nodes.map(|node| node.with_timeout(PATIENCE));
    every_node_receives_all_messages(&patient, &connect("b").await.with_timeout(PATIENCE)).await;
    let nodes = patient.map(|node| node.with_timeout(BRIEF));
    sending_to_a_frozen_server_times_out(&nodes, &server).await;
    messages_arrive_again_after_a_restart(&nodes, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_delivers_all_messages_through_failures() {
    let server = Testbed::from_env().postgres_with(Postgres::default()).await.unwrap();
    // A name that SQL would have to quote.
    let name = "Limits \"a\"";
    let connect =
        async |channel| connected(async || PostgresTransport::connect(server.url(), channel).await).await;
    let nodes = [connect(name).await, connect(name).await, connect(name).await];
    let patient = nodes.map(|node| node.with_timeout(PATIENCE));
    every_node_receives_all_messages(&patient, &connect("b").await.with_timeout(PATIENCE)).await;
    let nodes = patient.map(|node| node.with_timeout(BRIEF));
    sending_to_a_frozen_server_times_out(&nodes, &server).await;
    messages_arrive_again_after_a_restart(&nodes, &server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connection_errors_do_not_contain_the_password() {
    let password = Some("hunter2".to_owned());
    let redis = Redis { password: password.clone(), ..Redis::default() };
    let redis = Testbed::from_env().redis_with(redis).await.unwrap();
    let wrong = format!("redis://:wrong-secret@{}/", redis.address());
    for url in [&wrong, "redis://:wrong-secret@127.0.0.1:1/", "nothing://:wrong-secret@"] {
        let error = RedisTransport::connect(url, "a").await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("wrong-secret"), "{error:?}");
    }
    let node = connected(async || RedisTransport::connect(redis.url(), "a").await).await;
    assert!(!format!("{node:?}").contains("hunter2"));
    for url in ["postgres://u:wrong-secret@127.0.0.1:1/x", "nothing://u:wrong-secret@"] {
        let error = PostgresTransport::connect(url, "a").await.unwrap_err();
        assert!(!format!("{error} {error:?}").contains("wrong-secret"), "{error:?}");
    }
    for channel in ["", &"x".repeat(64)] {
        assert!(PostgresTransport::connect("postgres://127.0.0.1:1/x", channel).await.is_err());
    }
}
