//! What a request costs.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::Head;
use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, Version};
use ratelimit_core::Limits;

/// The cost of a request in units, determined from its head. It is an estimate if the policy [settles](crate::Settle).
///
/// A cost of zero admits a request without charging it. A cost above what a limit can ever admit is always refused,
/// without `Retry-After`. If such a cost does not depend on the request, [`Policies::new`](crate::Policies::new) returns an
/// error.
#[derive(Clone)]
pub struct Cost(Kind);

#[derive(Clone)]
enum Kind {
    Units(u64),
    Length { unit: NonZeroU64, unknown: u64 },
    Function(Arc<dyn Fn(&Head<'_>) -> u64 + Send + Sync>),
}

impl Cost {
    /// This many units per request. One is the default.
    pub fn units(units: u64) -> Self {
        Self(Kind::Units(units))
    }

    /// One unit per `unit` bytes of the body, rounded up, at least one; `unknown` units if the length is not known.
    ///
    /// The length is that of `Content-Length`. If that field occurs twice, or with `Transfer-Encoding`, it is not known. In
    /// HTTP/1, a `GET` (or another safe method) with neither field has no body, so it costs one unit. In later versions of
    /// HTTP, any request without it may have a body, so a `GET` usually costs `unknown` units;
    /// [exempt](crate::Policy::except) such requests or determine their cost in a [function](Self::function) if that is too
    /// much.
    pub fn content_length(unit: NonZeroU64, unknown: u64) -> Self {
        Self(Kind::Length { unit, unknown })
    }

    /// The result of a closure that gets the request's head.
    pub fn function(cost: impl Fn(&Head<'_>) -> u64 + Send + Sync + 'static) -> Self {
        Self(Kind::Function(Arc::new(cost)))
    }

    #[inline]
    pub(crate) fn of(&self, request: &Head<'_>) -> u64 {
        if let Kind::Units(units) = &self.0 { *units } else { self.of_other(request) }
    }

    /// What is wrong if one of these limits can never admit this cost, as far as the cost is known without a request. A quota
    /// of zero is meant to refuse everything.
    pub(crate) fn never_fits(&self, limits: &Limits) -> Option<String> {
        let Kind::Units(units) = &self.0 else { return None };
        let limit = limits.iter().find(|limit| (1..*units).contains(&limit.burst()))?;
        Some(format!(
            "a request of {units} units never fits the limit \"{limit}\", which admits at most {} at once: lower the cost, or \
             raise the limit or its burst",
            limit.burst()
        ))
    }

    /// The cost if it is not the same for all requests, which it usually is.
    fn of_other(&self, request: &Head<'_>) -> u64 {
        match &self.0 {
            Kind::Units(units) => *units,
            Kind::Length { unit, unknown } => {
                length(request).map_or(*unknown, |length| length.div_ceil(unit.get()).max(1))
            }
            Kind::Function(cost) => cost(request),
        }
    }
}

/// The length of the body, if the request's head says it.
fn length(request: &Head<'_>) -> Option<u64> {
    // RFC 9112, section 6.3: this field overrides `Content-Length`, which servers need not remove.
    if request.headers.contains_key(TRANSFER_ENCODING) {
        return None;
    }
    if !request.headers.contains_key(CONTENT_LENGTH) {
        // In other requests a middleware may have removed the field, as decompression does.
        return (request.method.is_safe() && request.version <= Version::HTTP_11).then_some(0);
    }
    number(request.headers, &CONTENT_LENGTH)
}

/// The number in a header field that occurs once.
pub(crate) fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    let mut values = headers.get_all(name).iter();
    let (value, None) = (values.next()?.to_str().ok()?, values.next()) else { return None };
    // `parse` would accept a sign.
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| value.parse().ok())?
}

impl Default for Cost {
    fn default() -> Self {
        Self::units(1)
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Units(units) => write!(f, "{units}"),
            Kind::Length { unit, unknown } => write!(f, "1 per {unit} bytes, {unknown} if unknown"),
            Kind::Function(_) => f.write_str("function"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(request: http::request::Builder) -> u64 {
        let request = request.body(()).unwrap();
        let cost = Cost::content_length(NonZeroU64::new(1000).unwrap(), 7);
        cost.of(&Head::of(&request))
    }

    fn with_length(length: &str) -> http::request::Builder {
        http::Request::builder().header(CONTENT_LENGTH, length)
    }

    #[test]
    fn a_body_costs_one_for_each_started_unit() {
        let cases =
            [("0", 1), ("1", 1), ("1000", 1), ("1001", 2), ("18446744073709551615", 18_446_744_073_709_552)];
        for (length, units) in cases {
            assert_eq!(cost(with_length(length)), units, "{length}");
        }
        for unknown in ["", "-1", "+1", "1, 1", "18446744073709551616"] {
            assert_eq!(cost(with_length(unknown)), 7, "{unknown:?}");
        }
        assert_eq!(cost(with_length("1").header(CONTENT_LENGTH, "1")), 7);
    }

    /// Otherwise a client could announce one byte and send any number.
    #[test]
    fn the_length_of_a_chunked_body_is_not_known() {
        assert_eq!(cost(with_length("1").header("transfer-encoding", "chunked")), 7);
    }

    #[test]
    fn only_http_1_says_that_a_request_without_a_length_has_no_body() {
        let of = |version| http::Request::builder().version(version);
        assert_eq!([of(Version::HTTP_10), of(Version::HTTP_11)].map(cost), [1, 1]);
        assert_eq!(cost(of(Version::HTTP_11).header("transfer-encoding", "chunked")), 7);
        for (method, units) in [("HEAD", 1), ("OPTIONS", 1), ("TRACE", 1), ("DELETE", 7), ("POST", 7)] {
            assert_eq!(cost(of(Version::HTTP_11).method(method)), units, "{method}");
        }
        assert_eq!([of(Version::HTTP_2), of(Version::HTTP_3)].map(cost), [7, 7]);
    }
}
