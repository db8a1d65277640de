//! The units of Envoy's limits: seconds, minutes, and so on.

use std::str::FromStr as _;

use ratelimit_core::{Alignment, Limit};

use super::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::RateLimitOverride;
use super::envoy::service::ratelimit::v3::rate_limit_response::RateLimit;
use super::envoy::service::ratelimit::v3::rate_limit_response::rate_limit::Unit;
use super::envoy::r#type::v3::RateLimitUnit;

const DAY: u64 = 86_400;

/// The limit as Envoy describes one; `None` if it cannot: its period is not one of Envoy's units.
pub(crate) fn describe(limit: &Limit, name: &str) -> Option<RateLimit> {
    let unit = if limit.alignment() == Alignment::Calendar {
        calendar_unit(&limit.to_string())?
    } else {
        match limit.period() {
            period if period.subsec_nanos() > 0 => return None,
            period => match period.as_secs() {
                1 => Unit::Second,
                60 => Unit::Minute,
                3_600 => Unit::Hour,
                DAY => Unit::Day,
                seconds if seconds == 7 * DAY => Unit::Week,
                _ => return None,
            },
        }
    };
    let requests_per_unit = u32::try_from(limit.quota()).ok()?;
    Some(RateLimit { name: name.to_owned(), requests_per_unit, unit: unit.into() })
}

/// The unit in the text of a calendar's limit: `1000/month in Europe/Berlin`.
fn calendar_unit(text: &str) -> Option<Unit> {
    match text.split_once('/')?.1.split(' ').next()? {
        "day" => Some(Unit::Day),
        "week" => Some(Unit::Week),
        "month" => Some(Unit::Month),
        "year" => Some(Unit::Year),
        _ => None,
    }
}

/// The limit that a descriptor asks for.
pub(crate) fn limit_of(wanted: &RateLimitOverride) -> Result<Limit, String> {
    let period = match wanted.unit() {
        RateLimitUnit::Second => "s",
        RateLimitUnit::Minute => "min",
        RateLimitUnit::Hour => "h",
        RateLimitUnit::Day => "24h",
        RateLimitUnit::Month => "month",
        RateLimitUnit::Year => "year",
        RateLimitUnit::Unknown => return Err("the unit of the descriptor's limit is unknown".to_owned()),
    };
    let limit = Limit::from_str(&format!("{}/{period}", wanted.requests_per_unit));
    limit.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_described_if_envoy_has_their_unit() {
        for (text, expected) in [
            ("10/s", Some((10, Unit::Second))),
            ("10/60s log", Some((10, Unit::Minute))),
            ("5000/h burst 10", Some((5_000, Unit::Hour))),
            ("7/day", Some((7, Unit::Day))),
            ("7/week", Some((7, Unit::Week))),
            ("7/month in Europe/Berlin", Some((7, Unit::Month))),
            ("7/year", Some((7, Unit::Year))),
            ("7/quarter", None),
            ("10/15min", None),
            ("10/100ms", None),
            ("10 in total", None),
            ("10000000000/s", None),
        ] {
            let limit: Limit = text.parse().unwrap();
            for limit in [limit.at(ratelimit_core::Timestamp::from_secs(1_700_000_000)), limit] {
                if limit.alignment() == Alignment::Calendar
                    || !text.contains("month") && !text.contains("year")
                {
                    let described =
                        describe(&limit, "n").map(|limit| (limit.requests_per_unit, limit.unit()));
                    assert_eq!(described, expected, "{text}");
                }
            }
        }
    }

    #[test]
    fn a_descriptor_may_name_a_limit() {
        let wanted = |requests_per_unit, unit: RateLimitUnit| RateLimitOverride {
            requests_per_unit,
            unit: unit.into(),
        };
        for (unit, expected) in [
            (RateLimitUnit::Second, "5/s"),
            (RateLimitUnit::Minute, "5/min"),
            (RateLimitUnit::Hour, "5/h"),
            (RateLimitUnit::Day, "5/day"),
        ] {
            let limit = limit_of(&wanted(5, unit)).unwrap();
            assert_eq!(
                limit.period(),
                expected.parse::<Limit>().unwrap().at(ratelimit_core::Timestamp::EPOCH).period()
            );
        }
        assert_eq!(limit_of(&wanted(5, RateLimitUnit::Month)).unwrap().to_string(), "5/month");
        assert!(limit_of(&wanted(5, RateLimitUnit::Unknown)).is_err());
    }
}
