//! Rate limiting for HTTP services.
#![forbid(unsafe_code)]

mod client_address;

pub use client_address::{ClientNetwork, ForwardedHeader, Grouping, ParseNetworkError, TrustedProxies};
