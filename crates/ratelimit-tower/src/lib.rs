//! Rate limiting for HTTP services: a [`tower`](https://docs.rs/tower) layer for axum, hyper, tonic and whatever else is
//! a service of `http` requests, over any [`RateLimiter`](ratelimit_core::RateLimiter) and so on any store.
//!
//! From nothing to a 429, counted per client address:
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use ratelimit_memory::{Limit, MemoryStore, RateLimiter};
//! use ratelimit_tower::RateLimitLayer;
//!
//! let limiter = RateLimiter::new(MemoryStore::new(), "100/min".parse::<Limit>()?);
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::in_process(limiter));
//!
//! // The layer learns the client's address from axum; so the service has to be made with it:
//! let app = app.into_make_service_with_connect_info::<SocketAddr>();
//! # drop(app);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a service really wants is said by [`Policies`]: by what requests are counted ([`KeySource`]: address, header, API
//! key, token, route, or a closure), under which limits ([`Plan`], also chosen for each request), at what [`Cost`], for
//! which of the requests; several policies on one request are admitted all or nothing, in one trip to the store.
//!
//! ```
//! use http::{Method, StatusCode, header::HeaderName};
//! use ratelimit_core::{Limit, Limits};
//! use ratelimit_tower::{Charge, Headers, KeySource, OnFailure, Outcome, Plan, Policies, Policy, TrustedProxies};
//!
//! let proxies = TrustedProxies::parse(["10.0.0.0/8"])?;
//! let free = Plan::new("free", "100/min".parse::<Limit>()?)?;
//! let paid = Plan::new("paid", Limits::new(["50/s".parse()?, "100000/day".parse()?])?)?;
//!
//! #[derive(Clone)]
//! struct Customer { id: String, paying: bool } // put into the extensions by the middleware that authenticates
//!
//! let policies = Policies::new([
//!     // Coarse, for everybody:
//!     Policy::new("address", KeySource::client_address(proxies.clone()), "6000/min".parse::<Limit>()?)?,
//!     // By customer, under the limits of the customer's plan, by the bytes sent:
//!     Policy::new("customer", KeySource::extension(|customer: &Customer| customer.id.clone()), free)?
//!         .plans(move |request| {
//!             request.extensions.get::<Customer>().filter(|customer| customer.paying).map(|_| paid.clone())
//!         }),
//!     // Guessing passwords: only log-ins that failed count.
//!     Policy::new("log-in", KeySource::client_address(proxies), "5/15min".parse::<Limit>()?)?
//!         .only(|request| request.method == Method::POST && request.uri.path() == "/login")
//!         .charge(Charge::only_if(|outcome| outcome.status() == Some(StatusCode::UNAUTHORIZED))),
//! ])?
//! .on_failure(OnFailure::Open);
//! # let _ = policies;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is answered
//! See [`Headers`] for the fields that tell clients how they stand, [`Problem`] for the body of a refusal (problem+json, or
//! `RESOURCE_EXHAUSTED` for gRPC), [`RateLimitLayer::answer_with`] for one of your own, [`OnFailure`] for what happens when
//! the store does not answer.
//!
//! # What this crate does not do
//! No routing, no authentication: it counts by what others found out. It never reads a body, so what a request costs is
//! known from its head, or is settled by the service itself. It limits neither connections nor requests under way.
//!
//! # Features
//! - `axum`: the peer's address from axum's `ConnectInfo`, the route from its `MatchedPath`.
//! - `config`: policies from files in TOML or YAML, reloaded when they change; see [`config`].
//! - `tonic`: the peer's address from tonic's `TcpConnectInfo`.
//! - `tracing` (on by default): events for refusals (debug), for what a policy in shadow would refuse (info) and for
//!   failures (warn, error), these at most once a second each. Without it failures are only counted.
//! - `metrics`: counters and a histogram through the facade of that name:
//!
//! | metric | labels | what |
//! |---|---|---|
//! | `ratelimit_checks_total` | | requests that some policy applied to |
//! | `ratelimit_admitted_total` | | of these, those that were let through with a decision |
//! | `ratelimit_refused_total` | `policy`, `shadow` | refusals, once for each policy that refused |
//! | `ratelimit_unidentified_total` | `policy` | requests without what the policy counts by |
//! | `ratelimit_store_errors_total` | `store`, `kind` | checks or refunds that the store did not answer |
//! | `ratelimit_failures_total` | `answer` | requests without a decision: let through (`open`), refused (`closed`), asked about elsewhere (`fallback`) |
//! | `ratelimit_store_seconds` | | how long the store took |
//!
//! No label and no event ever carries a key.
#![forbid(unsafe_code)]

mod answer;
mod ask;
mod charge;
mod check;
mod client_address;
#[cfg(feature = "config")]
pub mod config;
mod cost;
mod failure;
mod field;
mod future;
mod head;
mod headers;
mod key;
mod layer;
mod observe;
mod peer;
mod plan;
mod policies;
mod policy;
mod service;
mod settle;
mod short;
mod verdict;

pub use answer::{Answer, Grpc, Problem, Reason, Refusal};
pub use charge::{Charge, Outcome};
pub use client_address::{ClientNetwork, ForwardedHeader, Grouping, ParseNetworkError, TrustedProxies};
pub use cost::Cost;
pub use failure::{Fallback, OnFailure};
pub use future::ResponseFuture;
pub use head::Head;
pub use headers::{Family, Headers, Reset};
pub use key::KeySource;
pub use layer::RateLimitLayer;
pub use peer::PeerAddress;
pub use plan::Plan;
pub use policies::{Policies, PolicyError, SharedPolicies};
pub use policy::{IntoPlan, Missing, Policy};
pub use service::RateLimit;
