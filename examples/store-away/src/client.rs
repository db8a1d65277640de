//! The clients: each sends a request, waits for the answer, and pauses.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratelimit_core::{Clock as _, SystemClock, Timestamp};

/// How many users the clients act for, each with a limit of its own.
pub(crate) const USERS: u64 = 50;

/// Between an answer and the next request of a client.
const PAUSE: Duration = Duration::from_millis(10);

/// An answer to a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// When it came, since the beginning.
    pub(crate) at: Duration,
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Admitted,
    Refused,
    /// 503, or no answer.
    Failed,
}

/// Sends requests until `until`; returns all answers.
pub(crate) async fn run(address: SocketAddr, clients: u64, until: Timestamp) -> Vec<Answer> {
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let begun = SystemClock::new().now();
    let tasks: Vec<_> =
        (0..clients).map(|number| tokio::spawn(one(client.clone(), address, number, begun, until))).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.extend(task.await.unwrap_or_default());
    }
    answers
}

async fn one(
    client: Client<HttpConnector, Empty<Bytes>>,
    address: SocketAddr,
    number: u64,
    begun: Timestamp,
    until: Timestamp,
) -> Vec<Answer> {
    let clock = SystemClock::new();
    let mut answers = Vec::new();
    // Each begins with another user and takes all of them in turn.
    for user in number.. {
        let sent = clock.now();
        if sent >= until {
            break;
        }
        let request = Request::get(format!("http://{address}/")).header("x-user", user % USERS);
        let Ok(request) = request.body(Empty::new()) else { break };
        let outcome = match client.request(request).await {
            Ok(answer) => {
                let status = answer.status();
                match answer.into_body().collect().await {
                    Ok(_) if status.is_success() => Outcome::Admitted,
                    Ok(_) if status == StatusCode::TOO_MANY_REQUESTS => Outcome::Refused,
                    _ => Outcome::Failed,
                }
            }
            Err(_) => Outcome::Failed,
        };
        let now = clock.now();
        answers.push(Answer { at: now.since(begun), took: now.since(sent), outcome });
        tokio::time::sleep(PAUSE).await;
    }
    answers
}
