//! What to write instead of what people often write in limits.

use super::parse_error::SEPARATOR;

pub(super) const BETWEEN_LIMITS: &str = "';' between limits";
const KEYS: &str = "an option or the end: what is counted apart, such as a user, is the key of a request, not part of a limit";

/// What was expected after the number of units, instead of this text.
pub(super) fn after_quota(rest: &str) -> Option<&'static str> {
    let word = leading(rest, char::is_alphabetic);
    let after = &rest[word.len()..];
    Some(match &*word.to_ascii_lowercase() {
        "rps" | "qps" | "tps" => "`/s`",
        "rpm" | "qpm" | "tpm" => "`/min`",
        "rph" | "qph" => "`/h`",
        "rpd" | "qpd" => "`/d`",
        "k" | "m" | "g" if after.trim_start().starts_with('/') => "a number in full, such as 1000 or 1_000,",
        "concurrent" | "parallel" | "simultaneous" => "'at once'",
        "a" | "an" | "every" | "each" => "'/' or 'per'",
        "r" | "req" | "reqs" | "request" | "requests" | "call" | "calls" | "hit" | "hits" | "unit"
        | "units" => "'/' or 'per' directly after the number, as in `10/s` or `10 per second`,",
        "" if rest.starts_with('.') => "a whole number (90/min rather than 1.5/s)",
        "" if rest.starts_with(',') => "a number without ',', such as 1000 or 1_000,",
        _ => return None,
    })
}

/// What was expected instead of this unit of time.
pub(super) fn unit(word: &str) -> Option<&'static str> {
    Some(match &*word.to_ascii_lowercase() {
        "mo" | "mon" | "mth" | "mths" => "'month', or 'min' for minutes,",
        "q" | "qtr" => "'quarter'",
        "y" | "yr" | "yrs" => "'year'",
        _ => return None,
    })
}

/// What was expected instead of this option, and how many bytes of it come before that.
pub(super) fn option(word: &str) -> Option<(usize, &'static str)> {
    if let Some(place) = word.find(SEPARATOR) {
        return Some((place, "the end, because this is read as one `Limit`: several are `Limits`,"));
    }
    if let Some(place) = word.find([',', '+', '&']) {
        return Some((place, BETWEEN_LIMITS));
    }
    let name = leading(word, char::is_alphabetic);
    let hint = match &*name.to_ascii_lowercase() {
        "and" => BETWEEN_LIMITS,
        "" if word.starts_with(|first: char| first.is_ascii_digit()) => BETWEEN_LIMITS,
        "" if word.starts_with('/') => KEYS,
        "ban" => "';' before a ban, which is a limit of its own,",
        "per" | "by" | "for" => KEYS,
        "nodelay" => "burst NUMBER, which does not delay,",
        "delay" => "queue burst NUMBER immediate NUMBER, which delays those beyond the immediate ones,",
        "burst" | "immediate" | "step" | "lease" | "precision" | "offset" | "name"
            if word.len() > name.len() =>
        {
            return Some((name.len(), "a space between an option and its value, as in `burst 20`,"));
        }
        "token" | "window" | "fixed" | "sliding" | "leaky" | "rolling" => {
            "one word for the algorithm: fixed, sliding, log, bucket, leaky or queue,"
        }
        _ => return None,
    };
    Some((0, hint))
}

fn leading(text: &str, is_it: impl Fn(char) -> bool) -> &str {
    &text[..text.find(|letter| !is_it(letter)).unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use crate::Limits;

    /// What people write, what they are told to write, and where.
    #[test]
    fn what_people_write_gets_a_precise_hint() {
        let between = "';' between limits";
        for (text, position, hint) in [
            ("100/min, 1000/h", 7, between),
            ("100/min,1000/h", 7, between),
            ("100/min , 1000/h", 8, between),
            ("100/min log, 1000/h", 11, between),
            ("100/min burst 20, 1000/h", 16, between),
            ("100/min + 1000/h", 8, between),
            ("100/min and 1000/h", 8, between),
            ("100/min & 1000/h", 8, between),
            ("100/min 1000/h", 8, between),
            ("100/min ban 1h after 5 in 1min", 8, "';' before a ban"),
            ("100 per minute;", 15, "another limit after the ';', or no ';',"),
            ("10r/s", 2, "'/' or 'per' directly after the number"),
            ("10 req/s", 3, "'/' or 'per' directly after the number"),
            ("10 requests per minute", 3, "'/' or 'per' directly after the number"),
            ("5rps", 1, "`/s`"),
            ("5 QPS", 2, "`/s`"),
            ("60 rpm", 3, "`/min`"),
            ("60rph", 2, "`/h`"),
            ("10 every 5s", 3, "'/' or 'per'"),
            ("10 concurrent", 3, "'at once'"),
            ("1k/min", 1, "a number in full, such as 1000 or 1_000,"),
            ("1M/h", 1, "a number in full"),
            ("1,000/h", 1, "a number without ','"),
            ("1.5/s", 1, "a whole number (90/min rather than 1.5/s)"),
            ("10/mo", 3, "'month', or 'min' for minutes,"),
            ("10/y", 3, "'year'"),
            ("10/s burst=20", 10, "a space between an option and its value, as in `burst 20`,"),
            ("10/s burst:20", 10, "a space between an option and its value"),
            ("10/s nodelay", 5, "burst NUMBER, which does not delay,"),
            ("10/s per user", 5, "an option or the end: what is counted apart"),
            ("10/s/user", 4, "an option or the end: what is counted apart"),
            ("10/s token bucket", 5, "one word for the algorithm"),
            ("10/s sliding-window", 5, "one word for the algorithm"),
        ] {
            let error = text.parse::<Limits>().unwrap_err();
            let message = error.to_string();
            assert!(message.contains(&format!(": expected {hint}")), "{text}: {message}");
            assert_eq!(error.position(), position, "{message}");
            assert!(!message.contains("gcra"), "the list of all options helps nobody here: {message}");
        }
        // What has one meaning is read.
        for text in ["10/sec", "5/15m", "10 per second", "1_000/hr", "10/S Burst 20"] {
            assert!(text.parse::<Limits>().is_ok(), "{text}");
        }
    }
}
