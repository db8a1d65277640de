//! Calls of gRPC. The messages have only the fields that are used.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use futures::future::try_join_all;
use http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};

use crate::load::{Keys, Measured, Span};

/// Which service is called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Method {
    /// `envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit`.
    Envoy,
    /// `throttlecrab.RateLimiter/Throttle`.
    Throttlecrab,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitRequest {
    #[prost(string, tag = "1")]
    domain: String,
    #[prost(message, repeated, tag = "2")]
    descriptors: Vec<Descriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Descriptor {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<Entry>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Entry {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RateLimitResponse {
    #[prost(int32, tag = "1")]
    overall_code: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ThrottleRequest {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(int32, tag = "2")]
    max_burst: i32,
    #[prost(int32, tag = "3")]
    count_per_period: i32,
    #[prost(int32, tag = "4")]
    period: i32,
    #[prost(int32, tag = "5")]
    quantity: i32,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ThrottleResponse {
    #[prost(bool, tag = "1")]
    allowed: bool,
}

impl Method {
    /// Calls it for the key of this number.
    async fn call(self, channel: &Channel, key: u64) -> Result<()> {
        let key = format!("key:{key}");
        match self {
            Self::Envoy => {
                let entries = vec![Entry { key: "key".into(), value: key }];
                let request =
                    RateLimitRequest { domain: "bench".into(), descriptors: vec![Descriptor { entries }] };
                let path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
                let answer: RateLimitResponse = unary(channel, path, request).await?;
                ensure!(answer.overall_code == 1, "answered {answer:?}");
            }
            Self::Throttlecrab => {
                let request = ThrottleRequest {
                    key,
                    max_burst: BURST,
                    count_per_period: BURST,
                    period: 1,
                    quantity: 1,
                };
                let answer: ThrottleResponse =
                    unary(channel, "/throttlecrab.RateLimiter/Throttle", request).await?;
                ensure!(answer.allowed, "answered {answer:?}");
            }
        }
        Ok(())
    }
}

/// More than any key is asked for.
const BURST: i32 = 1_000_000;

async fn unary<Q, A>(channel: &Channel, path: &'static str, request: Q) -> Result<A>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await?;
    let codec = tonic_prost::ProstCodec::<Q, A>::default();
    let answer = client.unary(tonic::Request::new(request), PathAndQuery::from_static(path), codec).await?;
    Ok(answer.into_inner())
}

/// Measures it.
pub(crate) async fn measure(
    address: SocketAddr,
    method: Method,
    connections: usize,
    depth: usize,
    time: Duration,
) -> Result<Measured> {
    let (span, keys) = (Span::from_now(time), Keys::default());
    let tasks: Vec<_> = (0..connections)
        .map(|_| tokio::spawn(connection(address, method, keys.clone(), depth, span)))
        .collect();
    let mut parts = Vec::with_capacity(connections);
    for task in tasks {
        parts.push(task.await??);
    }
    Ok(Measured::of(parts))
}

async fn connection(
    address: SocketAddr,
    method: Method,
    keys: Keys,
    depth: usize,
    span: Span,
) -> Result<Measured> {
    let channel = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true).connect().await?;
    let mut measured = Measured::default();
    while Instant::now() < span.end {
        let began = Instant::now();
        try_join_all((0..depth).map(|_| method.call(&channel, keys.next()))).await?;
        measured.add(depth, span.warm, began);
    }
    Ok(measured)
}
