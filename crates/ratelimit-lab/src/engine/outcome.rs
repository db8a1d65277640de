//! What limits would have done: the results of a replay, as data.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::policies::PolicyOutcome;
use super::series::Series;

/// What one column of limits would have done to the requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The limits, as text, or the path of the configuration file.
    pub limits: String,
    /// Whether these are the policies of a configuration file.
    pub is_policies: bool,
    /// What requests are counted by. The policies of a configuration file count by their own keys; for these, this is
    /// only what `keys`, `keys_refused`, `unidentified` and `top` are about.
    pub by: String,
    /// Requests that were decided.
    pub requests: u64,
    /// Requests that do not have what is counted by. They are counted together, as one key, or with
    /// [`skip_missing`](crate::Plan::skip_missing) left out of a column of limits.
    pub unidentified: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Admitted requests that a queue would have delayed.
    pub delayed: u64,
    /// Requests that a limit refused and that no wait would have helped: they cost more than it can ever admit, or it is a
    /// limit in total that is used up. They are among `refused`.
    pub never: u64,
    /// Keys with at least one decided request.
    pub keys: u64,
    /// Keys with at least one refusal.
    pub keys_refused: u64,
    /// The median of the waits until refused requests would have been admitted, in seconds; at most 12.5 % too long.
    pub median_wait: Option<f64>,
    /// The longest of these waits, in seconds.
    pub longest_wait: Option<f64>,
    /// The longest delay by a queue, in seconds.
    pub longest_delay: f64,
    /// The length of the periods in which peaks are counted, in seconds: the period of the first limit, which is zero if
    /// that has none, and then all time is one; a minute for a configuration file.
    pub peak_seconds: f64,
    /// The shortest period of its limits, in seconds; zero if none has a period.
    pub shortest_seconds: f64,
    /// The parts of a configuration file that are not replayed, as text for people.
    pub not_replayed: Vec<String>,
    /// The policies of a configuration file that are replayed.
    pub policies: Vec<PolicyOutcome>,
    /// How many requests each limit of a configuration file refused, by its name, and how many were refused for each other
    /// reason: `(403: ...)`, that is the status and the reason in parentheses.
    pub refused_by: BTreeMap<String, u64>,
    /// The keys with the most refusals.
    pub top: Vec<KeyOutcome>,
    /// The counts over time.
    pub series: Series,
}

/// What happened to one key.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyOutcome {
    /// The key as printable text: control characters and bytes that are not UTF-8 are `\xNN`, a backslash is `\\`, and
    /// characters that would reverse or hide others are `\u{NNNN}`.
    pub key: String,
    /// Its requests.
    pub requests: u64,
    /// Those of them that were refused.
    pub refused: u64,
    /// The most requests in one period of [`peak_seconds`](Outcome::peak_seconds); periods begin at whole multiples of
    /// their length since 1970.
    pub peak: u64,
    /// The median wait until a refused request would have been admitted, in seconds; at most 12.5 % too long.
    pub median_wait: Option<f64>,
    /// The longest such wait, in seconds.
    pub longest_wait: Option<f64>,
    /// The path that most of its refused requests have, if it is certain and [`Plan::who`](crate::Plan::who) is set.
    pub path: Option<Mostly>,
    /// The same of the agent.
    pub agent: Option<Mostly>,
}

/// What most of the refused requests of a key have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mostly {
    /// As printable text, as a [key](KeyOutcome::key); at most the first 255 bytes.
    pub value: String,
    /// How many of these refused requests have it, at least.
    pub refused: u64,
    /// The refused requests that were looked at: all, but after the first 100,000 lines of a log only one in eight.
    pub of: u64,
}

impl Outcome {
    /// The share of the decided requests that were refused, from 0 to 1.
    pub fn refused_share(&self) -> f64 {
        share(self.refused, self.requests)
    }
}

/// `part` divided by `whole`; zero if `whole` is zero.
#[allow(clippy::cast_precision_loss)] // for people
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Bytes as printable text, such that different bytes are different text.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                // These are written with their code points: characters that reverse or hide what follows on a terminal,
                // and control characters from U+0080, since `\x85` stands for a byte that is not UTF-8.
                '\u{80}'..='\u{9f}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}' => {
                    text.extend(letter.escape_unicode());
                }
                _ if letter.is_control() => text.push_str(&format!("\\x{:02x}", u32::from(letter))),
                '\\' => text.push_str("\\\\"),
                _ => text.push(letter),
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\x{byte:02x}")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_keys_are_printed_differently() {
        let keys: [&[u8]; 6] =
            [b"\x85", "\u{85}".as_bytes(), b"\\x85", b"\\u{85}", b"\n", "\u{202e}é".as_bytes()];
        let printed = ["\\x85", "\\u{85}", "\\\\x85", "\\\\u{85}", "\\x0a", "\\u{202e}é"];
        assert_eq!(keys.map(printable), printed);
    }
}
