//! Models of traffic: requests with times and keys, from a seed.

mod text;
mod traffic;

use clap::ValueEnum;
use ratelimit_core::Timestamp;
use serde::Serialize;

pub use text::{LogText, Written};
pub use traffic::{Sample, Traffic};

/// How requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// At random, each key as often as any other
    Poisson,
    /// In bursts of 20 requests on average, 20 ms apart on average, each burst of one key by Zipf's law
    Bursts,
    /// At random, by a sine over 24 hours between 0.2 and 1.8 times the rate, least at midnight UTC; keys by Zipf's law
    Diurnal,
    /// At random, keys by Zipf's law with exponent 1.1: the n-th key comes with a weight of 1 / n^1.1
    Zipf,
    /// Only in the last second of a minute and in the first of the next one
    Boundary,
    /// As zipf, but three in ten requests fail with 503 and are sent again after 1, 2, 4 and 8 seconds, at most 5 times in
    /// all; the rate is that of first attempts
    Retrying,
    /// As zipf, with three addresses (203.0.113.1 to 3) that send three in ten requests
    Attackers,
    /// Only in the first five seconds of a minute, as scheduled jobs do
    StartOfMinute,
}

/// Traffic to generate. The same specification gives the same requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spec {
    /// How requests come.
    pub model: Model,
    /// The seed of the generator, which is ChaCha with 8 rounds.
    pub seed: u64,
    /// The maximum number of requests.
    pub requests: u64,
    /// The number of different keys, from 1 to 16,777,216; attackers are three more.
    pub keys: u32,
    /// Requests per second, on average over whole days. Retries come in addition.
    pub rate: f64,
    /// The length of the time in which there are requests, in seconds; `None` for as long as `requests` requests take.
    pub duration: Option<f64>,
}

/// The time at which generated traffic begins: 2026-01-05 00:00:00 UTC, a Monday.
pub(crate) const BEGIN: Timestamp = Timestamp::from_secs(1_767_571_200);

/// The maximum number of keys: the number of addresses in 10.0.0.0/8.
pub(crate) const MOST_KEYS: u32 = 1 << 24;

impl Default for Spec {
    fn default() -> Self {
        Self { model: Model::Zipf, seed: 1, requests: 100_000, keys: 1_000, rate: 50.0, duration: None }
    }
}

impl std::fmt::Display for Spec {
    /// The options that generate the same requests.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { model, seed, requests, keys, rate, duration } = self;
        let name = model.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        write!(f, "--model {name} --seed {seed} --requests {requests} --keys {keys} --rate {rate}")?;
        duration.map_or(Ok(()), |seconds| write!(f, " --duration {seconds}s"))
    }
}

#[cfg(test)]
mod tests;
