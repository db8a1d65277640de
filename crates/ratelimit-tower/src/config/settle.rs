//! Parses where a policy takes the true cost of its requests from.

use std::num::NonZeroU64;
use std::time::Duration;

use ratelimit_core::kit::parse_duration;

use super::document::Problem;
use super::file;
use super::key::header_name;
use crate::Settle;
use crate::true_cost::Source;

/// How this policy settles; `None` if it does not.
pub(super) fn settle(policy: &file::Policy) -> Result<Option<Settle>, Problem> {
    let Some(text) = &policy.settle else {
        let within = policy.settle_within.as_ref().map(|within| &within.location);
        return match within.or(policy.unsettled.as_ref().map(|unsettled| &unsettled.location)) {
            Some(location) => Err(Problem::at(location, format!("it needs `settle`: {CHOICES}"))),
            None => Ok(None),
        };
    };
    let mut settle = source(text).map_err(|error| Problem::at(&text.location, error))?;
    if let Some(text) = &policy.settle_within {
        if matches!(settle.source, Source::Header { .. }) {
            let message =
                "it does nothing: a cost from a header is settled as soon as there is a response. Remove it";
            return Err(Problem::at(&text.location, message));
        }
        let within = duration(text).map_err(|error| Problem::at(&text.location, error))?;
        settle = settle.within(within);
    }
    Ok(Some(match &policy.unsettled {
        Some(unsettled) => settle.otherwise(unsettled.0),
        None => settle,
    }))
}

const CHOICES: &str = "use handler, header:NAME, take-header:NAME, request-bytes, response-bytes, bytes (each also with a \
                       unit: bytes:1024) or time:DURATION";

fn source(text: &str) -> Result<Settle, String> {
    let (word, argument) = match text.split_once(':') {
        Some((word, argument)) => (word, Some(argument.trim())),
        None => (text, None),
    };
    match (word, argument) {
        ("handler", None) => Ok(Settle::by_handler()),
        ("header", Some(name)) => Ok(Settle::response_header(header_name(name)?)),
        ("take-header", Some(name)) => Ok(Settle::take_response_header(header_name(name)?)),
        ("request-bytes", unit) => Ok(Settle::request_bytes(bytes(unit)?)),
        ("response-bytes", unit) => Ok(Settle::response_bytes(bytes(unit)?)),
        ("bytes", unit) => Ok(Settle::bytes(bytes(unit)?)),
        ("time", Some(unit)) => Ok(Settle::duration(duration(unit)?)),
        _ => Err(format!("unknown source of a cost {text:?}: {CHOICES}")),
    }
}

fn bytes(unit: Option<&str>) -> Result<NonZeroU64, String> {
    let Some(unit) = unit else { return Ok(NonZeroU64::MIN) };
    unit.parse().map_err(|_| format!("{unit:?} is not a number of bytes of at least 1"))
}

/// A duration, in the units of limits; a unit alone is one of it. Periods of the calendar have no fixed length.
fn duration(text: &str) -> Result<Duration, String> {
    let unit = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let of_calendar = ["month", "months", "quarter", "quarters", "year", "years"];
    if of_calendar.iter().any(|word| unit.eq_ignore_ascii_case(word)) {
        return Err(format!("{text:?} has no fixed length: write days, such as 30d"));
    }
    let one = if unit.len() == text.len() { "1" } else { "" };
    // Without the spaces that may stand in a limit.
    let is_word = text.chars().all(char::is_alphanumeric);
    let duration = is_word.then(|| parse_duration(&format!("{one}{text}"))).flatten();
    duration
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| format!("{text:?} is not a duration: use one such as 30s or 500ms"))
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    /// A policy with `lines` from line 5 on.
    fn with(lines: &str) -> String {
        format!("[[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"1/s\"\n{lines}\n")
    }

    fn error(text: &str) -> String {
        Config::from_toml(text, "limits.toml").unwrap_err().to_string()
    }

    #[track_caller]
    fn check(error: &str, expected: &str) {
        let error = error.strip_prefix("limits.toml:").unwrap();
        assert!(error.starts_with(expected), "\n{error}\ndoes not begin with\n{expected}");
    }

    #[test]
    fn a_duration_has_a_number_and_a_unit_and_is_the_same_with_every_feature() {
        for (text, nanos) in
            [("1500ns", 1_500), ("s", 1_000_000_000), ("2Min", 120_000_000_000), ("1w", 604_800_000_000_000)]
        {
            assert_eq!(super::duration(text), Ok(std::time::Duration::from_nanos(nanos)), "{text}");
        }
        let within = |text: &str| error(&with(&format!("settle = \"handler\"\nsettle_within = {text:?}")));
        for text in ["month", "Months", "quarter", "year", "years", "1month", "2years"] {
            let expected = format!(
                "6: policies[1].settle_within: {text:?} has no fixed length: write days, such as 30d"
            );
            check(&within(text), &expected);
        }
    }

    #[test]
    fn true_costs_are_checked() {
        let settle = |text: &str| Config::from_toml(&with(&format!("settle = {text:?}")), "limits.toml");
        for text in [
            "handler",
            "header:x-tokens",
            "take-header:x-tokens",
            "request-bytes",
            "response-bytes",
            "bytes",
            "bytes:1024",
            "time:100ms",
            "time:s",
        ] {
            settle(text).unwrap_or_else(|error| panic!("{error}"));
        }
        for text in ["handlr", "handler:7", "header", "time", ""] {
            let error = settle(text).unwrap_err().to_string();
            let expected = format!(
                "5: policies[1].settle: unknown source of a cost {text:?}: use handler, header:NAME,"
            );
            check(&error, &expected);
        }
        let settle = |text: &str| error(&with(&format!("settle = {text:?}")));
        check(&settle("header:x y"), "5: policies[1].settle: \"x y\" is not a header name");
        check(&settle("bytes:0"), "5: policies[1].settle: \"0\" is not a number of bytes");
        check(&settle("bytes:"), "5: policies[1].settle: \"\" is not a number of bytes");
        for unit in ["0s", "-1s", "soon", "", "1s burst 3", "1 s"] {
            let expected = format!("5: policies[1].settle: {unit:?} is not a duration: use one such as 30s");
            check(&settle(&format!("time:{unit}")), &expected);
        }
        let settle = |lines: &str| error(&with(&format!("settle = \"handler\"\n{lines}")));
        check(&settle("settle_within = \"90\""), "6: policies[1].settle_within: \"90\" is not a duration");
        check(&settle("settle_within = 90"), "6: policies[1].settle_within: invalid type: integer");
        let expected = "6: policies[1].unsettled: invalid value: string \"kept\", expected \"keep\", \"refund\" or a number";
        check(&settle("unsettled = \"kept\""), expected);
        check(&settle("unsettled = -1"), "6: policies[1].unsettled: invalid type: integer");
        let expected = "5: policies[1].settle_within: it needs `settle`: use handler, header:NAME";
        check(&error(&with("settle_within = \"90s\"")), expected);
        check(&error(&with("unsettled = \"keep\"")), "5: policies[1].unsettled: it needs `settle`");
    }
}
