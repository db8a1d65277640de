//! Rate limiting for HTTP services: a [`tower`](https://docs.rs/tower) layer for axum, hyper, tonic and any other
//! service of `http` requests, on any store.
//!
//! A complete example, counted per client address:
//!
//! ```toml
//! [dependencies]
//! axum = "0.8"
//! ratelimit-memory = "0.1"
//! ratelimit-tower = { version = "0.1", features = ["axum"] } # without this feature the peer's address is not found
//! tokio = { version = "1", features = ["macros", "net", "rt-multi-thread"] }
//! ```
//!
//! ```
//! use std::net::SocketAddr;
//!
//! use axum::{Router, routing::get};
//! use ratelimit_memory::{Limit, MemoryStore};
//! use ratelimit_tower::RateLimitLayer;
//!
//! let limit: Limit = "100/min".parse()?;
//! let app: Router = Router::new()
//!     .route("/", get(|| async { "hello" }))
//!     .layer(RateLimitLayer::in_process(MemoryStore::new(), limit));
//!
//! // The layer learns the client's address from axum; so the service has to be made with it:
//! let app = app.into_make_service_with_connect_info::<SocketAddr>();
//! # drop(app);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Policies`] configure the layer: what requests are counted by ([`KeySource`]: address, header, API key, token, route,
//! or a closure), under which limits ([`Plan`], which can be chosen for each request), at what [`Cost`], and which requests
//! they apply to. Several policies on one request are admitted all or nothing, in one round trip to the store. Policies
//! that [charge only for some outcomes](Charge::only_if) and policies [in shadow](Policy::in_shadow) take round trips of
//! their own.
//!
//! ```
//! use std::num::NonZeroU64;
//!
//! use http::{Method, StatusCode};
//! use ratelimit_core::{Limit, Limits};
//! use ratelimit_tower::{Charge, Cost, KeySource, Missing, OnFailure, Plan, Policies, Policy, TrustedProxies};
//!
//! let proxies = TrustedProxies::parse(["10.0.0.0/8"])?;
//! let free = Plan::new("free", "100/min".parse::<Limit>()?)?;
//! let kibibyte = NonZeroU64::new(1024).ok_or("zero")?;
//! let paid = Plan::new("paid", Limits::new(["50/s".parse()?, "100000/day".parse()?])?)?;
//!
//! #[derive(Clone)]
//! struct Customer { id: String, paying: bool } // put into the extensions by the middleware that authenticates
//!
//! let policies = Policies::new([
//!     // Coarse, for everybody:
//!     Policy::new("address", KeySource::client_address(proxies.clone()), "6000/min".parse::<Limit>()?)?,
//!     // By customer, under the limits of the customer's plan. Each KiB of the request's body costs a unit.
//!     Policy::new("customer", KeySource::extension(|customer: &Customer| customer.id.clone()), free)?
//!         .plans(move |request| {
//!             request.extensions.get::<Customer>().filter(|customer| customer.paying).map(|_| paid.clone())
//!         })
//!         // Requests without a customer, such as log-ins, would otherwise be answered with 500.
//!         .when_missing(Missing::Exempt)
//!         .cost(Cost::content_length(kibibyte, 8)), // 8 if the length is not known
//!     // Guessing passwords: only log-ins that failed count.
//!     Policy::new("log-in", KeySource::client_address(proxies), "5/15min log".parse::<Limit>()?)?
//!         .only(|request| request.method == Method::POST && request.any_path(|path| path == "/login"))
//!         .charge(Charge::only_if(|outcome| outcome.status() == Some(StatusCode::UNAUTHORIZED))),
//! ])?
//! .on_failure(OnFailure::Open);
//! # let _ = policies;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! What a request has really cost is often known only when it has ended: [`Settle`] corrects the estimate, by what the
//! handler records with [`Charged`], by a header, by bytes or by time.
//!
//! # Responses
//! See [`Headers`] for the fields that report to clients how the limits stand, [`Problem`] for the body of a refusal
//! (problem+json, or `RESOURCE_EXHAUSTED` for gRPC), [`RateLimitLayer::answer_with`] for a body of your own, and
//! [`OnFailure`] for what happens if the store does not answer.
//!
//! # What this crate does not do
//! No routing, no authentication: it counts by what other layers have determined. It never reads a body, so the cost of a
//! request is determined from its head, or [settled](Settle) when it has ended. It does not limit connections.
//!
//! # Features
//! - `calendar`: limits per month, quarter or year, and per day or week of a time zone.
//! - `axum`: the peer's address from axum's `ConnectInfo`, the route from its `MatchedPath`, [`Charged`] as an extractor,
//!   and [settling](Settle) by axum's bodies.
//! - `config`: the module of this name: policies from files in TOML or YAML, reloaded when they change. Needs Rust 1.89.
//! - `tonic`: the peer's address from tonic's `TcpConnectInfo`, and [settling](Settle) by tonic's bodies.
//! - `tracing` (on by default): events for refusals (debug), for policies that [do not apply](Missing::Exempt) because the
//!   program did not provide their key (debug), for what a policy in shadow would refuse (info) and for failures (warn,
//!   error), the latter three at most once per second each. Without it, failures are only counted. A file whose limits make
//!   clients wait for longer than a period is used with a warning.
//! - `metrics`: counters and a histogram through the facade of that name:
//!
//! | metric | labels | meaning |
//! |---|---|---|
//! | `ratelimit_checks_total` | | requests to which at least one policy applied |
//! | `ratelimit_policy_checks_total` | `policy` | requests to which this policy applied |
//! | `ratelimit_admitted_total` | | of these, those that were admitted by a decision |
//! | `ratelimit_refused_total` | `policy`, `shadow` | refusals, one for each limit that refused; `policy` is the limit's name, as in [`Plan`] |
//! | `ratelimit_denied_total` | `shadow` | requests of clients in a list of those to refuse |
//! | `ratelimit_unidentified_total` | `policy` | requests without what the policy counts by, unless [`Missing::Share`] or [`Missing::Exempt`] was set for them; under `Exempt`, requests with the header of their key several times are counted; `deny`, `allow`: requests for which the program did not provide what such a list identifies clients by |
//! | `ratelimit_unresolved_addresses_total` | `reason` | requests that were counted by the address of a trusted proxy: no other address was in the header (`proxy`), or it was malformed (`malformed`) |
//! | `ratelimit_store_errors_total` | `store`, `error.type` | checks or refunds that the store did not answer |
//! | `ratelimit_failures_total` | `answer` | requests without a decision: let through (`open`) or refused (`closed`); and charges and refunds after the response that failed, also to settle a true cost (`unsettled`), or checks for policies in shadow (`shadow`) |
//! | `ratelimit_degraded_total` | | requests that were decided without the store, by a fallback among the [layers](ratelimit_core::layers) around it |
//! | `ratelimit_store_seconds` | | how long the store took, with the layers around it |
//! | `ratelimit_evicted_total` | `store` | meters that a full `MemoryStore` (`memory`) has evicted although they still counted |
//! | `ratelimit_config_reloads_total` | `result` | reloads of files: `replaced` or `failed` |
//! | `ratelimit_config_info` | `file`, `hash` | 1 for the content of a file that is in force, by the beginning of its SHA-256; 0 for those before |
//! | `ratelimit_config_loaded_timestamp_seconds` | `file` | since when it is in force, in seconds since 1970 |
//!
//! The layers around a store have [metrics of their own](ratelimit_core::layers#metrics-and-events).
//!
//! No label and no event ever contains a key.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod absent;
mod answer;
mod charge;
mod charged;
mod check;
mod checker;
mod client_address;
mod client_list;
#[cfg(feature = "config")]
pub mod config;
mod cost;
mod counted;
mod failure;
mod field;
mod future;
mod head;
mod headers;
mod into_limiter;
mod key;
mod layer;
mod limiter;
mod measured;
mod observe;
mod peer;
mod plan;
mod policies;
mod policy;
mod policy_check;
mod policy_error;
mod policy_keys;
mod service;
mod settle;
mod shared;
mod true_cost;
mod verdict;

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use answer::{Answer, Grpc, Problem, Reason, Refusal};
pub use charge::{Charge, Outcome};
pub use charged::Charged;
pub use checker::{Answered, Asked, Checker};
pub use client_address::{ClientNetwork, ForwardedHeader, Grouping, ParseNetworkError, TrustedProxies};
pub use client_list::{ClientList, ParseClientListError};
pub use cost::Cost;
pub use failure::OnFailure;
pub use future::ResponseFuture;
pub use head::Head;
pub use headers::{Family, Headers, Reset};
pub use into_limiter::IntoLimiter;
pub use key::{KeySource, ParseClientError};
pub use layer::RateLimitLayer;
pub use measured::MeasuredBody;
pub use peer::PeerAddress;
pub use plan::Plan;
pub use policies::{Policies, SharedPolicies};
pub use policy::{IntoPlan, Missing, Policy};
pub use policy_error::PolicyError;
pub use ratelimit_core as core;
pub use service::RateLimit;
pub use true_cost::{End, Settle, Unsettled};

/// A future of any type.
type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// Locks a state that is always consistent, also after a panic: it is changed in single steps.
fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
