//! Policies from a file, in TOML or YAML, reloaded when it changes.
//!
//! ```toml
//! on_store_failure = "open"             # or "closed" (the default)
//! shadow = false                        # true: decide, count and log, never refuse
//! exempt = ["GET /health"]              # routes that no policy is for
//!
//! [client]                              # who the client is, where a key is "address"
//! trusted_proxies = ["10.0.0.0/8"]      # none by default: no header is believed
//! header = "x-forwarded-for"            # or "forwarded", or one with a single address
//! ipv4_prefix = 32
//! ipv6_prefix = 64
//!
//! [headers]
//! families = ["draft-11"]               # and "ratelimit", "x-ratelimit"
//! reset = "seconds"                     # or "milliseconds", "unix-seconds": for the two older families
//! on_admitted = true
//!
//! [[deny]]                              # clients that are refused with 403, and likewise [[allow]]: no policy is for them
//! key = "address"
//! clients = ["203.0.113.0/24"]          # or file = "denied.txt", one a line, read again when it changes
//!
//! [[policies]]
//! name = "address"
//! key = "address"
//! limit = "6000/min"                    # or several: ["50/s", "6000/min"]
//!
//! [[policies]]
//! name = "log-in"
//! key = "address"
//! limit = "5/15min log"
//! routes = ["POST /login"]              # all routes by default
//! count_only = [401]                    # only failed ones are counted; or refund = ["5xx"]
//! shadow = true                         # this one only watches
//!
//! [[policies]]
//! name = "requests"                     # has no limit of its own: it is for requests that have a plan
//! key = "api-key:x-api-key"
//! cost = { per_bytes = 1024, if_unknown = 8 } # 1 by default; or the name of one that the program provides
//! settle = "response-bytes:1024"         # the true cost, when the request has ended; see below
//! settle_within = "60s"                 # no limit by default
//! unsettled = "keep"                    # the default; or "refund", or a number of units
//! missing = "exempt"                    # or "share", "refuse": requests without that key
//!
//! [plans.free]
//! requests = "10/min"
//!
//! [plans.starter]
//! requests = "3000/min"
//!
//! [plans.partner]
//! requests = "unlimited"
//! ```
//!
//! YAML has the same fields. Their meaning is documented at the types that they configure: [`TrustedProxies`], [`Headers`],
//! [`OnFailure`], [`Policy`], [`KeySource`], [`Cost`], [`Charge`], [`Settle`], [`Missing`], and for limits [`Limit`](ratelimit_core::Limit).
//!
//! # Keys
//! `address`, `bearer-token`, `everybody`, `path`, `path-template` (with the feature `axum`), `header:NAME`,
//! `api-key:NAME`, and keys that the program [provides](Provided::key). `"api-key:x-api-key or address"` uses the first
//! that is present; a list, `["address", "path"]`, counts by all of them together.
//!
//! # True costs
//! `settle` is `handler`, `header:NAME`, `take-header:NAME` (which removes the field), `request-bytes`, `response-bytes`,
//! `bytes` (all three also with a unit, `bytes:1024`) or `time:DURATION` (`time:100ms`: one unit per 100 milliseconds).
//! `unsettled` is what to charge if the true cost is not known, or not within `settle_within`; see [`Settle`].
//!
//! # Plans
//! A plan gives policies other limits. The program chooses the plan of a request: middleware around the layer looks it
//! up and puts a [`PlanName`] into the request's extensions. All plans of a policy share a client's counts if their
//! limits are of the same kind, so a client that upgrades keeps what was used.
//!
//! # Errors are reported before anything is limited
//! A file is used as a whole or not at all. An error contains file, line and field; see [`ConfigError`].
//!
//! # Changes
//! See [`ConfigFile`].
//!
//! [`TrustedProxies`]: crate::TrustedProxies
//! [`Headers`]: crate::Headers
//! [`OnFailure`]: crate::OnFailure
//! [`Policy`]: crate::Policy
//! [`KeySource`]: crate::KeySource
//! [`Cost`]: crate::Cost
//! [`Charge`]: crate::Charge
//! [`Settle`]: crate::Settle
//! [`Missing`]: crate::Missing

mod client_list;
mod de;
mod document;
mod error;
mod few_units;
mod file;
mod key;
mod observe;
mod plan_name;
mod policies;
mod provided;
mod reload;
mod routes;
mod settle;
#[cfg(test)]
mod tests;
mod text;
mod toml;
mod watched;
mod yaml;

pub use error::ConfigError;
pub use plan_name::PlanName;
pub use policies::Config;
pub use provided::Provided;
pub use reload::{ConfigFile, Reloaded};

/// Compiles the examples of the guide.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../../docs/http.md")]
struct Guide;

/// Compiles the examples of the details behind it.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../../docs/internals/http.md")]
struct Details;

/// Compiles the examples of the page on its costs.
#[cfg(all(doctest, feature = "axum"))]
#[doc = include_str!("../../../../docs/internals/http-costs.md")]
struct Costs;
