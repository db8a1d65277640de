//! Options of a store's address that several stores have.
//!
//! [`StoreUrl`](ratelimit_core::store::StoreUrl) splits an address into options, and [`UrlOption`] reads numbers, durations and
//! choices. What is here reads two more kinds of values. Use the same names for the same options: `authorities`,
//! `client_certificate`, `client_key`, `clock_slack`, `connections`, `prefix`, `time`
//! ([`Time`](ratelimit_core::store::Time)) and `timeout`.
//!
//! ```
//! use std::time::Duration;
//!
//! use ratelimit_core::StoreError;
//! use ratelimit_core::store::StoreUrl;
//! use ratelimit_store_kit::options;
//!
//! struct Config {
//!     timeout: Duration,
//!     authorities: Option<Vec<u8>>,
//! }
//!
//! impl Config {
//!     fn from_url(url: &str) -> Result<Self, StoreError> {
//!         let mut config = Self { timeout: Duration::from_secs(1), authorities: None };
//!         for option in StoreUrl::parse("mystore", url)?.options() {
//!             match option.name() {
//!                 "authorities" => config.authorities = Some(options::file(option)?),
//!                 "timeout" => config.timeout = options::time_limit(option)?,
//!                 _ => return Err(option.unknown(&["authorities", "timeout"])),
//!             }
//!         }
//!         Ok(config)
//!     }
//! }
//!
//! assert!(Config::from_url("mystore://cache?timeout=200ms").is_ok());
//! let refused = Config::from_url("mystore://cache?timeout=0s").err().map(|error| error.to_string());
//! assert_eq!(
//!     refused.as_deref(),
//!     Some("mystore is misconfigured: the option `timeout` takes a duration longer than zero: `200ms`"),
//! );
//! ```

use std::time::Duration;

use ratelimit_core::StoreError;
use ratelimit_core::store::UrlOption;

/// The time limit of a call: a duration longer than zero.
///
/// # Errors
/// If it is anything else.
pub fn time_limit(option: &UrlOption<'_>) -> Result<Duration, StoreError> {
    let limit = Some(option.duration()?).filter(|limit| !limit.is_zero());
    limit.ok_or_else(|| option.expected("a duration longer than zero: `200ms`"))
}

/// The contents of the file that an option names.
///
/// # Errors
/// If it cannot be read.
pub fn file(option: &UrlOption<'_>) -> Result<Vec<u8>, StoreError> {
    std::fs::read(option.text()).map_err(|_| option.expected("the path of a file that can be read"))
}

#[cfg(test)]
mod tests {
    use ratelimit_core::store::StoreUrl;

    use super::*;

    #[test]
    fn files_are_read_and_errors_do_not_name_them() {
        let url = concat!("s://?a=", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml&b=/nowhere/s3cret");
        let url = StoreUrl::parse("mystore", url).expect("an address");
        let [a, b] = url.options() else { panic!("two options") };
        assert!(file(a).is_ok_and(|contents| contents.starts_with(b"[package]")));
        let error = file(b).expect_err("there is no such file").to_string();
        assert!(error.contains("`b` takes the path of a file") && !error.contains("s3cret"), "{error}");
    }
}
