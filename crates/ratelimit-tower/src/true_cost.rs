//! Where a policy takes the true cost of a request from, once the request has ended.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use http::{Extensions, HeaderMap, HeaderName, StatusCode};
use ratelimit_core::meter::MAX_UNITS;

/// Replaces the estimated [`Cost`](crate::Cost) of a request by its true cost, once that is known.
///
/// The policy charges the estimate before the request is served. When the body of the response ends, it settles: it
/// refunds what was too much, or charges what was too little, even beyond the limit. A body that is dropped before its end
/// (the client has disconnected) settles as well, by what is known then.
///
/// ```
/// use std::num::NonZeroU64;
/// use std::time::Duration;
///
/// use ratelimit_core::Limit;
/// use ratelimit_tower::{Cost, KeySource, Policies, Policy, Settle, Unsettled};
///
/// let key = KeySource::api_key("x-api-key".parse()?);
/// let kib = NonZeroU64::new(1024).ok_or("zero")?;
/// let policies = Policies::new([
///     // The handler tells what the request has cost; see `Charged`.
///     Policy::new("tokens", key.clone(), "100000/min".parse::<Limit>()?)?
///         .cost(Cost::units(2_000))
///         .settle(Settle::by_handler().within(Duration::from_secs(60)).otherwise(Unsettled::Keep)),
///     // The layer counts what it sends.
///     Policy::new("traffic", key, "1000000/day".parse::<Limit>()?)?.settle(Settle::response_bytes(kib)),
/// ])?;
/// # let _ = policies;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # When it settles
/// | the request | what is charged |
/// |---|---|
/// | its response has ended, or its body was dropped | the cost from this source; if there is none, by [`otherwise`](Self::otherwise) |
/// | it got no response: an error, a panic, the client disconnected | what the handler has recorded by then, if the source is the handler; else by [`otherwise`](Self::otherwise) |
/// | it takes longer than [`within`](Self::within) | what the handler has [settled](crate::Charged::settle), if the source is the handler; else by [`otherwise`](Self::otherwise), but not less than what was counted by then |
///
/// A request is settled once. What is recorded or sent afterwards is not charged.
///
/// # Together with [`Charge`](crate::Charge)
/// `refund_if` and `only_if` decide by the response's head, before its body. A request that `refund_if` gives back costs
/// nothing, and so does one that `only_if` does not count; the others are settled. `only_if` reserves nothing: it checks
/// whether the estimate would fit, and charges the true cost at the end.
///
/// # The type of the body
/// Unless it settles by a [header](Self::response_header), the layer has to observe the end of the response's body. It
/// can do so for the bodies of axum and tonic (with these features), and for those that you pass to
/// [`RateLimitLayer::with_body`](crate::RateLimitLayer::with_body). With any other body, the request is settled like one
/// without a response, and counted and logged as a failure.
#[derive(Clone, Debug)]
pub struct Settle {
    pub(crate) source: Source,
    pub(crate) within: Option<Duration>,
    pub(crate) unsettled: Unsettled,
}

/// How a request has ended, for [`Settle::function`](crate::Settle::function). A view: nothing is copied.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct End<'a> {
    /// The status of the response.
    pub status: StatusCode,
    /// The header fields of the response.
    pub headers: &'a HeaderMap,
    /// The response's extensions, as set by the service.
    pub extensions: &'a Extensions,
    /// The trailers of the response, if its body had any.
    pub trailers: Option<&'a HeaderMap>,
    /// How many bytes of the response's body were passed to the server.
    pub response_bytes: u64,
    /// The time from the call of the service to the end of the body.
    pub elapsed: Duration,
    /// Whether the body was read to its end, or as far as its `Content-Length` or its size hint says. If not, the client has
    /// probably disconnected, or the body has failed. A response that is sent without a body (to `HEAD`, or with the status
    /// 204 or 304) is complete, even if the service has given it one.
    pub complete: bool,
}

/// What to charge for a request whose true cost is not known; see [`Settle::otherwise`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unsettled {
    /// The estimate: it stays charged.
    #[default]
    Keep,
    /// Nothing: the estimate is refunded.
    Refund,
    /// This many units.
    Charge(u64),
}

impl Unsettled {
    /// The units to charge, if `estimate` units were.
    pub(crate) fn units(self, estimate: u64) -> u64 {
        match self {
            Self::Keep => estimate,
            Self::Refund => 0,
            Self::Charge(units) => units,
        }
    }
}

