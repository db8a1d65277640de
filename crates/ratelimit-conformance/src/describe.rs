//! How messages describe instants, keys and answers.

use ratelimit_core::Timestamp;
use ratelimit_core::store::{Answer, Verdict};

use crate::clock::START;

/// Longer keys are truncated.
const LONGEST: usize = 48;

/// An instant relative to [`START`].
pub(crate) fn instant(at: Timestamp) -> String {
    if at >= START { format!("+{:?}", at.since(START)) } else { format!("-{:?}", START.since(at)) }
}

/// A key, escaped.
pub(crate) fn key(bytes: &[u8]) -> String {
    match bytes.get(..LONGEST) {
        Some(beginning) if bytes.len() > LONGEST => {
            format!("\"{}\"… of {} bytes", beginning.escape_ascii(), bytes.len())
        }
        _ => format!("\"{}\"", bytes.escape_ascii()),
    }
}

/// An answer in a few words.
pub(crate) fn answer(answer: &Answer) -> String {
    let what = match (answer.admitted, answer.charged) {
        (true, true) => "admitted",
        (true, false) => "would be admitted",
        (false, true) => "charged beyond the limit",
        (false, false) => "refused",
    };
    let each: Vec<String> = answer.verdicts.iter().map(|verdict| figures(answer, verdict)).collect();
    format!("{what}: {}", each.join("; "))
}

fn figures(answer: &Answer, verdict: &Verdict) -> String {
    let left = format!("{} of {} left", verdict.remaining, verdict.limit);
    match verdict.fits_at {
        None => format!("{left}, never fits"),
        Some(at) if at > answer.now => format!("{left}, fits in {:?}", at.since(answer.now)),
        Some(_) => left,
    }
}

/// The differing figures of two answers to the same claims: a line for each claim, with its name.
pub(crate) fn differences(expected: &Answer, found: &Answer, names: &[String]) -> String {
    let head = |answer: &Answer| {
        [
            ("admitted", answer.admitted.to_string()),
            ("charged", answer.charged.to_string()),
            ("now", instant(answer.now)),
            ("verdicts", answer.verdicts.len().to_string()),
        ]
    };
    let verdicts = expected.verdicts.iter().zip(&found.verdicts).zip(names);
    let each = verdicts.map(|((one, other), name)| (name.as_str(), unequal(&fields(one), &fields(other))));
    let lines = std::iter::once(("the answer", unequal(&head(expected), &head(found)))).chain(each);
    let lines = lines.filter(|(_, figures)| !figures.is_empty());
    lines.map(|(name, figures)| format!("{name}: {figures}")).collect::<Vec<_>>().join("\n     ")
}

/// The figures that differ.
fn unequal(expected: &[(&'static str, String)], found: &[(&'static str, String)]) -> String {
    let pairs = expected.iter().zip(found).filter(|(one, other)| one != other);
    let reported = pairs.map(|((name, one), (_, other))| format!("{name}: expected {one}, found {other}"));
    reported.collect::<Vec<_>>().join("; ")
}

fn fields(verdict: &Verdict) -> [(&'static str, String); 7] {
    let Verdict { fits, limit, remaining, fits_at, reset_at, ready_at, receipt } = verdict;
    [
        ("fits", fits.to_string()),
        ("limit", limit.to_string()),
        ("remaining", remaining.to_string()),
        ("fits_at", fits_at.map_or_else(|| "never".to_owned(), instant)),
        ("reset_at", instant(*reset_at)),
        ("ready_at", instant(*ready_at)),
        ("receipt", instant(receipt.instant())),
    ]
}
