//! What a request costs.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::Head;
use http::header::CONTENT_LENGTH;

/// The cost of a request in units, determined from its head. It is an estimate if the policy [settles](crate::Settle).
///
/// A cost of zero admits a request without charging it. A cost above what a limit can ever admit is always refused,
/// without `Retry-After`.
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

    /// One unit per `unit` bytes of the body, rounded up, at least one; `unknown` units if `Content-Length` is missing
    /// (a streamed body) or not a number.
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

    /// The cost if it is not the same for all requests, which it usually is.
    fn of_other(&self, request: &Head<'_>) -> u64 {
        match &self.0 {
            Kind::Units(units) => *units,
            Kind::Length { unit, unknown } => {
                let length = request.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
                // `parse` would accept a sign.
                let length = length.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let length = length.and_then(|text| text.parse::<u64>().ok());
                length.map_or(*unknown, |length| length.div_ceil(unit.get()).max(1))
            }
            Kind::Function(cost) => cost(request),
        }
    }
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

    fn cost(length: Option<&str>) -> u64 {
        let mut request = http::Request::new(());
        if let Some(length) = length {
            request.headers_mut().insert(CONTENT_LENGTH, length.parse().unwrap());
        }
        let cost = Cost::content_length(NonZeroU64::new(1000).unwrap(), 7);
        cost.of(&Head::of(&request))
    }

    #[test]
    fn a_body_costs_one_for_each_started_unit() {
        let cases =
            [("0", 1), ("1", 1), ("1000", 1), ("1001", 2), ("18446744073709551615", 18_446_744_073_709_552)];
        for (length, units) in cases {
            assert_eq!(cost(Some(length)), units, "{length}");
        }
        for unknown in [None, Some(""), Some("-1"), Some("+1"), Some("1, 1"), Some("18446744073709551616")] {
            assert_eq!(cost(unknown), 7, "{unknown:?}");
        }
    }
}
