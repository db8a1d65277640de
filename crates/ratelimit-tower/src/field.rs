//! Structured fields (RFC 9651), as far as this crate writes them.

use http::HeaderValue;

/// The largest integer that a structured field can have.
const MOST: u64 = 999_999_999_999_999;

/// Appends a whole number; one that is too large becomes the largest.
pub(crate) fn integer(field: &mut Vec<u8>, number: u64) {
    field.extend_from_slice(itoa::Buffer::new().format(number.min(MOST)).as_bytes());
}

/// Appends a string, quoted. What a string cannot have (it is ASCII without control characters) becomes `?`.
pub(crate) fn string(field: &mut Vec<u8>, text: &str) {
    field.push(b'"');
    for character in text.chars() {
        match character {
            '"' | '\\' => field.extend_from_slice(&[b'\\', character as u8]),
            ' '..='~' => field.push(character as u8),
            _ => field.push(b'?'),
        }
    }
    field.push(b'"');
}

/// The value of a field that was written by these functions, and so can be one.
pub(crate) fn value(field: Vec<u8>) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(bytes::Bytes::from(field)).ok()
}

/// A number as the value of a field.
pub(crate) fn number(number: u64) -> HeaderValue {
    HeaderValue::from(number.min(MOST))
}
