//! What requests pay, over real connections. The limiter's clock stands still, so that no tokens come back meanwhile.

use std::convert::Infallible;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::routing::post;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use ratelimit_memory::{ManualClock, MemoryStore, RateLimiter, Timestamp};
use ratelimit_tower::Charged;
use tokio::net::TcpListener;

const WITHIN: Duration = Duration::from_secs(60);
const TOKEN: Duration = Duration::from_millis(5);

struct Api {
    url: String,
    clock: ManualClock,
}

impl Api {
    /// The example's service and limits, with two routes that fail.
    async fn serve() -> Self {
        let clock = ManualClock::at(Timestamp::from_secs(86_400));
        let limiter = RateLimiter::without_limits(MemoryStore::new()).with_clock(clock.clone());
        let limits = streaming_example::limits(limiter, "2000/min".parse().unwrap(), WITHIN).unwrap();
        let app = streaming_example::routes(TOKEN)
            .route("/panics", post(panics))
            .route("/hangs", post(hangs))
            .layer(limits);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, clock }
    }
}

async fn panics(charged: Charged) {
    assert!(charged.is_empty(), "the handler panics, as the test wants");
}

/// Streams three tokens, and then nothing any more.
async fn hangs(charged: Charged) -> Sse<impl stream::Stream<Item = Result<Event, Infallible>>> {
    let tokens = stream::iter(["They've", "a", "temper"]).chain(stream::pending());
    Sse::new(tokens.map(move |token| {
        charged.add(1);
        Ok(Event::default().data(token))
    }))
}

/// A client with an API key, on connections of its own.
struct Customer<'a> {
    url: &'a str,
    key: &'static str,
}

impl Customer<'_> {
    async fn send(
        &self,
        method: &str,
        path: &str,
    ) -> Result<Response<Incoming>, hyper_util::client::legacy::Error> {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        let request = Request::builder().method(method).uri(format!("{}{path}", self.url));
        let request = request.header("x-api-key", self.key).body(Full::from("What is a word?")).unwrap();
        client.request(request).await
    }

    async fn post(&self, path: &str) -> Response<Incoming> {
        let response = self.send("POST", path).await.unwrap();
        assert_eq!(response.status(), 200);
        response
    }

    /// How many tokens this client has paid or reserved.
    async fn used(&self) -> u64 {
        let response = self.send("GET", "/").await.unwrap();
        2000 - remaining(&response)
    }

    /// Waits until the client has paid or reserved this many tokens.
    async fn pays(&self, tokens: std::ops::RangeInclusive<u64>) {
        let paid = async {
            while !tokens.contains(&self.used().await) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let paid = tokio::time::timeout(Duration::from_secs(30), paid).await;
        assert!(paid.is_ok(), "{} instead of {tokens:?}", self.used().await);
    }
}

fn remaining(response: &Response<Incoming>) -> u64 {
    let field = response.headers()["ratelimit"].to_str().unwrap();
    field.split(";r=").nth(1).unwrap().split(';').next().unwrap().parse().unwrap()
}

/// Reads tokens until there are `most`, or no more.
async fn read(body: &mut Incoming, most: usize) -> usize {
    let mut tokens = 0;
    while tokens < most
        && let Some(frame) = body.frame().await
    {
        let data = frame.unwrap().into_data().unwrap();
        tokens += String::from_utf8_lossy(&data).matches("data: ").count();
    }
    tokens
}

#[tokio::test]
async fn who_reads_everything_pays_for_everything_that_was_sent() {
    let api = Api::serve().await;
    let ann = Customer { url: &api.url, key: "ann" };
    let bob = Customer { url: &api.url, key: "bob" };
    let mut response = ann.post("/complete?max_tokens=1500").await;
    assert_eq!(remaining(&response), 500, "the fields show the reservation");
    assert_eq!(ann.send("POST", "/complete?max_tokens=501").await.unwrap().status(), 429);
    let sent = read(response.body_mut(), usize::MAX).await;
    assert_eq!(sent, streaming_example::length());
    ann.pays(sent as u64..=sent as u64).await;

    let mut response = ann.post("/complete?max_tokens=7").await;
    assert_eq!(read(response.body_mut(), usize::MAX).await, 7);
    ann.pays(sent as u64 + 7..=sent as u64 + 7).await;
    assert_eq!(bob.used().await, 0);
}

/// It also pays for the tokens in flight: those that the model produces between the last one that the client has read and the
/// moment at which the server notices that the connection is closed. Here that takes a token or two; the test allows twenty.
#[tokio::test]
async fn who_hangs_up_pays_for_what_was_sent() {
    let api = Api::serve().await;
    let ann = Customer { url: &api.url, key: "ann" };
    let mut response = ann.post("/complete?max_tokens=1000").await;
    let half = streaming_example::length() / 2;
    let got = read(response.body_mut(), half).await as u64;
    assert_eq!(ann.used().await, 1000);
    drop(response);
    ann.pays(got..=got + 20).await;
    let paid = ann.used().await;
    tokio::time::sleep(20 * TOKEN).await;
    assert_eq!(ann.used().await, paid, "nothing more is produced");
}

#[tokio::test]
async fn a_handler_that_panics_costs_nothing() {
    let api = Api::serve().await;
    let ann = Customer { url: &api.url, key: "ann" };
    ann.send("POST", "/panics?max_tokens=1000").await.unwrap_err();
    ann.pays(0..=0).await;
}

#[tokio::test]
async fn a_response_that_takes_too_long_costs_the_estimate() {
    let api = Api::serve().await;
    let ann = Customer { url: &api.url, key: "ann" };
    let mut long = ann.post("/hangs?max_tokens=1000").await;
    let mut longer_than_allowed = ann.post("/hangs?max_tokens=2").await;
    for response in [&mut long, &mut longer_than_allowed] {
        assert_eq!(read(response.body_mut(), 3).await, 3);
    }
    assert_eq!(ann.used().await, 1002);
    api.clock.advance(WITHIN);
    // Otherwise the client would pay for three tokens and read the rest for nothing.
    ann.pays(1003..=1003).await;
    drop((long, longer_than_allowed));
    assert_eq!(ann.used().await, 1003);
}

#[tokio::test]
async fn without_a_key_there_is_no_answer() {
    let api = Api::serve().await;
    let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
    let request = Request::post(format!("{}/complete", api.url)).body(Full::default()).unwrap();
    assert_eq!(client.request(request).await.unwrap().status(), 400);
}

struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_program_serves_it() {
    let arguments = ["--listen", "127.0.0.1:0", "--limit", "2000/day log", "--token-millis", "1"];
    let mut program = Command::new(env!("CARGO_BIN_EXE_streaming"));
    let mut program = Program(program.args(arguments).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(program.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ann = Customer { url: line.trim_end().strip_prefix("listening on ").unwrap(), key: "ann" };
    let mut response = ann.post("/complete?max_tokens=40").await;
    assert_eq!(read(response.body_mut(), usize::MAX).await, 40);
    ann.pays(40..=40).await;
}