pub(crate) type TrueCost = Arc<dyn Fn(&End<'_>) -> Option<u64> + Send + Sync>;

#[derive(Clone)]
pub(crate) enum Source {
    Handler,
    Header { name: HeaderName, remove: bool },
    Bytes { request: bool, response: bool, unit: NonZeroU64 },
    Time { unit: Duration },
    Function(TrueCost),
}

impl Settle {
    fn by(source: Source) -> Self {
        Self { source, within: None, unsettled: Unsettled::default() }
    }

    /// Settles by what the handler, or middleware behind the layer, records with [`Charged`](crate::Charged).
    pub fn by_handler() -> Self {
        Self::by(Source::Handler)
    }

    /// Settles by the number in this header field of the response, before the response is returned, whatever becomes of its
    /// body. If the field is missing, repeated or not a number, the true cost is not known.
    pub fn response_header(name: HeaderName) -> Self {
        Self::by(Source::Header { name, remove: false })
    }

    /// Like [`response_header`](Self::response_header), and removes the field from the response, so that the client does
    /// not see it.
    pub fn take_response_header(name: HeaderName) -> Self {
        Self::by(Source::Header { name, remove: true })
    }

    /// One unit per `unit` bytes of the request's body that the service has read, rounded up.
    pub fn request_bytes(unit: NonZeroU64) -> Self {
        Self::by(Source::Bytes { request: true, response: false, unit })
    }

    /// One unit per `unit` bytes of the response's body that were passed to the server, rounded up.
    pub fn response_bytes(unit: NonZeroU64) -> Self {
        Self::by(Source::Bytes { request: false, response: true, unit })
    }

    /// One unit per `unit` bytes of both bodies together, rounded up.
    pub fn bytes(unit: NonZeroU64) -> Self {
        Self::by(Source::Bytes { request: true, response: true, unit })
    }

    /// One unit per `unit` of time from the call of the service to the end of the response's body, rounded up, at least one.
    pub fn duration(unit: Duration) -> Self {
        Self::by(Source::Time { unit })
    }

    /// Settles by the result of a closure, which is called when the response's body has ended or was dropped. It returns
    /// `None` if the true cost is not known.
    ///
    /// ```
    /// use ratelimit_tower::{End, Settle};
    ///
    /// let settle = Settle::function(|end: &End<'_>| {
    ///     let used = end.trailers?.get("x-tokens")?;
    ///     used.to_str().ok()?.parse().ok()
    /// });
    /// # let _ = settle;
    /// ```
    pub fn function(true_cost: impl Fn(&End<'_>) -> Option<u64> + Send + Sync + 'static) -> Self {
        Self::by(Source::Function(Arc::new(true_cost)))
    }

    /// Settles at the latest after this time, counted from the response's head. Without it, a request whose response's body
    /// never ends is never settled. It takes a task on tokio's runtime for each request.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.within = Some(time);
        self
    }

    /// Sets what to charge if the true cost is not known; by default the estimate is kept.
    #[must_use]
    pub fn otherwise(mut self, unsettled: Unsettled) -> Self {
        self.unsettled = unsettled;
        self
    }

    /// The header to remove from responses, if it settles by one.
    pub(crate) fn taken_header(&self) -> Option<&HeaderName> {
        match &self.source {
            Source::Header { name, remove: true } => Some(name),
            _ => None,
        }
    }

    /// The units to charge if the true cost is not known.
    pub(crate) fn rule(&self, estimate: u64) -> u64 {
        self.unsettled.units(estimate).min(MAX_UNITS)
    }
}

/// One unit per `unit` of `time`, rounded up, at least one.
pub(crate) fn per_time(time: Duration, unit: Duration) -> u64 {
    let units = time.as_nanos().div_ceil(unit.as_nanos().max(1));
    u64::try_from(units).unwrap_or(u64::MAX).max(1)
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler => f.write_str("by the handler"),
            Self::Header { name, remove: false } => write!(f, "by the header {name}"),
            Self::Header { name, remove: true } => write!(f, "by the header {name}, which is removed"),
            Self::Bytes { request, response, unit } => {
                let bodies = match (request, response) {
                    (true, false) => "request",
                    (false, true) => "response",
                    _ => "request and response",
                };
                write!(f, "1 per {unit} bytes of {bodies}")
            }
            Self::Time { unit } => write!(f, "1 per {unit:?}"),
            Self::Function(_) => f.write_str("function"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_started_unit_of_time_costs_one() {
        let second = Duration::from_secs(1);
        let nano = Duration::from_nanos(1);
        for (time, units) in [(Duration::ZERO, 1), (nano, 1), (second, 1), (second + nano, 2)] {
            assert_eq!(per_time(time, second), units, "{time:?}");
        }
        assert_eq!(per_time(Duration::MAX, Duration::ZERO), u64::MAX);
    }
}
