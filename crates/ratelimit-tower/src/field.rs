//! Structured fields (RFC 9651), as far as this crate writes them.

use http::HeaderValue;

/// The largest integer that a structured field can have.
const MOST: u64 = 999_999_999_999_999;

/// A field in the making. It is made for each answer, so it is on the stack as long as it is short.
#[derive(Clone)]
pub(crate) struct Field {
    short: [u8; SHORT],
    length: usize,
    /// All of it, once it is long.
    long: Vec<u8>,
}

const SHORT: usize = 128;

impl Field {
    pub(crate) fn new() -> Self {
        Self { short: [0; SHORT], length: 0, long: Vec::new() }
    }

    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        let end = self.length + bytes.len();
        if let Some(free) = self.short.get_mut(self.length..end) {
            free.copy_from_slice(bytes);
        } else {
            if self.length <= SHORT {
                self.long.extend_from_slice(&self.short[..self.length]);
            }
            self.long.extend_from_slice(bytes);
        }
        self.length = end;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.short.get(..self.length).unwrap_or(&self.long)
    }
}

/// Appends a whole number; one that is too large becomes the largest.
pub(crate) fn integer(field: &mut Field, number: u64) {
    field.append(itoa::Buffer::new().format(number.min(MOST)).as_bytes());
}

/// Appends a string, quoted. What a string cannot have (it is ASCII without control characters) becomes `?`.
pub(crate) fn string(field: &mut Field, text: &str) {
    field.append(b"\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => field.append(&[b'\\', character as u8]),
            ' '..='~' => field.append(&[character as u8]),
            _ => field.append(b"?"),
        }
    }
    field.append(b"\"");
}

/// The value of a field that was written by these functions, and so can be one.
pub(crate) fn value(field: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(field).ok()
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
            let mut field = Field::new();
            string(&mut field, &text);
            field.append(b";n=");
            integer(&mut field, number);
            let item = Parser::new(field.as_bytes()).parse::<sfv::Item>().unwrap();
            let kept = text.chars().map(|c| if (' '..='~').contains(&c) { c } else { '?' });
            prop_assert_eq!(item.bare_item.as_string().unwrap().as_str(), kept.collect::<String>());
            let parameter = i64::from(item.params["n"].as_integer().unwrap());
            prop_assert_eq!(parameter.unsigned_abs(), number.min(999_999_999_999_999));
            prop_assert!(value(field.as_bytes()).is_some());
        }
    }

    #[test]
    fn the_largest_integer() {
        assert_eq!(number(u64::MAX), "999999999999999");
        let mut field = Field::new();
        integer(&mut field, 1_000_000_000_000_000);
        assert_eq!(field.as_bytes(), b"999999999999999");
    }

    proptest! {
        #[test]
        fn a_field_is_what_was_appended(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..70), 0..9)) {
            let mut field = Field::new();
            parts.iter().for_each(|part| field.append(part));
            prop_assert_eq!(field.as_bytes(), parts.concat());
            prop_assert_eq!(field.is_empty(), parts.concat().is_empty());
        }
    }
}
