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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sfv::Parser;

    proptest! {
        #[test]
        fn any_text_and_any_number_can_be_parsed(text: String, number: u64) {
            let mut field = Vec::new();
            string(&mut field, &text);
            field.extend_from_slice(b";n=");
            integer(&mut field, number);
            let item = Parser::new(&field).parse::<sfv::Item>().unwrap();
            let kept = text.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' });
            prop_assert_eq!(item.bare_item.as_string().unwrap().as_str(), kept.collect::<String>());
            let parameter = i64::from(item.params["n"].as_integer().unwrap());
            prop_assert_eq!(parameter.unsigned_abs(), number.min(999_999_999_999_999));
            prop_assert!(value(field).is_some());
        }
    }

    #[test]
    fn the_largest_integer() {
        assert_eq!(number(u64::MAX), "999999999999999");
        let mut field = Vec::new();
        integer(&mut field, 1_000_000_000_000_000);
        assert_eq!(field, b"999999999999999");
    }
}
