//! Arguments as literals in the text of a statement, for connections on which none can be prepared.
//!
//! They are numbers, booleans and bytes in hexadecimal, so none of them can end a literal. They are quoted all the same,
//! because the server would choose a type for bare digits. Literals with a backslash are `E'...'`, which does not depend on
//! `standard_conforming_strings`.

use std::fmt::{Display, Write as _};

/// `statement` with `literals` instead of `$1`, `$2`, …; it contains no other `$`.
pub(crate) fn fill(statement: &str, literals: &[String]) -> String {
    let mut parts = statement.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(part.len());
        let (number, rest) = part.split_at(end);
        let place = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
        text.push_str(place.and_then(|place| literals.get(place)).map_or("NULL", String::as_str));
        text.push_str(rest);
    }
    text
}

/// A number or a boolean.
pub(crate) fn one(value: &impl Display) -> String {
    format!("'{value}'")
}

/// An array of numbers.
pub(crate) fn array(values: &[impl Display]) -> String {
    let mut text = "'{".to_owned();
    for (nth, value) in values.iter().enumerate() {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{value}", if nth > 0 { "," } else { "" });
    }
    text.push_str("}'");
    text
}

pub(crate) fn bytes(bytes: &[u8]) -> String {
    let mut text = "E'\\\\x".to_owned();
    write_hex(&mut text, bytes);
    text.push('\'');
    text
}

pub(crate) fn bytes_array(all: &[Vec<u8>]) -> String {
    let mut text = "E'{".to_owned();
    for (nth, bytes) in all.iter().enumerate() {
        text.push_str(if nth > 0 { ",\\\\\\\\x" } else { "\\\\\\\\x" });
        write_hex(&mut text, bytes);
    }
    text.push_str("}'");
    text
}

fn write_hex(text: &mut String, bytes: &[u8]) {
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::{array, bytes, bytes_array, fill, one};

    #[test]
    fn arguments_replace_their_placeholders() {
        let literals: Vec<String> = (1..=11).map(|number| one(&number)).collect();
        assert_eq!(fill("SELECT f($1, $11)", &literals), "SELECT f('1', '11')");
        assert_eq!(fill("SELECT f($12, $0, $, $2", &literals), "SELECT f(NULL, NULL, NULL, '2'");
    }

    #[test]
    fn literals_are_quoted() {
        assert_eq!(one(&i64::MIN), "'-9223372036854775808'");
        assert_eq!(one(&true), "'true'");
        assert_eq!(array(&[0_i64; 0]), "'{}'");
        assert_eq!(array(&[1, -2]), "'{1,-2}'");
        assert_eq!(bytes(b"'\\"), "E'\\\\x275c'");
        assert_eq!(bytes_array(&[b"a".to_vec(), Vec::new()]), "E'{\\\\\\\\x61,\\\\\\\\x}'");
    }
}
