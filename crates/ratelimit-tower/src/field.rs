//! Structured fields (RFC 9651), as far as this crate writes them.

use http::HeaderValue;
use smallvec::SmallVec;

/// The largest integer that a structured field can have.
const MOST: u64 = 999_999_999_999_999;

/// A field that is being built. It is built for each response, so it is on the stack as long as it is short.
pub(crate) type Field = SmallVec<[u8; 128]>;

/// Appends an integer. One that is too large becomes the largest.
#[inline]
pub(crate) fn integer(field: &mut Field, number: u64) {
    field.extend_from_slice(itoa::Buffer::new().format(number.min(MOST)).as_bytes());
}

/// Appends a quoted string. Characters that a string cannot contain (it is ASCII without control characters) become `?`.
pub(crate) fn string(field: &mut Field, text: &str) {
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

/// The value of a field that these functions have written, which is always valid.
pub(crate) fn value(field: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(field).ok()
}

/// A number as a field value.
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
        fn any_text_and_number_give_a_valid_field(text: String, number: u64) {
            let mut field = Field::new();
            string(&mut field, &text);
            field.extend_from_slice(b";n=");
            integer(&mut field, number);
            let item = Parser::new(field.as_slice()).parse::<sfv::Item>().unwrap();
            let kept = text.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' });
            prop_assert_eq!(item.bare_item.as_string().unwrap().as_str(), kept.collect::<String>());
            let parameter = i64::from(item.params["n"].as_integer().unwrap());
            prop_assert_eq!(parameter.unsigned_abs(), number.min(999_999_999_999_999));
            prop_assert!(value(&field).is_some());
        }
    }

    #[test]
    fn integers_are_capped_at_fifteen_digits() {
        assert_eq!(number(u64::MAX), "999999999999999");
        let mut field = Field::new();
        integer(&mut field, 1_000_000_000_000_000);
        assert_eq!(field.as_slice(), b"999999999999999");
    }
}
