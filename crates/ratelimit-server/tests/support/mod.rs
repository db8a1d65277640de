//! A server in this process, and clients for its doors.
#![allow(dead_code)] // each test program uses its part

pub(crate) mod process;

use std::net::SocketAddr;
use std::path::PathBuf;

use bytes::Bytes;
use clap::Parser as _;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use ratelimit_server::grpc::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use ratelimit_server::grpc::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use ratelimit_server::grpc::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use ratelimit_server::{Args, Server};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic_prost::ProstCodec;

/// Limits by the day, so that nothing comes back while a slow machine runs a test.
pub(crate) const POLICIES: &str = r#"
[client]
trusted_proxies = ["127.0.0.0/8"]

[[policies]]
name = "user"
key = "user"
limit = "3/day log"

[[policies]]
name = "login"
key = ["tenant", "route=login"]
limit = "2/day log"

[[policies]]
name = "tenant"
key = "tenant"
limit = "5/day log"

[[policies]]
name = "address"
key = "address"
limit = "2/day log"
routes = ["/limited"]

[plans.paid]
user = "100/day log"

[plans.partner]
user = "unlimited"
"#;

/// A server, and the folder with its file.
pub(crate) struct Started {
    pub(crate) server: Server,
    pub(crate) folder: TempDir,
}

impl Started {
    pub(crate) async fn with(policies: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("limits.toml");
        std::fs::write(&file, policies).unwrap();
        let file = file.to_str().unwrap().to_owned();
        let server = Server::start(args(&[&["--config", &file], options].concat())).await.unwrap();
        Self { server, folder }
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.folder.path().join("limits.toml")
    }

    pub(crate) fn http(&self) -> Http {
        Http::at(self.server.addresses().http.unwrap())
    }

    pub(crate) fn admin(&self) -> Http {
        Http::at(self.server.addresses().admin.unwrap())
    }

    pub(crate) async fn redis(&self) -> Redis {
        Redis::connect(self.server.addresses().redis.unwrap()).await
    }

    pub(crate) async fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel().await)
    }

    pub(crate) async fn channel(&self) -> Channel {
        let address = self.server.addresses().grpc.unwrap();
        Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap()
    }
}

/// The options, with free ports.
pub(crate) fn args(options: &[&str]) -> Args {
    let free = ["ratelimit-server", "--http=127.0.0.1:0", "--grpc=127.0.0.1:0", "--redis=127.0.0.1:0"];
    let doors = ["--http", "--grpc", "--redis"];
    let free = free.iter().filter(|option| {
        let its_door = doors.iter().find(|door| option.starts_with(*door));
        its_door.is_none_or(|door| !options.iter().any(|option| option.starts_with(door)))
    });
    Args::try_parse_from(free.copied().chain(options.iter().copied())).unwrap()
}

pub(crate) struct Http {
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
}

pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn receipt(&self) -> String {
        self.json()["receipt"].as_str().expect("a receipt").to_owned()
    }

    pub(crate) fn error(&self) -> String {
        self.json()["error"].as_str().expect("an error").to_owned()
    }
}

impl Http {
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), address }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Response {
        let mut request = Request::builder().method(Method::from_bytes(method.as_bytes()).unwrap());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request =
            request.uri(format!("http://{}{path}", self.address)).body(Full::new(body.into())).unwrap();
        let response = self.client.request(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Response { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, &[], body.to_string()).await
    }

    /// The statuses of this many checks.
    pub(crate) async fn statuses(&self, number: usize, body: &Value) -> Vec<u16> {
        let mut statuses = Vec::new();
        for _ in 0..number {
            statuses.push(self.post("/v1/check", body).await.status);
        }
        statuses
    }

    /// The sum of a counter's series whose lines begin so.
    pub(crate) async fn metric(&self, beginning: &str) -> u64 {
        let text = self.get("/metrics").await.body;
        let text = str::from_utf8(&text).unwrap().to_owned();
        let lines = text.lines().filter(|line| line.starts_with(beginning));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
    }
}

/// A client that sends bytes and reads lines.
pub(crate) struct Redis(pub(crate) TcpStream);

impl Redis {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    pub(crate) fn encode(words: &[&[u8]]) -> Vec<u8> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            request.extend(format!("${}\r\n", word.len()).as_bytes());
            request.extend(*word);
            request.extend(b"\r\n");
        }
        request
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).await.unwrap();
    }

    /// Reads exactly this many lines.
    pub(crate) async fn lines(&mut self, number: usize) -> Vec<String> {
        let (mut lines, mut line) = (Vec::new(), Vec::new());
        while lines.len() < number {
            let byte = self.0.read_u8().await.unwrap();
            line.push(byte);
            if line.ends_with(b"\r\n") {
                line.truncate(line.len() - 2);
                lines.push(String::from_utf8(std::mem::take(&mut line)).unwrap());
            }
        }
        lines
    }

    /// The answer of five numbers.
    pub(crate) async fn numbers(&mut self, words: &[&str]) -> Vec<i64> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&Self::encode(&words)).await;
        self.read_numbers().await
    }

    pub(crate) async fn read_numbers(&mut self) -> Vec<i64> {
        let lines = self.lines(6).await;
        assert_eq!(lines[0], "*5", "{lines:?}");
        lines[1..].iter().map(|line| line.strip_prefix(':').unwrap().parse().unwrap()).collect()
    }

    /// The first line of an answer.
    pub(crate) async fn ask(&mut self, words: &[&[u8]]) -> String {
        self.send(&Self::encode(words)).await;
        self.lines(1).await.remove(0)
    }

    /// All that comes until the server closes the connection.
    pub(crate) async fn rest(&mut self) -> String {
        let mut rest = Vec::new();
        // A connection that is closed with unread data ends with an error.
        let _ = self.0.read_to_end(&mut rest).await;
        String::from_utf8_lossy(&rest).into_owned()
    }
}

pub(crate) fn descriptor(entries: &[(&str, &str)]) -> RateLimitDescriptor {
    let entry = |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
    RateLimitDescriptor { entries: entries.iter().map(entry).collect(), ..RateLimitDescriptor::default() }
}

pub(crate) fn request(domain: &str, descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: domain.to_owned(), descriptors, hits_addend: 0 }
}

/// The answer; the code of an error as a number.
pub(crate) async fn should(
    client: &mut Grpc<Channel>,
    request: RateLimitRequest,
) -> Result<RateLimitResponse, tonic::Code> {
    should_with(client, tonic::Request::new(request)).await
}

/// The same, for a request with metadata.
pub(crate) async fn should_with(
    client: &mut Grpc<Channel>,
    request: tonic::Request<RateLimitRequest>,
) -> Result<RateLimitResponse, tonic::Code> {
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit");
    let answer = client.unary(request, path, ProstCodec::default()).await;
    answer.map(tonic::Response::into_inner).map_err(|status| status.code())
}

/// The status as a number.
pub(crate) const OK: u16 = StatusCode::OK.as_u16();
